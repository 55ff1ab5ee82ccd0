"""A difference drawn over its margin: percentages of a column's width, which stand without a
script, on paper and in a mail."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gspo_lab.analysis.findings.run_outcomes import NOT_JUDGED, RunOutcome
from gspo_lab.analysis.stats import PairedT
from gspo_lab.common.plain_data import OptionalFloat
from gspo_lab.report.templating import between, signed


@dataclass(frozen=True)
class Drawing:
    """Dots, mean, interval and margin of one difference, on a scale from -reach to reach. Without
    an interval it has no margin either: dots inside a margin would look like equivalence."""

    arm: str
    reach: float
    estimate: OptionalFloat
    low: OptionalFloat
    high: OptionalFloat
    dots: Sequence[float]
    margin: OptionalFloat = None
    reason: str | None = None
    level: str = ""
    """The confidence of the interval where it is not the usual one: "97.5 %"."""

    @property
    def margin_width(self) -> str:
        """The width of the shaded margin."""
        return f"{100 * (self.margin or 0.0) / self.reach:.2f}%"

    def at(self, value: float) -> str:
        """Where a value stands."""
        return f"{50 + 50 * value / self.reach:.2f}%"

    @property
    def text(self) -> str:
        """Its numbers, which screen readers read in its place."""
        prefix = f"{self.level}: " if self.level else ""
        ends = between(self.low, self.high, self.reason or "no interval", self.margin)
        return f"{signed(self.estimate, self.low, self.high)} ({prefix}{ends})"


def drawing(paired: PairedT, arm: str, reach: float, margin: OptionalFloat) -> Drawing:
    """The drawing of a paired test."""
    return Drawing(
        arm,
        reach,
        paired.estimate,
        paired.low,
        paired.high,
        paired.differences,
        margin,
        paired.reason,
    )


def half_width(tests: Iterable[PairedT], *limits: OptionalFloat) -> float:
    """Half the width of the drawings of a column: all their values, and `more`, lie within."""
    values = list(limits)
    for test in tests:
        values += [test.low, test.high, *test.differences]
    return 1.05 * max((abs(value) for value in values if value is not None), default=0.0) or 1.0


def count_unstable(runs: Sequence[RunOutcome]) -> str:
    """How many runs were unstable, of those that could be judged."""
    judged = [run.unstable for run in runs if run.stability_judged]
    return f"{sum(judged)} of {len(judged)}" if judged else NOT_JUDGED
