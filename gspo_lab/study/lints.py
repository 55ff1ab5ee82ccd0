"""What is allowed and still worth a warning before a study runs, each with its reason and source.

Pure: a lint knows the study and what the caller has looked up or measured; what is unknown fires nothing. What makes
no sense at all is refused by `rules`, so "one-minibatch" (arms identical by construction) is there. "seed-streams"
cannot occur: every random stream of a run follows from its seed; neither can "product-or-mean": a mismatch correction's
name says which.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

from gspo_lab.objectives.presets import PRESETS
from gspo_lab.study.contrast import squared_weights
from gspo_lab.study.declaration import Arm
from gspo_lab.study.dotted import differing, flat, under
from gspo_lab.study.judging import score_named
from gspo_lab.study.schema import Settings, unread
from gspo_lab.study.study import Study

Level = Literal["warn", "error"]

WIDE, NARROW = 0.1, 1e-2
SATURATED = 0.4
LEAST_TOKEN_NOISE = 0.02
"""Std of l_t in nats at a learning rate of 1e-5, the lowest of the pilot; larger ones moved tokens more."""
DETECTABLE = {3: 3.26, 4: 2.13}
"""Smallest effect at 80 % power in sd of the pair difference, by number of seeds: as `stats.power` has them."""
PAPER_PRESETS = ("grpo", "gspo", "gspo-token")
LENGTH = "rollout.max_tokens"
"""A sweep of it is one over the length of answers: it has no dose at which runs collapse."""
OTHER_NAMES = ("dapo", "dr", "luspo", "token", "mean", "sum", "constant")
"""Words in an arm's name that say that it is not the paper's aggregation."""


WAIVABLE = (
    *("aggregation-label", "undeclared-difference", "replay-on-dense"),
    *("dual-clip-one-arm", "std-one-arm", "correction-one-arm", "filter-one-arm", "grader-fails"),
)
"""The lints that are errors: they stop a study unless it waives them by name, `[waive]`, with a reason."""

REMOVED = ("rollout-logp-as-old",)
"""Errors of earlier versions. A study may still waive them."""


@dataclass(frozen=True)
class Finding:
    """One line for the user. An error stops `check` and `run`; a warning is read and decided upon."""

    level: Level
    name: str
    message: str
    source: str

    def __str__(self) -> str:
        return f"{self.level}: {self.name}: {self.message} [{self.source}]"


@dataclass(frozen=True)
class Known:
    """What the study file does not say, by model or by arm; what is absent is unknown.

    `max_tokens` and `problems` (per benchmark) are the tasks' own; `grader_failures` says, by task, how a user's grader
    failed when it was tried.
    """

    moe: Mapping[str, bool] = field(default_factory=dict)
    max_tokens: Mapping[str, int] = field(default_factory=dict)
    problems: Mapping[str, int] = field(default_factory=dict)
    grader_failures: Mapping[str, str] = field(default_factory=dict)


def lints(study: Study, known: Known | None = None) -> list[Finding]:
    """Every finding, errors first, in the order of the table. An error that the study waives is a warning."""
    found = [_answered(finding, study.waived) for lint in LINTS for finding in lint(study, known or Known())]
    return sorted(found, key=lambda finding: finding.level != "error")


def _too_wide(study: Study, known: Known) -> Iterator[Finding]:
    for arm, objective in _fixed(study, sequence=True):
        eps = max(objective["clip_low"], objective["clip_high"])
        if eps >= WIDE:
            message = (
                f"arm.{arm.name}: a sequence ratio with a range of {eps:g} hardly ever clips (a token ratio's range; "
                "a mean log-ratio of that size was never seen)"
            )
            yield Finding("warn", "eps-too-wide", message, "2507.18071 v2: 3e-4/4e-4; huggingface/trl#3834")


def _too_narrow(study: Study, known: Known) -> Iterator[Finding]:
    for arm, objective in _fixed(study, sequence=False):
        eps = min(objective["clip_low"], objective["clip_high"])
        if eps < NARROW:
            message = f"arm.{arm.name}: a token ratio with a range of {eps:g}, which is a sequence ratio's"
            yield Finding("warn", "eps-too-narrow", message, "2507.18071 v2: 0.2/0.27 for token ratios")
    for arm, objective in _fixed(study, sequence=True):
        eps = (objective["clip_low"] + objective["clip_high"]) / 2
        limit = arm.settings.rollout.max_tokens or known.max_tokens.get(arm.name)
        if limit is None:
            continue
        predicted = 0.5 * math.erfc(eps * math.sqrt(limit / 2) / LEAST_TOKEN_NOISE)
        if predicted > SATURATED:
            message = (
                f"arm.{arm.name}: a sequence range of {objective['clip_low']:g}/{objective['clip_high']:g} will clip "
                f"about {predicted:.2f} of the active tokens on mini-batches >= 1 (responses of at most {limit} tokens "
                f"that move by {LEAST_TOKEN_NOISE:g} nats each): saturated, its clip fraction says little; "
                "clip = 'calibrated' finds a range of this length"
            )
            yield Finding("warn", "eps-too-narrow", message, "std(log s) = sigma_tok / sqrt(L); 2509.09177")


def _aggregation_label(study: Study, known: Known) -> Iterator[Finding]:
    for arm in study.arms.values():
        objective = arm.settings.objective
        if objective.aggregation not in ("token-mean", "constant"):
            continue
        words = re.split(r"[-_.]", arm.name.lower())
        source = "2402.03300 as restated in 2507.18071, eq. 2 and 5: mean over responses of token means"
        if not _clips(arm):
            continue
        if objective.importance_sampling_level != "token":
            message = f"arm.{arm.name}: a sequence ratio with aggregation = '{objective.aggregation}' is not GSPO"
            yield Finding("error", "aggregation-label", message, source)
        elif "grpo" in words and not set(words) & set(OTHER_NAMES):
            message = (
                f"arm.{arm.name}: aggregation = '{objective.aggregation}' is not the paper's GRPO; "
                "name the arm for what it is (dapo, dr-grpo, grpo-token-mean)"
            )
            yield Finding("error", "aggregation-label", message, source)


def _aggregation_constant(study: Study, known: Known) -> Iterator[Finding]:
    for arm in study.arms.values():
        objective = arm.settings.objective
        limit = arm.settings.rollout.max_tokens or known.max_tokens.get(arm.name)
        if objective.aggregation == "constant" and limit is not None and objective.aggregation_constant != limit:
            message = (
                f"arm.{arm.name}: aggregation_constant = {objective.aggregation_constant:g}, and an answer has at most "
                f"{limit} tokens: its gradient has {limit / objective.aggregation_constant:.3g} of the published size, "
                f"which max_grad_norm and kl_coef meet; give aggregation_constant = {limit}"
            )
            yield Finding("warn", "aggregation-constant", message, "2503.20783: divided by the longest length allowed")


def _kl(study: Study, known: Known) -> Iterator[Finding]:
    for arm in study.arms.values():
        objective = arm.settings.objective
        if objective.kl_coef > 0 and objective.preset in PAPER_PRESETS:
            message = f"arm.{arm.name}: kl_coef = {objective.kl_coef:g}, but the paper's comparison has no KL term"
            yield Finding("warn", "kl-not-zero", message, "author in verl-project/verl#2775; .04 predates v2")


def _undeclared(study: Study, known: Known) -> Iterator[Finding]:
    arms = list(study.arms.values())
    for other in arms[1:]:
        a, b = flat(arms[0].resolved), flat(other.resolved)
        for key in differing(a, b):
            if not under(key, {*arms[0].declared, *other.declared}):
                message = f"arm.{other.name} differs from arm.{arms[0].name} in {key}, which neither declares"
                yield Finding("error", "undeclared-difference", message, "a comparison of matched arms")


def _replay(study: Study, known: Known) -> Iterator[Finding]:
    source = "2507.18071, Fig. 3: GRPO with replay against GSPO without"
    arms = study.arms.values()
    for arm in arms:
        if arm.settings.routing_replay != "none" and known.moe.get(arm.settings.model) is False:
            message = f"arm.{arm.name}: routing_replay on {arm.settings.model}, a dense model: nothing is routed"
            yield Finding("error", "replay-on-dense", message, source)
    routed = [arm for arm in arms if known.moe.get(arm.settings.model)]
    if not routed:
        return
    if not any("routing_replay" in {*arm.declared, *arm.settings.model_fields_set} for arm in routed):
        message = "a mixture of experts, and no arm says routing_replay = 'none', 'old-policy' or 'rollout'"
        yield Finding("warn", "replay-unspecified", message, source)
    token = [arm for arm in routed if arm.settings.objective.importance_sampling_level == "token"]
    if token and all(arm.settings.routing_replay != "none" for arm in token):
        message = "GRPO on a mixture of experts only with replay: show it without, too"
        yield Finding("warn", "replay-unspecified", message, source)


def _mismatch(study: Study, known: Known) -> Iterator[Finding]:
    for arm in study.arms.values():
        settings = arm.settings
        # Against the sampler's own log-probs the ratio holds the mismatch, and is its correction.
        corrected = settings.objective.mismatch_correction != "none" or settings.update.old_logprobs == "sampler"
        corrected |= settings.routing_replay == "rollout"
        if settings.rollout.dtype != settings.update.dtype and not corrected:
            message = (
                f"arm.{arm.name}: sampled in {settings.rollout.dtype}, trained in {settings.update.dtype}, and nothing "
                "corrects the mismatch"
            )
            yield Finding("warn", "mismatch-uncorrected", message, "2512.01374, Fig. 1; 2510.11370; 2510.18855")


def _lag(study: Study, known: Known) -> Iterator[Finding]:
    for arm in study.arms.values():
        rollout, corrected = arm.settings.rollout, arm.settings.objective.mismatch_correction != "none"
        behind = [f"rollout.{key}" for key in ("staleness", "tokens_per_step") if getattr(rollout, key)]
        if behind and not corrected and arm.settings.update.old_logprobs == "trainer":
            message = (
                f"arm.{arm.name}: {' and '.join(behind)} with old_logprobs = 'trainer' and no mismatch_correction: the "
                "ratio begins at 1 in every step, and nothing corrects for the older policy that drew the tokens"
            )
            yield Finding(
                "warn", "lag-uncorrected", message, "2110.00641; 2505.24298, sec. 5; docs/explanation/off-policy.md"
            )


def _unread(study: Study, known: Known) -> Iterator[Finding]:
    """Values that somebody wrote and nobody reads: an arm's own, and what all arms share where none reads it."""
    found: dict[str, list[str]] = {}
    for arm in study.arms.values():
        for key, value in _written(arm).items():
            own = under(key, arm.declared)
            why = unread(key, arm.settings)
            if why and (own or all(unread(key, other.settings) for other in study.arms.values())):
                found.setdefault(f"{key.removeprefix('objective.')} = {_shown(value)} {why}", []).append(arm.name)
    for line, names in found.items():
        where = "" if len(names) == len(study.arms) else f"arm.{', arm.'.join(names)}: "
        yield Finding(
            "warn", "setting-unread", f"{where}{line}: leave it out, or change that", "docs/how-to/write-a-study.md"
        )


def _written(arm: Arm) -> dict[str, Any]:
    """The settings that are neither the lab's default nor the preset's, by dotted key."""
    preset = arm.settings.objective.preset
    plain = Settings.model_validate({"task": {"name": ""}, "objective": PRESETS[preset].model_dump()})
    usual = flat(plain.model_dump(mode="json"))
    return {key: value for key, value in flat(arm.resolved).items() if value != usual.get(key)}


def _one_arm_only(study: Study, known: Known) -> Iterator[Finding]:
    """A setting that parts the two rules everywhere is confounded with the rule."""
    token = [arm for arm in study.arms.values() if _token(arm) and _rule_alone(arm)]
    sequence = [arm for arm in study.arms.values() if not _token(arm) and _rule_alone(arm)]
    pairs = list(product(token, sequence))
    compared: dict[str, tuple[str, Callable[[Arm], Any]]] = {
        "dual-clip-one-arm": ("dual_clip", lambda arm: arm.settings.objective.dual_clip),
        "std-one-arm": ("advantage", lambda arm: arm.settings.objective.advantage),
        "correction-one-arm": ("mismatch_correction", lambda arm: arm.settings.objective.mismatch_correction),
        "filter-one-arm": ("rollout.dynamic_sampling", lambda arm: arm.settings.rollout.dynamic_sampling),
    }
    for name, (key, value) in compared.items():
        if pairs and all(value(a) != value(b) for a, b in pairs):
            a, b = pairs[0]
            message = (
                f"every token-level arm differs from every sequence-level arm in {key} ({a.name}: {_shown(value(a))}, "
                f"{b.name}: {_shown(value(b))}): the rules cannot be told apart from it"
            )
            yield Finding("error", name, message, "fair comparison: all equal but the declared rule")


def _seeds(study: Study, known: Known) -> Iterator[Finding]:
    n = len(study.seeds)
    source = "simulation of the paired t"
    if n < 3:
        message = f"{n} seed{'s' if n > 1 else ''}: no interval and no verdict; 3 are needed, 5 are better"
        yield Finding("warn", "too-few-seeds", message, source)
    elif n in DETECTABLE:
        message = (
            f"{n} seeds detect a difference of {DETECTABLE[n]:g} sd of the pair difference (80 % power), and are never "
            "called equivalent; 5 detect 1.68 and may be"
        )
        yield Finding("warn", "too-few-seeds", message, source)


def _sweep(study: Study, known: Known) -> Iterator[Finding]:
    settings = [arm.settings for arm in study.arms.values()]
    if study.sweep is None or study.sweep.key == LENGTH:
        return
    if any(arm.embedded and not arm.warm_start.per_seed for arm in settings):
        message = "all seeds share one starting model, so the ratio of doses holds for it alone; set per_seed = true"
        yield Finding("warn", "sweep-one-start", f"warm_start: {message}", "a false ratio in 17 to 22 % of sweeps")


def _benchmarks(study: Study, known: Known) -> Iterator[Finding]:
    settings = next(iter(study.arms.values())).settings
    primary = study.primary
    if primary is None:
        message = "no benchmark, so no primary score and no verdict"
        yield Finding("warn", "no-primary", message, "one declared scalar decides")
    elif study.verdict.primary is None and len(settings.bench) > 1:
        message = f"verdict.primary is not declared; {primary}, the first of {len(settings.bench)} benchmarks, decides"
        yield Finding("warn", "no-primary", message, "one declared scalar decides")
    for bench in settings.bench:
        problems = known.problems.get(bench.name, bench.problems)
        if problems is None:
            continue
        samples = bench.decisive_samples or bench.samples
        if problems < 100 and samples < 8:
            message = f"bench {bench.name}: {problems} problems x {samples} samples say little; use 100, or 8 samples"
            yield Finding("warn", "tiny-benchmark", message, "2504.07086: 5 to 15 points of sd over evaluations")
        if primary and bench.name == score_named(primary).bench and len(study.seeds) >= 3:
            # Each deciding evaluation draws new answers, unless they are greedy.
            evaluations = (
                1 if bench.temperature == 0 else min(study.verdict.last, len(bench.moments(settings.steps)) - 1)
            )
            answers = problems * samples * evaluations * len(study.seeds)
            noise = 1.96 * math.sqrt(squared_weights(study.verdict.contrast) * 0.25 / answers)
            if study.verdict.margin < noise:
                message = (
                    f"verdict.margin = {study.verdict.margin:g} on {primary}: sampling {answers} answers per arm alone "
                    f"leaves ±{noise:.2g} on scores near one half; more problems, samples or seeds, or a wider margin"
                )
                yield Finding("warn", "margin-below-noise", message, "binomial error of a difference of two scores")


def _warmup(study: Study, known: Known) -> Iterator[Finding]:
    for arm in study.arms.values():
        if arm.settings.update.warmup_updates == 0 and arm.settings.steps < 100:
            message = (
                f"arm.{arm.name}: no warm-up of the learning rate in {arm.settings.steps} steps: "
                "Adam's first steps are sign-like"
            )
            yield Finding("warn", "no-warmup", message, "pilot: first step's sigma_tok .61, later .02 to .28")


def _evaluations(study: Study, known: Known) -> Iterator[Finding]:
    settings = next(iter(study.arms.values())).settings
    decides = study.primary and score_named(study.primary).bench
    primary = next((bench for bench in settings.bench if bench.name == decides), None)
    if primary is None or not any(claim.name == "C14-more-efficient" for claim in study.claims):
        return
    count = math.ceil(settings.steps / primary.every)
    if count < 10:
        message = f"C14-more-efficient reads a time to threshold, and {primary.name} is evaluated {count} times; use 10"
        yield Finding("warn", "coarse-eval", message, "the time is known only between two evaluations")


def _graders(study: Study, known: Known) -> Iterator[Finding]:
    for task, failure in known.grader_failures.items():
        message = f"task '{task}': its grader fails: {failure}"
        yield Finding("error", "grader-fails", message, "such responses train with reward 0; docs/reference/tasks.md")


def _removed(study: Study, known: Known) -> Iterator[Finding]:
    for key in study.launch.slurm.former:
        message = f"launch.slurm.{key} is now one of launch.slurm.options: '--{key}=...'"
        yield Finding("warn", "key-moved", message, "CHANGELOG.md")
    for name in study.waived:
        if name in REMOVED:
            yield Finding(
                "warn", "waive-unused", f"waive.{name}: this check was removed; leave the key out", "CHANGELOG.md"
            )


LINTS: tuple[Callable[[Study, Known], Iterator[Finding]], ...] = (
    *(_too_wide, _too_narrow, _aggregation_label, _aggregation_constant, _kl, _undeclared, _replay),
    *(_mismatch, _lag, _unread, _one_arm_only, _seeds, _sweep, _benchmarks, _warmup, _evaluations, _graders, _removed),
)


def _answered(finding: Finding, waived: Mapping[str, str]) -> Finding:
    reason = waived.get(finding.name)
    if reason is None:
        return finding
    return replace(finding, level="warn", message=f"{finding.message}; waived: {reason}")


def _token(arm: Arm) -> bool:
    return arm.settings.objective.importance_sampling_level == "token"


def _clips(arm: Arm) -> bool:
    """Whether its range is one of ratios."""
    return arm.settings.objective.policy_loss == "clip"


def _rule_alone(arm: Arm) -> bool:
    """Whether the arm is one of GRPO's or GSPO's; another paper's preset is compared as what it is."""
    return arm.settings.objective.preset in PAPER_PRESETS and _clips(arm)


def _fixed(study: Study, *, sequence: bool) -> list[tuple[Arm, dict[str, Any]]]:
    """The arms of one kind of ratio whose range is written down, with their objective."""
    return [
        (arm, arm.settings.objective.model_dump())
        for arm in study.arms.values()
        if _token(arm) != sequence and arm.settings.objective.clip == "fixed" and _clips(arm)
    ]


def _shown(value: Any) -> str:
    return "unset" if value is None else str(value)
