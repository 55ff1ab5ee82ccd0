"""Where a line's points are shown one by one, and where it ends or breaks."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from gspo_lab.report.chart import Chart, Series, Value

FEW = 12
"""A line of so many points or fewer shows where they are."""

GAP = "gap"
"""The role of the traces that mark ends and breaks."""

MARKED = "×: here a line ends before its study does, or breaks: what follows was not measured, or is no finite number."


class Gap(NamedTuple):
    """The last point before values are missing, by its place in the series, and what is said of it."""

    last: int
    said: str


def dots(values: Sequence[Value]) -> list[bool]:
    """Which points of a line are marked: all of few, and any that no line reaches."""
    known = [value is not None for value in values]
    if sum(known) <= FEW:
        return known
    around = zip([False, *known], known, [*known[1:], False], strict=False)
    return [here and not before and not after for before, here, after in around]


def gaps(chart: Chart, series: Series) -> list[Gap]:
    """Where a run's values stop before the study's last step, or leave some out; a mean is asked only where it stands
    for runs that are not drawn. Charts over anything but the study's steps have none."""
    if chart.reach is None or len(series.x) < 2 or (series.seed is None and series.label in chart.drawn_alone):
        return []
    x = [float(one) for one in series.x]
    known = [i for i, y in enumerate(series.y) if y is not None]
    holes = [(a, b) for a, b in itertools.pairwise(known) if b > a + 1]
    out = [Gap(a, f"no value between {chart.x_title} {x[a]:g} and {x[b]:g}") for a, b in holes]
    stride = max(b - a for a, b in itertools.pairwise(x))
    if known and (known[-1] < len(x) - 1 or x[known[-1]] + 1.5 * stride < chart.reach[1]):
        out.append(Gap(known[-1], f"no value after {chart.x_title} {x[known[-1]]:g}"))
    return out
