"""Reasons and notes of verdicts in English: one entry per code."""

from collections.abc import Callable, Iterable, Sequence

from gspo_lab.stats.power import LEAST_FOR_EQUIVALENCE
from gspo_lab.stats.verdict import Reason, Verdict, Word
from gspo_lab.words.claim_reasons import CLAIMS
from gspo_lab.words.labels import label
from gspo_lab.words.text import MINUS, capital, counted, listed, signed

FORMER = "the rule of version 0.1"
"""It judged each arm by its own plain interval, from three pairs on."""


def _shared(arms: int, looks: int, level: float, alpha: float) -> str:
    shared = [f"{arms} arms"] * (arms > 1) + [f"{looks} declared looks"] * (looks > 1)
    return f"{' and '.join(shared)} share alpha = {alpha:g}: the verdict needs p < {level:.3g}"


def _formerly(word: Word, few: bool) -> str:
    why = f"fewer than {LEAST_FOR_EQUIVALENCE} pairs" if few else "the spread, arms and looks counted in"
    return f"{why}: under {FORMER} this read '{word}'"


def _uneven(counts: str, subject: str, baseline: str, more: tuple[int, int], p: float) -> str:
    return (
        f"more answers of one arm could not be graded, beyond chance ({counts}; the larger share is {subject}'s on "
        f"{more[1]} problems and {baseline}'s on {more[0]}, p = {p:.2g})"
    )


def _ungraded(counts: str, left_out: Verdict, counted_wrong: Verdict) -> str:
    return (
        f"answers that could not be graded ({counts}) decide: left out it reads '{label(left_out)}', counted as "
        f"incorrect '{label(counted_wrong)}'"
    )


def _incomplete(running: bool, complete: int, planned: int) -> str:
    why = "the study is still running" if running else "runs are missing"
    return f"{why}, {complete} of {planned} pairs are complete"


def _not_counted(seeds: Sequence[int], runs: int) -> str:
    return f"not counted: {counted(runs, 'run')} of other seeds ({', '.join(map(str, seeds))})"


def _other_pairs(arm: str, baseline: str, seeds: Sequence[int], mean: float) -> str:
    pairs = f"{counted(len(seeds), 'pair')} of other seeds ({', '.join(map(str, seeds))})"
    return f"not counted: {pairs}, {arm} {MINUS} {baseline} {signed(mean)}"


SAY: dict[str, Callable[..., str]] = {
    **CLAIMS,
    "not matched": lambda why: why,
    "pairs incomplete": _incomplete,
    "stopped before it": lambda arm: f"{arm}, which the declared order tests before it, is inconclusive",
    "nothing unstable opposite": (
        lambda steady, falling: f"{steady} drops less from its best, but no run of {falling} was unstable"
    ),
    "more unstable runs": lambda steady: f"{steady} drops less from its best, but more of its runs were unstable",
    "final score may be worse": (
        lambda steady: f"{steady} drops less from its best, but its final score may be worse by more than the margin"
    ),
    "ungraded answers are uneven": _uneven,
    "ungraded answers decide": _ungraded,
    "one seed turns the sign": lambda: "leaving out one seed turns the sign of the difference",
    "a difference within the margin": (
        lambda: "the interval excludes 0: there is a difference, and it is smaller than the margin"
    ),
    "pairing did not help": (lambda: "pairing by seed did not help: the arms are not positively correlated over seeds"),
    "alpha is shared": _shared,
    "no answers stored": (lambda: "no answers are stored: the sampling sd is not known, and no part of the interval"),
    "reads otherwise alone": lambda word, level: (
        f"this interval alone reads '{word}', but with arms and looks counted in that must pass p < {level:.3g}"
    ),
    "read otherwise in version 0.1": _formerly,
    "checkpoint": lambda models: f" starting from {listed(models)}",
    "one starting model": lambda: " on this one starting model",
    "these starting models": lambda: " on these starting models",
    "not counted": _not_counted,
    "not counted pairs": _other_pairs,
    "trials": lambda of: f"no verdict: these are the trials on which the arms of {of} chose",
    "no benchmark": (
        lambda: "no verdict: the study declares no benchmark, so the score that would decide is not measured"
    ),
    "one arm": lambda arm: f"no verdict: {arm} is the only arm, so there is nothing to compare it with",
}


def say(reason: Reason) -> str:
    """One reason, without a capital and a full stop."""
    return SAY[reason.code](**reason.data)


def sentences(reasons: Iterable[Reason]) -> list[str]:
    """Each of them as a sentence."""
    return [f"{capital(say(reason))}." for reason in reasons]
