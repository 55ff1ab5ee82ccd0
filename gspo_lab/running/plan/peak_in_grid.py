"""The swept values that `[verdict] over` needs, known before a study runs only from earlier runs
like it: whether they can hold the peaks, and a grid from below the peaks to beyond the fall.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from gspo_lab.analysis.readings import average
from gspo_lab.analysis.stats.peaks import peak_places, ranges_near_peak
from gspo_lab.common.plain_data import Strings
from gspo_lab.common.text import listed
from gspo_lab.running.plan.detectable_effect import earlier_scores
from gspo_lab.study import Study, flat
from gspo_lab.study.dotted_keys import alike_but

BEYOND = 2
"""Values of a proposed grid on either side of the ranges near the peaks: the second shows the
fall.
"""
ROUNDING = 1e-9
"""Logarithms that differ by less are of one value."""

Curve = Mapping[float, float]
"""Per value of the swept setting the mean final score of earlier runs."""


@dataclass(frozen=True)
class Grid:
    """Values of the swept setting that earlier runs of `studies` propose.

    `peaks` has the value at each rule's peak.
    """

    key: str
    values: tuple[float, ...]
    peaks: dict[str, float]
    studies: Strings

    def line(self) -> str:
        """One line for people, whose end can be pasted into `[sweep]`."""
        peaks = ", ".join(f"{arm} {value:.2g}" for arm, value in self.peaks.items())
        origin = f"proposed by {listed(self.studies)}, peaks at {peaks}"
        return f"values to sweep, {origin}: {self.key} = {list(self.values)}"


def earlier_curves(study: Study, runs: Path) -> tuple[dict[str, Curve], list[str]]:
    """Per rule its curve in earlier runs that differ from its arms in the swept key alone, and the
    studies of these runs; both empty without `[verdict] over`.
    """
    sweep = study.sweep
    if sweep is None or study.verdict.over is None:
        return {}, []
    families = {str(arm.of): arm for arm in study.arms.values() if arm.dose is not None}
    scores: dict[str, dict[float, list[float]]] = {family: {} for family in families}
    names: dict[str, None] = {}
    for source, finals in earlier_scores(study, runs):
        for name, by_seed in finals.items():
            settings = source.declaration.arms[name].settings.model_dump(mode="json")
            value = flat(settings).get(sweep.key)
            if not isinstance(value, int | float) or value <= 0:
                continue
            for family, arm in families.items():
                if alike_but(settings, arm.settings.model_dump(mode="json"), [sweep.key]):
                    scores[family].setdefault(float(value), []).extend(by_seed.values())
                    names[source.study] = None
    curves: dict[str, Curve] = {}
    for family, by_value in scores.items():
        if len(by_value) > 1:
            means = {value: average(finals) or 0.0 for value, finals in by_value.items()}
            curves[family] = dict(sorted(means.items()))
    return curves, list(names)


def peak_warnings(study: Study, curves: Mapping[str, Curve], names: list[str]) -> Iterator[str]:
    """One line for each rule whose peak earlier runs place at an end of the values or beyond."""
    for family, means in curves.items():
        assert study.sweep is not None
        key = study.sweep.key
        values = sorted(study.sweep.doses)
        best = max(means, key=means.__getitem__)
        if values[0] < best < values[-1]:
            continue
        side = "below" if best <= values[0] else "above"
        place = "an end of" if best in values else "outside"
        yield (
            f"warning: the values of {key} may hold no peak of {family}: in earlier runs"
            f" ({listed(names)}) it scored highest at {best:g}, {place} {values[0]:g} to"
            f" {values[-1]:g}; add values {side} {best:g}"
        )


def proposed_grid(study: Study, curves: Mapping[str, Curve], names: list[str]) -> Grid | None:
    """The values 1, 2 and 5 times powers of ten from `BEYOND` below the ranges near the peaks to as
    many above them; None without a curve.

    A range that reaches an end of the earlier values is cut there, so that the grid goes further.
    """
    ends = []
    peaks = {}
    for family, means in curves.items():
        values = np.array(list(means))
        scores_1D = np.array([list(means.values())])
        ends.append(ranges_near_peak(scores_1D, values, study.verdict.margin)[0])
        peaks[family] = math.exp(peak_places(scores_1D, values)[0])
    if study.sweep is None or not ends:
        return None
    series = [float(f"{digit}e{power}") for power, digit in product(range(-12, 13), (1, 2, 5))]
    first = np.searchsorted(np.log(series), np.min(ends) - ROUNDING) - BEYOND
    last = np.searchsorted(np.log(series), np.max(ends) + ROUNDING) + BEYOND
    grid = series[first:last]
    key = study.sweep.key
    if isinstance(next(iter(study.arms.values())).flat_settings[key], int):
        grid = [int(value) for value in grid if value >= 1]
    return Grid(key, tuple(grid), peaks, tuple(names))
