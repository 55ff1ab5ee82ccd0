"""Reasons and notes of verdicts in English: one entry per code."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from gspo_lab.analysis.stats.verdict import NO_INTERVAL, Reason, Verdict, VerdictLabel
from gspo_lab.common.text import MINUS, capital, counted, listed, signed
from gspo_lab.study.claim_validation import CLAIM_ROLES


def _other_pairs(arm: str, baseline: str, seeds: Sequence[int], mean: float) -> str:
    pairs = f"{counted(len(seeds), 'pair')} of other seeds ({', '.join(map(str, seeds))})"
    return f"not counted: {pairs}, {arm} {MINUS} {baseline} {signed(mean)}"


def _ratio(seed: int, values: Mapping[str, float]) -> str:
    (arm, value), *more = values.items()
    text = " and ".join([f"{arm} has {value:g}", *(f"{name} {number:g}" for name, number in more)])
    return f"a ratio needs values above 0; at seed {seed} {text}"


def _unstable(counts: Mapping[str, tuple[int, int]]) -> str:
    text = ", ".join(f"{arm} {count} of {judged}" for arm, (count, judged) in counts.items())
    return (
        f"unstable runs: {text}; where runs are unstable, a claim's error rate is above alpha"
        " (gspo-lab certify --rule)"
    )


def _warm_up(arm: str, steps: int, planned: int, later: bool) -> str:
    after = " and minibatch >= 1" if later else ""
    return (
        f"{arm} has no update after the learning rate's warm-up{after}: {steps} of {planned} steps"
        " warm up"
    )


def _shared_alpha(arms: int, looks: int, level: float, alpha: float) -> str:
    sharers = []
    if arms > 1:
        sharers.append(f"{arms} arms")
    if looks > 1:
        sharers.append(f"{looks} declared looks")
    return f"{' and '.join(sharers)} share alpha = {alpha:g}: the verdict needs p < {level:.3g}"


SAY: dict[str, Callable[..., str] | str] = {
    "not matched": "{why}",
    "pairs incomplete": lambda running, complete, planned: (
        f"{'the study is still running' if running else 'runs are missing'}, {complete} of"
        f" {planned} pairs are complete"
    ),
    "stopped before it": "{arm}, which the declared order tests before it, is inconclusive",
    "nothing unstable opposite": (
        "{steady} drops less from its best, but no run of {falling} was unstable"
    ),
    "more unstable runs": "{steady} drops less from its best, but more of its runs were unstable",
    "final score may be worse": (
        "{steady} drops less from its best, but its final score may be worse by more than the"
        " margin"
    ),
    "ungraded answers are uneven": (
        "more answers of one arm could not be graded, beyond chance ({counts}; the larger share is"
        " {subject}'s on {more[1]} problems and {baseline}'s on {more[0]}, p = {p:.2g})"
    ),
    "ungraded answers decide": lambda counts, left_out, counted_wrong: (
        f"answers that could not be graded ({counts}) decide: left out it reads"
        f" '{label(left_out)}', counted as incorrect '{label(counted_wrong)}'"
    ),
    "one seed turns the sign": "leaving out one seed turns the sign of the difference",
    "a difference within the margin": (
        "the interval excludes 0: there is a difference, and it is smaller than the margin"
    ),
    "pairing did not help": (
        "pairing by seed did not help: the arms are not positively correlated over seeds"
    ),
    "alpha is shared": _shared_alpha,
    "no answers stored": (
        "no answers are stored: the sampling sd is not known, and no part of the interval"
    ),
    "reads otherwise alone": (
        "this interval alone reads '{word}', but with arms and looks counted in that must pass p <"
        " {level:.3g}"
    ),
    "few pairs": "fewer than {least} pairs: this interval alone would read '{word}'",
    "checkpoint": lambda models: f" starting from {listed(models)}",
    "one starting model": " on this one starting model",
    "these starting models": " on these starting models",
    "no clip fraction": lambda **data: (
        f"the clip fraction is not measured: {_warm_up(**data, later=False)}"
    ),
    "not counted": lambda seeds, runs: (
        f"not counted: {counted(runs, 'run')} of other seeds ({', '.join(map(str, seeds))})"
    ),
    "not counted pairs": _other_pairs,
    "trials": "no verdict: these are the trials on which the arms of {of} chose",
    "no benchmark": (
        "no verdict: the study declares no benchmark, so the score that would decide is not"
        " measured"
    ),
    "no baseline": (
        "no verdict: {arm}, the declared baseline, is not among the arms of these runs, so there"
        " is nothing to compare them with"
    ),
    "one arm": "no verdict: {arm} is the only arm, so there is nothing to compare it with",
    # Of claims.
    "untested": "no study here tests it: {why}",
    "no mixture": "no arm has a mixture of experts: no expert choice was recorded in any of them",
    "no arm plays": lambda roles: (
        "no arm plays "
        + ", ".join(f"{role} ({CLAIM_ROLES.get(role, 'name it under arms')})" for role in roles)
    ),
    "few seeds": "{count} seeds finished in every arm it needs; {least} are needed",
    "few updates": "{arm} makes {count} updates per rollout batch; {least} are needed",
    "dense model": "{arm} recorded no expert choices: {model} is dense",
    "the sampler's log-probs": (
        "{arm} takes the sampler's log-probs as the old policy's, so mini-batch 0 may clip"
    ),
    "another aggregation": "{arm} aggregates by {aggregation}, not by seq-mean-token-mean",
    "a dual clip": "{arm} has a dual clip at {bound:g}",
    "other first rollouts": lambda roles, seed: (
        f"the first rollouts of {' and '.join(roles)} differ at seed {seed}"
    ),
    "the paper's range": (
        "{arm} has the paper's range 3e-4/4e-4, tuned for thousands of tokens, on responses of"
        " {length:.3g}; use clip = 'calibrated' or a range of its own"
    ),
    "routing hardly moves": (
        "routing hardly moves: {share:.3g} of {arm}'s experts change by the last mini-batch;"
        " {least:g} are needed"
    ),
    "no unstable runs": lambda arms, judged: (
        f"stability cannot be compared: 0 of {judged} judged runs of {', '.join(arms)} were"
        " unstable"
    ),
    "a collapse": "{arm}, seed {seed}, collapsed at step {step} ({cause})",
    "no reward margin": (
        "the study declares no verdict.reward_margin: nothing says which training rewards are as"
        " good as equal"
    ),
    "the same numerics": (
        "{arm} samples with the trainer's own engine and precision ({dtype}); its mismatch_k3 is"
        " {mismatch:.2g}"
    ),
    "unknown setting": "{arm}: {key} was not recorded",
    "not recorded": "{metric} was not recorded in {arm}, seed {seed}",
    "too short to fit": (
        "{arm}, seed {seed}: {evaluations} evaluations after the start show too little of the curve"
        " for an asymptote; {least} are needed, the last of them near its end"
    ),
    "never finite": "{metric} is finite at no step of {arm}, seed {seed}",
    "not finite": lambda metric, arms, seed: (
        f"{metric} is not finite in {' or '.join(arms)}, seed {seed}"
    ),
    "only the warm-up": _warm_up,
    "no benchmark for a score": "the study declares no benchmark, so there is no score",
    "not evaluated": "{bench} was not evaluated {when} the start of {arm}, seed {seed}",
    "nothing clipped": "neither arm clipped a token at seed {seed}",
    "a ratio of nothing": _ratio,
    "no advantage": (
        "no response of any seed's first {first} had an advantage: the gradients compared are 0"
    ),
    "other mini-batches": lambda counts: (
        f"rollout batches are split into {' and '.join(map(str, counts))} mini-batches: the first"
        " update is of other responses"
    ),
    "ungraded answers decide a claim": lambda left_out, counted_wrong: (
        f"answers that could not be graded decide: left out it is {left_out or 'inconclusive'},"
        f" counted as incorrect {counted_wrong or 'inconclusive'}"
    ),
    "broken": lambda part, bug: (
        f"{'this is a bug: ' * bug}{part.name} is {part.estimate:.3g}, {part.criterion} is required"
    ),
    "the other side": lambda parts: (
        f"the whole interval lies on the other side: {', '.join(parts)}"
    ),
    "in every run": "in every run",
    "the stated side": "the whole interval lies on the stated side",
    "alone it would be": "the interval alone would be {side}",
    "both sides": "the interval covers both sides",
    "no interval decides": "no interval decides",
    "could have seen": lambda name, ratio, detectable: (
        f"{name}: these seeds could have seen a {'factor' if ratio else 'difference'} of"
        f" {detectable:.3g}"
    ),
    "neither side": "{name} is on neither side",
    "Holm's rule": "Holm's rule over the declared claims takes p from {p:.3g} to {adjusted:.3g}",
    "support lacks": lambda reason: (
        f"support would also have needed what is lacking here: {reason_text(reason)}"
    ),
    "of a number": lambda name, reason: f"{name}: {reason_text(reason)}",
    "beside it": "{name}, which decides nothing, is not met ({criterion})",
    "unstable runs beside a claim": _unstable,
    NO_INTERVAL: "{why}",
    "broken in": lambda runs: f"broken in {', '.join(runs)}",
    "collapses": "{replayed} of {runs} runs collapsed with replay, {without} of {runs} without",
    "prompts needed": (
        "mean over seeds: {gspo:.4g} against {grpo:.4g} prompts (half of the common gain)"
    ),
    "within the margin": (
        "equivalent within the margin: the whole interval lies inside the margin ±{margin:g}"
    ),
    "a ceiling": (
        "{arm} is saturated: it clips {share:.3f} of the active tokens on mini-batches >= 1, so its"
        " cf is a ceiling and the ratio measures the other arm's"
    ),
    "a lower bound": lambda arm, seeds: (
        f"{arm} clipped no token at seed {', '.join(map(str, seeds))}: one token is assumed, so the"
        " ratio is a lower bound there"
    ),
    "few layers": (
        "direction only: the magnitude .05 to .15 is not testable here, the model has {layers}"
        " routed layers and about {least} are needed"
    ),
    "one learning rate": (
        "one learning rate per arm: whether it rises with the learning rate is not judged"
    ),
    "note": "{text}",
}


def fill(text: Callable[..., str] | str, reason: Reason) -> str:
    """A template, or a function, with the reason's data."""
    return text.format(**reason.data) if isinstance(text, str) else text(**reason.data)


def reason_text(reason: Reason) -> str:
    """One reason, without a capital and a full stop."""
    return fill(SAY[reason.code], reason)


def sentences(reasons: Iterable[Reason]) -> list[str]:
    """Each of them as a sentence."""
    return [f"{capital(reason_text(reason))}." for reason in reasons]


Tone = Literal["decided", "leaning", "worse", "open", "missing"]

SHORT: dict[VerdictLabel, str] = {
    "better beyond margin": "{better} by more than the margin",
    "practically equivalent": "equivalent within the margin",
    "better, size not resolved against the margin": "{better}, not shown to exceed the margin",
    "as stable": "equally stable",
    "not resolved": "inconclusive",
    "withheld": "no verdict",
}
"""The words that read otherwise than their codes."""

APART: dict[VerdictLabel, str] = {
    "better beyond margin": "{better} than {second} by more than the margin{about}",
    "better, size not resolved against the margin": (
        "{better} than {second}{about}, not shown to exceed the margin"
    ),
    "more stable": "more stable than {second}{about}",
    "less stable": "less stable than {second}{about}",
}
ALIKE: dict[VerdictLabel, str] = {
    "practically equivalent": "equivalent within the margin",
    "as stable": "equally stable",
}


def better(verdict: Verdict) -> str:
    """The comparative that its direction asks for."""
    return "worse" if verdict.direction < 0 else "better"


def short(verdict: Verdict) -> str:
    """The verdict's word for people, to stand beside its subject."""
    return SHORT.get(verdict.word, verdict.word).format(better=better(verdict))


def tone(verdict: Verdict) -> Tone:
    """How the word looks: never green where it speaks against its subject."""
    if verdict.word == "not testable here":
        return "missing"
    if not verdict.resolved:
        return "open"
    if verdict.direction < 0:
        return "worse"
    return (
        "leaning" if verdict.word == "better, size not resolved against the margin" else "decided"
    )


def label(verdict: Verdict) -> str:
    """Subject, baseline and word, without a verb."""
    subject = verdict.subject
    baseline = verdict.baseline
    if baseline is None:
        return f"{subject} {short(verdict)}"
    if verdict.word in APART:
        return (
            f"{subject}"
            f" {APART[verdict.word].format(better=better(verdict), second=baseline, about='')}"
        )
    if verdict.word in ALIKE:
        return f"{subject} and {baseline} {ALIKE[verdict.word]}"
    return f"{subject} against {baseline}: {short(verdict)}"
