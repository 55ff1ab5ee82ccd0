"""Warnings on a valid study before it runs, each with its reason and source.

A lint reads the study and what the caller has looked up or measured; it gives no finding for what
is unknown. `rules` refuses what makes no sense at all, such as arms that are identical by
construction.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.common.text import counted
from gspo_lab.study.contrast import squared_weights
from gspo_lab.study.declaration import Arm
from gspo_lab.study.dotted_keys import flat, under
from gspo_lab.study.schema import Settings, unread
from gspo_lab.study.study import Study
from gspo_lab.study.verdict_tables import score_named
from gspo_lab.training.objectives.calibration import LEAST_TOKEN_NOISE, saturated_share
from gspo_lab.training.objectives.presets import PRESETS
from gspo_lab.training.objectives.settings import CLIP_KEYS

Level = Literal["warn", "error"]
Lines = Iterator[tuple[str, str]]
"""Names and messages of findings."""

ERRORS = {
    "aggregation-label": (
        "2402.03300 as restated in 2507.18071, eq. 2 and 5: mean over responses of token means"
    ),
    "replay-on-dense": "2507.18071, Fig. 3: GRPO with replay against GSPO without",
    **dict.fromkeys(
        (
            "dual-clip-one-arm",
            "std-one-arm",
            "correction-one-arm",
            "filter-one-arm",
            "mask-one-arm",
        ),
        "fair comparison: all equal but the declared rule",
    ),
    "grader-fails": "such responses train with reward 0; docs/reference/tasks.md",
}
"""The lints that stop a study unless it waives them by name, `[waive]`, with a reason; each with
its source.
"""
WARNINGS = {
    "eps-too-wide": "2507.18071 v2: 3e-4/4e-4; huggingface/trl#3834",
    "eps-too-narrow": (
        "2507.18071 v2: 0.2/0.27 for token ratios; std(log s) = sigma_tok / sqrt(L), 2509.09177"
    ),
    "aggregation-constant": "2503.20783: divided by the longest length allowed",
    "kl-not-zero": "author in verl-project/verl#2775; .04 predates v2",
    "replay-unspecified": "2507.18071, Fig. 3: GRPO with replay against GSPO without",
    "mismatch-uncorrected": "2512.01374, Fig. 1; 2510.11370; 2510.18855",
    "lag-uncorrected": "2110.00641; 2505.24298, sec. 5; docs/explanation/off-policy.md",
    "setting-unread": "docs/how-to/write-a-study.md",
    "too-few-seeds": "simulation of the paired t",
    "sweep-one-start": "a false ratio in 17 to 22 % of sweeps",
    "no-primary": "one declared scalar decides",
    "tiny-benchmark": "2504.07086: 5 to 15 points of sd over evaluations",
    "margin-below-noise": "binomial error of a difference of two scores",
    "no-warmup": "pilot: first step's sigma_tok .61, later .02 to .28",
    "coarse-eval": "the time is known only between two evaluations",
}
WAIVABLE = tuple(ERRORS)

WIDE = 0.1
NARROW = 1e-2
SATURATED = 0.4
DETECTABLE = {3: 3.26, 4: 2.13}
"""Smallest effect at 80 % power in sd of the pair difference, by number of seeds, from
`stats.power`.
"""
PAPER_PRESETS = ("grpo", "gspo", "gspo-token")
LENGTH = "rollout.max_tokens"
"""A sweep of it is over the length of answers, and has no value at which runs collapse."""
OTHER_NAMES = {"dapo", "dr", "luspo", "token", "mean", "sum", "constant"}
"""Words in an arm's name for another aggregation than the paper's."""


@dataclass(frozen=True)
class Finding:
    """One line for the user. An error stops `check` and `run`."""

    level: Level
    name: str
    message: str
    source: str

    def __str__(self) -> str:
        return f"{self.level}: {self.name}: {self.message} [{self.source}]"


@dataclass(frozen=True)
class ModelFacts:
    """Facts that the study file does not state, by model, arm, benchmark or task; an absent one is
    unknown.

    `max_tokens` and `problems` come from the tasks. `grader_failures` has the error of a user's
    grader when it was tried.
    """

    moe: Mapping[str, bool] = field(default_factory=dict)
    max_tokens: Mapping[str, int] = field(default_factory=dict)
    problems: Mapping[str, int] = field(default_factory=dict)
    grader_failures: Mapping[str, str] = field(default_factory=dict)


def lints(study: Study, facts: ModelFacts | None = None) -> list[Finding]:
    """All findings, errors first. An error that the study waives is a warning."""
    facts = facts or ModelFacts()
    lines: list[tuple[str, str]] = []
    for lint, arm in product(OF_ARMS, study.arms.values()):
        lines += [(name, f"arm.{arm.name}: {message}") for name, message in lint(arm, facts)]
    for study_lint in OF_STUDIES:
        lines += study_lint(study, facts)
    errors = []
    warnings = []
    for name, message in lines:
        if name in ERRORS and name not in study.waived:
            errors.append(Finding("error", name, message, ERRORS[name]))
        else:
            reason = f"; waived: {study.waived[name]}" if name in ERRORS else ""
            warnings.append(Finding("warn", name, message + reason, {**ERRORS, **WARNINGS}[name]))
    return errors + warnings


def _range(arm: Arm, facts: ModelFacts) -> Lines:
    """A fixed clip range of the wrong size for the arm's ratio."""
    objective = arm.settings.objective
    if objective.clip != "fixed" or not _clips(arm):
        return
    low, high = objective.clip_range
    if _token(arm):
        if min(low, high) < NARROW:
            yield (
                "eps-too-narrow",
                f"a token ratio with a range of {min(low, high):g}, which is a sequence ratio's",
            )
        return
    if max(low, high) >= WIDE:
        yield (
            "eps-too-wide",
            (
                f"a sequence ratio with a range of {max(low, high):g} hardly ever clips (it is a"
                f" token ratio's); give a smaller {CLIP_KEYS}, or clip ="
                " 'calibrated'"
            ),
        )
    limit = arm.settings.rollout.max_tokens or facts.max_tokens.get(arm.name)
    predicted = 0.0 if limit is None else saturated_share(low, high, limit)
    if predicted > SATURATED:
        yield (
            "eps-too-narrow",
            (
                f"a sequence range of {low:g}/{high:g} will clip about {predicted:.2f} of the"
                f" active tokens on mini-batches >= 1 (at most {limit} tokens a response,"
                f" {LEAST_TOKEN_NOISE:g} nats each): its clip fraction says little; clip ="
                " 'calibrated' finds a range of this length"
            ),
        )


def _aggregation(arm: Arm, facts: ModelFacts) -> Lines:
    objective = arm.settings.objective
    aggregation = objective.aggregation
    constant = objective.aggregation_constant
    words = set(re.split(r"[-_.]", arm.name.lower()))
    if aggregation in ("token-mean", "constant") and _clips(arm):
        if not _token(arm):
            yield (
                "aggregation-label",
                f"a sequence ratio with aggregation = '{aggregation}' is not GSPO",
            )
        elif "grpo" in words and not words & OTHER_NAMES:
            name = "name the arm for what it is (dapo, dr-grpo, grpo-token-mean)"
            yield (
                "aggregation-label",
                f"aggregation = '{aggregation}' is not the paper's GRPO; {name}",
            )
    limit = arm.settings.rollout.max_tokens or facts.max_tokens.get(arm.name)
    if aggregation == "constant" and limit is not None and constant != limit:
        yield (
            "aggregation-constant",
            (
                f"aggregation_constant = {constant:g}, and an answer has at most {limit} tokens:"
                f" its gradient has {limit / constant:.3g} of the published size, which"
                f" max_grad_norm and kl_coef meet; give aggregation_constant = {limit}"
            ),
        )


def _other_settings(arm: Arm, facts: ModelFacts) -> Lines:
    settings = arm.settings
    objective = settings.objective
    rollout = settings.rollout
    update = settings.update
    if objective.kl_coef > 0 and objective.preset in PAPER_PRESETS:
        yield (
            "kl-not-zero",
            f"kl_coef = {objective.kl_coef:g}, but the paper's comparison has no KL term",
        )
    if settings.routing_replay != "none" and facts.moe.get(settings.model) is False:
        yield (
            "replay-on-dense",
            f"routing_replay on {settings.model}, a dense model: nothing is routed",
        )
    # A ratio to the sampler's log-probs already corrects the mismatch.
    corrected = objective.mismatch_correction != "none" or update.old_logprobs == "sampler"
    if rollout.dtype != update.dtype and not corrected and settings.routing_replay != "rollout":
        types = f"sampled in {rollout.dtype}, trained in {update.dtype}"
        yield "mismatch-uncorrected", f"{types}, and nothing corrects the mismatch"
    behind = [f"rollout.{key}" for key in ("staleness", "tokens_per_step") if getattr(rollout, key)]
    if behind and not corrected:
        yield (
            "lag-uncorrected",
            (
                f"{' and '.join(behind)} with old_logprobs = 'trainer' and no mismatch_correction:"
                " the ratio begins at 1 in every step, and nothing corrects for the older policy"
                " that drew the tokens"
            ),
        )
    if update.warmup_updates == 0 and settings.steps < 100:
        steps = f"{settings.steps} steps: Adam's first steps are sign-like"
        yield "no-warmup", f"no warm-up of the learning rate in {steps}"


def _replay(study: Study, facts: ModelFacts) -> Lines:
    routed = [arm for arm in study.arms.values() if facts.moe.get(arm.settings.model)]
    if routed and not any(
        "routing_replay" in {*arm.declared, *arm.settings.model_fields_set} for arm in routed
    ):
        choices = "'none', 'old-policy' or 'rollout'"
        yield (
            "replay-unspecified",
            f"a mixture of experts, and no arm says routing_replay = {choices}",
        )
    token = [arm for arm in routed if _token(arm)]
    if token and all(arm.settings.routing_replay != "none" for arm in token):
        yield (
            "replay-unspecified",
            "GRPO on a mixture of experts only with replay: show it without, too",
        )


def _unread(study: Study, facts: ModelFacts) -> Lines:
    """Values in the file that have no effect: in an arm's table, or shared and without effect in
    every arm.
    """
    lines: dict[str, list[str]] = {}
    for arm in study.arms.values():
        for key, value in _written_settings(arm).items():
            declared = under(key, arm.declared)
            why = unread(key, arm.settings)
            if why and (
                declared or all(unread(key, sibling.settings) for sibling in study.arms.values())
            ):
                lines.setdefault(
                    f"{key.removeprefix('objective.')} = {_text_of(value)} {why}", []
                ).append(arm.name)
    for line, names in lines.items():
        where = "" if len(names) == len(study.arms) else f"arm.{', arm.'.join(names)}: "
        yield "setting-unread", f"{where}{line}: leave it out, or change that"


def _written_settings(arm: Arm) -> JsonObject:
    """The settings that differ from the defaults and the preset, by dotted key."""
    preset = arm.settings.objective.preset
    plain = Settings.model_validate(
        {"task": {"name": ""}, "objective": PRESETS[preset].model_dump()}
    )
    usual = flat(plain.model_dump(mode="json"))
    return {key: value for key, value in arm.flat_settings.items() if value != usual.get(key)}


def _one_arm_only(study: Study, facts: ModelFacts) -> Lines:
    """A setting that differs between the two rules in all arms is confounded with the rule.

    Only presets of the two papers count: another paper's preset is compared as a whole.
    """
    paper = [
        arm
        for arm in study.arms.values()
        if arm.settings.objective.preset in PAPER_PRESETS and _clips(arm)
    ]
    pairs = list(product(filter(_token, paper), [arm for arm in paper if not _token(arm)]))
    compared = {
        "dual-clip-one-arm": "objective.dual_clip",
        "std-one-arm": "objective.advantage",
        "correction-one-arm": "objective.mismatch_correction",
        "mask-one-arm": "objective.off_policy_mask",
        "filter-one-arm": "rollout.dynamic_sampling",
    }
    values = {arm.name: arm.flat_settings for arm in paper}
    for name, key in compared.items():
        if pairs and all(values[a.name].get(key) != values[b.name].get(key) for a, b in pairs):
            values_text = ", ".join(
                f"{arm.name}: {_text_of(values[arm.name].get(key))}" for arm in pairs[0]
            )
            yield (
                name,
                (
                    "every token-level arm differs from every sequence-level arm in"
                    f" {key.removeprefix('objective.')} ({values_text}): the rules cannot be told"
                    " apart from it"
                ),
            )


def _seeds(study: Study, facts: ModelFacts) -> Lines:
    n = len(study.seeds)
    if n < 3:
        yield (
            "too-few-seeds",
            f"{counted(n, 'seed')}: no interval and no verdict; 3 are needed, 5 are better",
        )
    elif n in DETECTABLE:
        yield (
            "too-few-seeds",
            (
                f"{n} seeds detect a difference of {DETECTABLE[n]:g} sd of the pair difference (80"
                " % power), and are never called equivalent; 5 detect 1.68 and may be"
            ),
        )
    shared = any(
        arm.settings.embedded and not arm.settings.warm_start.per_seed
        for arm in study.arms.values()
    )
    if study.sweep is not None and study.sweep.key != LENGTH and shared:
        limit = "all seeds share one starting model, so a ratio of values holds for it alone"
        yield "sweep-one-start", f"warm_start: {limit}; set per_seed = true"


def _benchmarks(study: Study, facts: ModelFacts) -> Lines:
    settings = study.first_arm.settings
    primary = study.primary
    if primary is None:
        yield "no-primary", "no benchmark, so no primary score and no verdict"
    elif study.verdict.primary is None and len(settings.bench) > 1:
        count = len(settings.bench)
        yield (
            "no-primary",
            f"verdict.primary is not declared; {primary}, the first of {count} benchmarks, decides",
        )
    for bench in settings.bench:
        decides = primary is not None and bench.name == score_named(primary).bench
        evaluations = math.ceil(settings.steps / bench.every)
        if (
            decides
            and evaluations < 10
            and any(claim.name == "C14-more-efficient" for claim in study.claims)
        ):
            often = f"{bench.name} is evaluated {evaluations} times; use 10"
            yield "coarse-eval", f"C14-more-efficient reads a time to threshold, and {often}"
        problems = facts.problems.get(bench.name, bench.problems)
        if problems is None:
            continue
        samples = bench.decisive_samples or bench.samples
        if problems < 100 and samples < 8:
            few = f"{problems} problems x {samples} samples say little; use 100, or 8 samples"
            yield "tiny-benchmark", f"bench {bench.name}: {few}"
        if decides and len(study.seeds) >= 3:
            # Each deciding evaluation draws new answers, unless they are greedy.
            last = len(study.verdict.deciding(bench.moments(settings.steps)))
            answers = (
                problems * samples * (1 if bench.temperature == 0 else last) * len(study.seeds)
            )
            noise = 1.96 * math.sqrt(squared_weights(study.verdict.contrast) * 0.25 / answers)
            if study.verdict.margin < noise:
                yield (
                    "margin-below-noise",
                    (
                        f"verdict.margin = {study.verdict.margin:g} on {primary}: sampling"
                        f" {answers} answers per arm alone leaves ±{noise:.2g} on scores near one"
                        " half; more problems, samples or seeds, or a wider margin"
                    ),
                )


def _failing_graders(study: Study, facts: ModelFacts) -> Lines:
    for task, failure in facts.grader_failures.items():
        yield "grader-fails", f"task '{task}': its grader fails: {failure}"


OF_ARMS = (_range, _aggregation, _other_settings)
OF_STUDIES = (_replay, _unread, _one_arm_only, _seeds, _benchmarks, _failing_graders)


def _token(arm: Arm) -> bool:
    return arm.settings.objective.importance_sampling_level == "token"


def _clips(arm: Arm) -> bool:
    return arm.settings.objective.policy_loss == "clip"


def _text_of(value: Any) -> str:
    return "unset" if value is None else str(value)
