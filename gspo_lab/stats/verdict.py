"""The decision: what the evidence lets one say about two matched arms.

`decide` is the only code that gives a study its word. `calibration.py` puts this very function through thousands of
studies in which nothing differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from gspo_lab.errors import LabError
from gspo_lab.stats.arrays import finite, same_length
from gspo_lab.stats.paired import (
    LEAST_SEEDS,
    LeaveOneOut,
    PairedT,
    Pairing,
    SignCount,
    leave_one_out,
    paired_t,
    pairing,
    sign_count,
)
from gspo_lab.stats.power import detectable_factor, seeds_for_equivalence, seeds_needed

Word = Literal[
    "better beyond margin",
    "practically equivalent",
    "better, size not resolved against the margin",
    "not resolved",
    "withheld",
]


def word_for(low: float, high: float, margin: float) -> Word:
    """First match: interval beyond +-margin; inside it, also when it excludes 0; excluding 0; else not resolved."""
    if low > margin or high < -margin:
        return "better beyond margin"
    if -margin < low and high < margin:
        return "practically equivalent"
    if low > 0 or high < 0:
        return "better, size not resolved against the margin"
    return "not resolved"


@dataclass(frozen=True)
class Verdict:
    """The word, and everything that a reader needs to doubt it.

    Differences are second label minus first. `better` names the arm that "better" is said of, else None.
    `smallest_detectable` is the true difference that n seeds detect with chance `power` at the observed sd. Unknown is
    None.
    """

    word: Word
    reason: str | None
    better: str | None
    labels: tuple[str, str]
    margin: float
    alpha: float
    power: float
    paired: PairedT
    leave_one_out: LeaveOneOut | None
    sign: SignCount
    pairing: Pairing
    smallest_detectable: float | None
    notes: tuple[str, ...]
    unproven: tuple[str, ...] = ()
    """What should prove that the runs are pairs, and was not recorded of all of them."""

    @property
    def flips(self) -> bool:
        """Whether leaving out one seed turns the sign of the difference; the headline then says so."""
        return self.leave_one_out is not None and self.leave_one_out.flips

    @property
    def seeds_for_margin(self) -> int | None:
        """Seeds in all that would detect a true difference as large as the margin at the observed sd; None: unknown."""
        sd = self.paired.sd
        return seeds_needed(sd, self.margin, self.alpha, self.power) if sd else None

    @property
    def seeds_for_equivalence(self) -> int | None:
        """Seeds in all that would show equivalence if nothing differs, at the observed sd; None: unknown."""
        sd = self.paired.sd
        return seeds_for_equivalence(sd, self.margin, self.alpha, self.power) if sd else None

    @property
    def more_seeds(self) -> int | None:
        """Seeds still missing to settle the question either way: a difference of the margin, or none. None: unknown.

        0 beside "not resolved": n should do, but the draw was unlucky or the true difference is near 0 or the margin.
        """
        needed = (self.seeds_for_margin, self.seeds_for_equivalence)
        if needed[0] is None or needed[1] is None:
            return None
        return max(0, max(needed[0], needed[1]) - self.paired.n)

    @property
    def sentence(self) -> str:
        """The headline in words, without numbers."""
        first, second = self.labels
        if self.word == "withheld":
            said = f"No verdict on {second} against {first}: {self.reason}."
        elif self.word == "practically equivalent":
            said = f"{second} and {first} are practically equivalent."
        elif self.word == "not resolved":
            said = f"Whether {second} or {first} is better is not resolved."
        else:
            other = first if self.better == second else second
            said = f"{self.better} is {self.word.replace('better', f'better than {other}', 1)}."
        if self.flips:
            said += " Leaving out one seed turns the sign."
        if self.unproven:
            said += f" The pairs are taken on trust: {', '.join(self.unproven)} not recorded everywhere."
        return said


def decide(
    y_a: ArrayLike,
    y_b: ArrayLike,
    margin: float,
    alpha: float = 0.05,
    labels: tuple[str, str] = ("a", "b"),
    *,
    power: float = 0.8,
    withheld_because: Sequence[str] = (),
    unproven: Sequence[str] = (),
) -> Verdict:
    """Judge arm b against arm a (the baseline) from one declared scalar per run, in the same order of seeds.

    d_s = y_b,s - y_a,s; the 1 - alpha paired t interval against +-margin gives the word. No word, but "withheld",
    for what the caller knows (`withheld_because`: certificate mismatch, runs missing), for n < 3 and for
    differences without any spread. `unproven` lowers no word; the sentence says it. LabError for missing values:
    collapsed runs are carried or imputed before, never dropped. With declared looks at growing data, give alpha
    divided by their number.
    """
    a, b = finite(y_a, labels[0]), finite(y_b, labels[1])
    same_length(a, b, f"{labels[0]} and {labels[1]}")
    if not margin > 0:
        raise LabError(f"margin is {margin}; without a margin above 0 nothing can be called equivalent")
    scale = float(max(np.abs(a).max(), np.abs(b).max())) if len(a) else 0.0
    paired = paired_t(b - a, alpha, scale=scale)
    dropped = leave_one_out(b - a)

    word: Word = "withheld"
    reasons = [*withheld_because, *([paired.reason] if paired.reason else [])]
    better: str | None = None
    if paired.low is not None and paired.high is not None and not withheld_because:
        word = word_for(paired.low, paired.high, margin)
        if word.startswith("better"):
            better = labels[1] if paired.low > 0 else labels[0]

    detectable = None
    if paired.sd and paired.n >= LEAST_SEEDS:
        detectable = detectable_factor(paired.n, alpha, power) * paired.sd
    together = pairing(a, b)
    return Verdict(
        word=word,
        reason="; ".join(reasons) or None,
        better=better,
        labels=labels,
        margin=margin,
        alpha=alpha,
        power=power,
        paired=paired,
        leave_one_out=dropped,
        sign=sign_count(b - a),
        pairing=together,
        smallest_detectable=detectable,
        notes=_notes(word, paired, dropped, together),
        unproven=tuple(unproven),
    )


def _notes(word: Word, paired: PairedT, dropped: LeaveOneOut | None, together: Pairing) -> tuple[str, ...]:
    notes = []
    if dropped is not None and dropped.flips:
        notes.append("leaving out one seed turns the sign of the difference")
    if word == "practically equivalent" and paired.p is not None and paired.p < paired.alpha:
        notes.append("the interval excludes 0: there is a difference, and it is smaller than the margin")
    if together.r is not None and not together.helped:
        notes.append("pairing by seed did not help: the arms are not positively correlated over seeds")
    return tuple(notes)
