"""From numbers run by run to the series of a chart: every seed, and the mean of an arm's seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from gspo_lab.findings.training_curves import AXES, course
from gspo_lab.readings import Source
from gspo_lab.report.chart import Chart, Reference, Series, Value
from gspo_lab.report.titles import over_training
from gspo_lab.stats.arrays import Floats

MANY_RUNS = 40
"""From so many runs on, seeds are a range instead of lines: nobody tells them apart, and the page stays small."""

ENVELOPE = "The shaded range reaches from the lowest to the highest value of any seed"
MEAN = "Thin: one line per seed. Thick: their mean, drawn where every seed of the arm has a value."
MEAN_AND_RANGE = (
    "Line: the mean over the arm's seeds, drawn where every seed has a value. Shaded: from the lowest to the highest "
    "seed, instead of a line for each, for there are many."
)


def value(number: Any) -> Value:
    """A float, or None for what was not measured or is not finite."""
    if number is None or number is pd.NA or not math.isfinite(number):
        return None
    return float(number)


def groups(frame: pd.DataFrame, *columns: str) -> list[tuple[Any, pd.DataFrame]]:
    """The rows of each value of a column (of each tuple of several), in order."""
    return list(frame.groupby(columns[0] if len(columns) == 1 else list(columns), sort=True))


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows, one dictionary each."""
    return [{str(key): entry for key, entry in row.items()} for row in frame.to_dict("records")]


@dataclass(frozen=True)
class Points:
    """One run's line: `y` over `x`, NaN where not measured; an envelope and places on other axes where there are."""

    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    at: Mapping[str, Floats] = field(default_factory=dict)


def lines(arm: str, colour: int, seeds: Mapping[int, Points], *, thin: bool = False) -> tuple[Series, ...]:
    """One series per seed (where there are several), and their mean at every x that all seeds have.

    With `thin` there are no seeds' series but a range over them. Envelopes are drawn around the mean, over all seeds.
    """
    known = {seed: points for seed, points in sorted(seeds.items()) if np.isfinite(points.y).any()}
    if not known:
        return ()
    positions = np.unique(np.concatenate([one.x[np.isfinite(one.y)] for one in known.values()]))

    def placed(one: Points, column: Floats) -> Floats:
        out = np.full(len(positions), np.nan)
        there = np.isfinite(one.y)
        out[np.searchsorted(positions, one.x[there])] = column[there]
        return out

    x, heights = tuple(positions.tolist()), np.array([placed(one, one.y) for one in known.values()])
    at = {}
    for axis in AXES:
        if all(axis in one.at for one in known.values()):
            places = np.array([placed(one, one.at[axis]) for one in known.values()])
            if np.isfinite(places[np.isfinite(heights)]).all():
                at[axis] = places
    out = []
    if len(known) > 1 and not thin:
        for row, seed in enumerate(known):
            own = {axis: column(places[row]) for axis, places in at.items()}
            out.append(Series(arm, colour, x, column(heights[row]), seed=seed, at=own))
    low, high = _edges(known, placed, heights if thin and len(known) > 1 else None)
    means = {axis: column(places.mean(axis=0)) for axis, places in at.items()}
    out.append(Series(arm, colour, x, column(heights.mean(axis=0)), low=low, high=high, at=means))
    return tuple(out)


def _edges(
    seeds: Mapping[int, Points], placed: Any, heights: Floats | None
) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """The lowest and the highest of any seed; nothing where both are the same everywhere, or nothing was asked for."""
    if all(one.low is not None and one.high is not None for one in seeds.values()):
        lows = np.array([placed(one, one.low) for one in seeds.values()])
        highs = np.array([placed(one, one.high) for one in seeds.values()])
    elif heights is not None:
        lows = highs = heights
    else:
        return (), ()
    low, high = np.fmin.reduce(lows), np.fmax.reduce(highs)
    return ((), ()) if np.array_equal(low, high, equal_nan=True) else (column(low), column(high))


def column(values: Floats) -> tuple[Value, ...]:
    """An array as a chart's values: None for NaN."""
    return tuple(one if math.isfinite(one) else None for one in values.tolist())


def over_seeds(frame: pd.DataFrame, order: Sequence[str], x: str, y: str) -> tuple[Series, ...]:
    """`lines` of every arm from a frame that holds one row per arm, seed and x; axes of `AXES` may be columns too."""
    thin = len(frame[["arm", "seed"]].drop_duplicates()) >= MANY_RUNS
    out: list[Series] = []
    for colour, arm in enumerate(order):
        seeds = {}
        for seed, own in groups(frame[frame["arm"] == arm], "seed"):
            numbers = {name: own[name].to_numpy(dtype=np.float64) for name in (x, y, *AXES) if name in own.columns}
            at = {axis: numbers[axis] for axis in AXES if axis in numbers}
            seeds[int(seed)] = Points(numbers[x], numbers[y], at=at)
        out += lines(arm, colour, seeds, thin=thin)
    return tuple(out)


SECONDS = "device seconds"
UNEVEN = 1.2
"""Runs of one arm do the same work: where one took more than so many times as long for it as another, seconds tell of
what else the machine did, and are no axis."""


def axes(found: Source) -> tuple[dict[str, str], str]:
    """The axes of `AXES` that curves may be drawn against; and why one is missing, if it is."""
    apart = {}
    for arm in found.arms:
        paces = [
            pace for track in course(found).tracks if track.arm == arm and (pace := _pace(track.columns)) is not None
        ]
        if paces and max(paces) > UNEVEN * min(paces):
            apart[arm] = max(paces) / min(paces)
    if not apart:
        return dict(AXES), ""
    arm = max(apart, key=lambda name: apart[name])
    why = f"for the same work one run of {arm} took {apart[arm]:.1f} times as long as another."
    why = f"Device seconds are no axis here: {why}"
    return {axis: total for axis, total in AXES.items() if axis != SECONDS}, why


def _pace(columns: Mapping[str, Floats]) -> float | None:
    """Device seconds per FLOP, or per token where FLOPs were not counted, up to the last step that knows both."""
    seconds = columns[AXES[SECONDS]]
    for work in (columns[AXES["FLOPs"]], columns[AXES["response tokens"]]):
        known = np.flatnonzero(np.isfinite(seconds) & np.isfinite(work) & (work > 0) & (seconds > 0))
        if len(known):
            return float(seconds[known[-1]] / work[known[-1]])
    return None


def steps_of(found: Source) -> int:
    """The steps that the longest arm is planned to have; of imported runs those of the longest log."""
    if found.declaration.recorded is not None:
        return course(found).last + 1
    return max(arm.settings.steps for arm in found.declaration.arms.values())


def points(
    found: Source, metric: str, *, envelope: bool = False, compute: bool = False
) -> dict[str, dict[int, Points]]:
    """Per arm and seed one metric's course; with `compute` also its places on the axes of `AXES`."""
    out: dict[str, dict[int, Points]] = {arm: {} for arm in found.arms}
    places = axes(found)[0] if compute else {}
    for track in course(found).tracks:
        if track.arm in out:
            own = track.columns
            low, high = (own[f"{metric}.low"], own[f"{metric}.high"]) if envelope else (None, None)
            at = {axis: own[total] for axis, total in places.items()}
            out[track.arm][track.seed] = Points(track.x(metric), own[metric], low, high, at)
    return out


def curve(
    found: Source,
    metric: str,
    *,
    id: str,
    title: str,
    unit: str,
    note: str = "",
    log: bool = False,
    whole: bool = False,
    small: bool = False,
    envelope: bool = False,
    compute: bool = False,
    references: tuple[Reference, ...] = (),
) -> Chart:
    """One metric over the training steps: span means of every seed, and per arm their mean.

    `envelope` shades from the lowest to the highest single value (the metric must be one of `EXTREMES`); `compute` lets
    the chart be drawn against prompts, tokens, FLOPs and device seconds too; `references` are published values of it.
    """
    own = course(found)
    thin = len(own.tracks) >= MANY_RUNS
    drawn = points(found, metric, envelope=envelope, compute=compute)
    series = [one for colour, arm in enumerate(drawn) for one in lines(arm, colour, drawn[arm], thin=thin)]
    said = [note, MEAN_AND_RANGE if thin and not envelope and not small else "", own.note]
    if compute:
        said.append(axes(found)[1])
    if envelope and any(one.low for one in series):
        said.append(f"{ENVELOPE}.")
    told = " ".join(one for one in said if one)
    reach = (0.0, float(max(1, steps_of(found) - 1)))
    chart = Chart(id, title, "step", unit, tuple(series), log=log, note=told, small=small, whole=whole, reach=reach,
                  references=references)  # fmt: skip
    baseline = None if found.declaration.sweep is not None else found.declaration.baseline
    return replace(chart, finding=over_training(chart, baseline, times=log or whole))
