"""From numbers run by run to the series of a chart: every seed, and the mean of an arm's seeds with
its band.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from gspo_lab.analysis.findings.training_curves import AXES, course
from gspo_lab.analysis.readings import (
    Reading,
    Source,
    Steps,
    Window,
    average,
    by_minibatch,
    once,
    read,
    runs,
)
from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.analysis.stats.curve_summaries import mean_of_runs
from gspo_lab.analysis.stats.paired import pointwise_t
from gspo_lab.common.plain_data import JsonMapping, OptionalFloat
from gspo_lab.report.chart import Chart, Series
from gspo_lab.study.contrast import side_names, sides

MANY_RUNS = 40
"""From so many runs on no line is drawn for a seed: nobody tells them apart, and the page stays
small.
"""

DRAWN = (
    "Faint: seeds. Thick: their mean, where every seed has a value. Shaded: from the lowest seed to"
    " the highest."
)
DOTS = "Small dots: seeds. Diamonds: their mean."

SECONDS = "device seconds"
UNEVEN = 1.2
"""Runs of one arm do the same work. Where one took more than so many times as long for it as
another, seconds depend on what else the machine did, and are not offered as an axis."""


def value(number: Any) -> OptionalFloat:
    """A float, or None for what was not measured or is not finite."""
    return None if number is None or not math.isfinite(number) else float(number)


@dataclass(frozen=True)
class Points:
    """One run's line: `y` over `x`, NaN where not measured.

    It may have an envelope, and places on other axes."""

    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    positions: Mapping[str, Floats] = field(default_factory=dict)


PointsByRun = dict[str, dict[int, Points]]
"""Arm -> seed -> points."""
ByRun = Mapping[str, Mapping[int, Points]]
"""Arm -> seed -> its line."""


def column(values: Floats) -> tuple[OptionalFloat, ...]:
    """An array as a chart's values: None for NaN."""
    return tuple(entry if math.isfinite(entry) else None for entry in values.tolist())


def sides_of(study: Source, by_run: ByRun) -> ByRun:
    """The two sides of the declared contrast by their names, the negative one first; empty where
    none is declared.
    """
    rule = study.declaration.verdict
    if rule.contrast is None:
        return {}
    return dict(
        zip(
            side_names(rule),
            (_weighted(by_run, side) for side in sides(rule.contrast)),
            strict=True,
        )
    )


def _weighted(by_run: ByRun, weights: Mapping[str, float]) -> dict[int, Points]:
    """Seed by seed the weighted mean of arms, at the places that all of them have."""
    out = {}
    for seed in sorted(set.intersection(*(set(by_run.get(arm, {})) for arm in weights))):
        runs_ = [by_run[arm][seed] for arm in weights]
        shares = np.array(list(weights.values()))
        (x, heights) = aligned(runs_)
        complete = np.isfinite(heights).all(axis=0)
        positions = {axis: shares @ places[:, complete] for axis, places in on_axes(runs_).items()}
        out[seed] = Points(x[complete], shares @ heights[:, complete], positions=positions)
    return out


def aligned(runs_: Sequence[Points], name: str = "y") -> tuple[Floats, Floats]:
    """Every x at which a run has a `y`, and a row per run of its `y`, an end of its envelope or an
    axis there.
    """
    finite = [np.isfinite(run.y) for run in runs_]
    positions = np.unique(
        np.concatenate([run.x[mask] for run, mask in zip(runs_, finite, strict=True)])
    )
    out = np.full((len(runs_), len(positions)), np.nan)
    for row, run, mask in zip(out, runs_, finite, strict=True):
        values = run.positions[name] if name in run.positions else getattr(run, name)
        row[np.searchsorted(positions, run.x[mask])] = values[mask]
    return positions, out


def on_axes(runs_: Sequence[Points]) -> dict[str, Floats]:
    """Each axis that all runs have, with the runs' values at common places."""
    return {
        axis: aligned(runs_, axis)[1]
        for axis in AXES
        if all(axis in run.positions for run in runs_)
    }


def all_lines(by_run: ByRun, contrast_sides: ByRun) -> tuple[Series, ...]:
    """`lines` of every arm, and of `both` sides of a contrast, which alone have lines of seeds
    then. Where there are many runs no seed has a line."""
    thin = sum(map(len, (contrast_sides or by_run).values())) >= MANY_RUNS
    series: list[Series] = []
    for arm, seeds in by_run.items():
        series += lines(arm, seeds, thin=thin or bool(contrast_sides))
    for side, seeds in contrast_sides.items():
        series += lines(side, seeds, thin=thin)
    return tuple(series)


def lines(arm: str, seeds: Mapping[int, Points], *, thin: bool = False) -> tuple[Series, ...]:
    """The mean at every x that all seeds have, and one series per seed where there are several.

    A `thin` figure has the mean alone. The band of the mean reaches from the lowest to the highest
    value of any seed; of an envelope, of any single update."""
    measured = {
        seed: points for seed, points in sorted(seeds.items()) if np.isfinite(points.y).any()
    }
    if not measured:
        return ()
    runs_ = list(measured.values())
    positions, heights = aligned(runs_)
    x = tuple(positions.tolist())
    known_there = np.isfinite(heights)
    out = []
    positions_at = {
        axis: places
        for axis, places in on_axes(runs_).items()
        if np.isfinite(places[known_there]).all()
    }
    if len(measured) > 1 and not thin:
        for row, seed in enumerate(measured):
            points_at = {axis: column(places[row]) for axis, places in positions_at.items()}
            out.append(Series(arm, x, column(heights[row]), seed=seed, positions=points_at))
    enveloped = all(points.low is not None for points in measured.values())
    low, high = (
        (aligned(runs_, "low")[1], aligned(runs_, "high")[1]) if enveloped else (heights, heights)
    )
    edges = (np.fmin.reduce(low), np.fmax.reduce(high))
    alike = np.array_equal(*edges, equal_nan=True)
    band = ((), ()) if alike else (column(edges[0]), column(edges[1]))
    means = {axis: column(mean_of_runs(places)) for axis, places in positions_at.items()}
    return (
        *out,
        Series(arm, x, column(mean_of_runs(heights)), low=band[0], high=band[1], positions=means),
    )


def pair_lines(
    arm: str, base: Mapping[int, Points], subject: Mapping[int, Points], alpha: float
) -> list[Series]:
    """One line per pair of runs, as far as both went, and the mean of the pairs with its pointwise
    interval over the steps that every pair has."""
    pairs = {seed: (base[seed], subject[seed]) for seed in sorted(base.keys() & subject.keys())}
    seeds = [
        seed for seed, lines in pairs.items() if all(np.isfinite(line.y).any() for line in lines)
    ]
    if not seeds:
        return []
    steps, heights = aligned([*chain.from_iterable(pairs[seed] for seed in seeds)])
    shared = np.isfinite(heights).all(axis=0)
    if not shared.any():
        return []
    differences = (heights[1::2] - heights[::2])[:, shared]
    x = tuple(steps[shared].tolist())
    thin = [
        Series(arm, x, column(row), seed=seed) for seed, row in zip(seeds, differences, strict=True)
    ]
    judged = pointwise_t(differences, alpha)
    ends = ((), ()) if judged is None else tuple(map(column, judged[1:]))
    mean = Series(arm, x, column(mean_of_runs(differences)), low=ends[0], high=ends[1])
    return [*(thin if 1 < len(seeds) < MANY_RUNS // 2 else []), mean]


def by_run(study: Source, rows: Sequence[JsonMapping], x: str, y: str) -> ByRun:
    """Arm by arm the lines of rows, one per arm, seed and x; axes of `AXES` may be columns too."""
    names = [name for name in (x, y, *AXES) if rows and name in rows[0]]
    numbers: dict[tuple[str, int], list[list[OptionalFloat]]] = {}
    for row in rows:
        numbers.setdefault((row["arm"], row["seed"]), []).append([row[name] for name in names])
    out: PointsByRun = {arm: {} for arm in study.arms}
    for (arm, seed), listed in numbers.items():
        values = dict(zip(names, np.asarray(listed, dtype=np.float64).T, strict=True))
        positions = {axis: values[axis] for axis in AXES if axis in values}
        out.setdefault(arm, {})[seed] = Points(values[x], values[y], positions=positions)
    return out


@once
def axes(study: Source) -> tuple[dict[str, str], str]:
    """The axes of `AXES` that curves may be drawn against; and why one is missing, if it is."""
    paces: dict[str, list[float]] = {arm: [] for arm in study.arms}
    for track in course(study).tracks:
        if track.arm in paces and (pace := _pace(track.columns)) is not None:
            paces[track.arm].append(pace)
    spreads = {arm: max(values) / min(values) for arm, values in paces.items() if values}
    arm = max(spreads, key=spreads.__getitem__, default="")
    if not spreads or spreads[arm] <= UNEVEN:
        return dict(AXES), ""
    why = f"for the same work one run of {arm} took {spreads[arm]:.1f} times as long as another."
    return {
        axis: total for axis, total in AXES.items() if axis != SECONDS
    }, f"No axis of device seconds: {why}"


def _pace(columns: Mapping[str, Floats]) -> OptionalFloat:
    """Device seconds per FLOP, or per token where FLOPs were not counted, up to the last step that
    knows both.
    """
    seconds = columns[AXES[SECONDS]]
    for work in (columns[AXES["FLOPs"]], columns[AXES["response tokens"]]):
        timed = np.flatnonzero(
            np.isfinite(seconds) & np.isfinite(work) & (work > 0) & (seconds > 0)
        )
        if len(timed):
            return float(seconds[timed[-1]] / work[timed[-1]])
    return None


def steps_of(study: Source) -> int:
    """The steps that the longest arm is planned to have; of imported runs those of the longest
    log.
    """
    if study.declaration.recorded is not None:
        return max(1, course(study).last + 1)
    return max(arm.settings.steps for arm in study.declaration.arms.values())


def points(
    study: Source, metric: str, *, envelope: bool = False, compute: bool = False
) -> PointsByRun:
    """Per arm and seed one metric's course; with `compute` also its places on the axes of
    `AXES`.
    """
    out: PointsByRun = {arm: {} for arm in study.arms}
    places = axes(study)[0] if compute else {}
    for track in course(study).tracks:
        if track.arm in out:
            values = track.columns
            low, high = (
                (values[f"{metric}.low"], values[f"{metric}.high"]) if envelope else (None, None)
            )
            positions = {axis: values[total] for axis, total in places.items()}
            out[track.arm][track.seed] = Points(
                track.x(metric), values[metric], low, high, positions
            )
    return out


def curve(
    study: Source,
    metric: str,
    title: str,
    *,
    unit: str = "",
    id: str = "",
    note: str = "",
    envelope: bool = False,
    compute: bool = False,
    **look: Any,
) -> Chart:
    """One metric over the training steps: span means of every seed, and per arm their mean.

    Its unit is the record's, unless another is given. With `envelope` the band reaches from the
    lowest to the highest single value (of a metric of `EXTREMES`). `compute` lets the chart be
    drawn against prompts, tokens, FLOPs and device seconds too. `look` goes to the chart.
    """
    by_arm = points(study, metric, envelope=envelope, compute=compute)
    reading = Reading(metric, Window(Steps.ALL))
    texts = [note, DRAWN, course(study).note, axes(study)[1] if compute else ""]
    series = all_lines(by_arm, sides_of(study, by_arm) if compute else {})
    reach = float(max(1, steps_of(study) - 1))
    look |= {
        "note": " ".join(filter(None, texts)),
        "reading": reading.key,
    }
    return Chart(
        id or f"m-{metric.replace('_', '-')}",
        title,
        "step",
        unit or reading.column.unit.replace("/", " per "),
        series,
        reach=(0.0, reach),
        **look,
    )


def per_minibatch(study: Source, reading: Reading) -> tuple[Series, ...]:
    """Per arm the reading by mini-batch index: every recorded run, and their mean."""
    pools = by_minibatch(study, reading)
    values = {
        run: {index: pool.value for index, pool in by_index.items()}
        for run, by_index in pools.items()
    }
    return dots_by_arm(study, values)


def dots_by_arm(
    study: Source, by_run: Mapping[str, Mapping[int, OptionalFloat]]
) -> tuple[Series, ...]:
    """Per arm the values of its runs by a number's place, and their mean."""
    out: list[Series] = []
    for arm in study.arms:
        recorded = {
            run.seed: by_run[run.id] for run in runs(study) if run.arm == arm and by_run.get(run.id)
        }
        seeds = {
            seed: {str(place): value for place, value in values.items()}
            for seed, values in recorded.items()
        }
        out += dots_of(
            arm, [str(place) for place in sorted(set().union(*recorded.values()))], seeds
        )
    return tuple(out)


def per_arm(
    study: Source, reading: Reading, label: str, colour: int, arms: Mapping[str, str]
) -> tuple[Series, ...]:
    """One series over categories, each with the arm that it shows: every recorded run, and their
    mean.
    """
    values = read(study, reading)
    seeds: dict[int, dict[str, OptionalFloat]] = {}
    for category, arm in arms.items():
        for run in runs(study):
            if run.arm == arm and values[run.id].weight:
                seeds.setdefault(run.seed, {})[category] = values[run.id].value
    return tuple(dots_of(label, list(arms), dict(sorted(seeds.items())), colour))


def dots_of(
    label: str,
    categories: Sequence[str],
    seeds: Mapping[int, Mapping[str, OptionalFloat]],
    colour: int | None = None,
) -> list[Series]:
    """A series for each seed, where there are several, and one of their means with the lowest and
    the highest.
    """
    if not categories:
        return []
    x = tuple(categories)
    by_seed = {
        seed: tuple(values.get(category) for category in x) for seed, values in seeds.items()
    }
    several = len(by_seed) > 1
    out = (
        [Series(label, x, y, seed=seed, colour=colour) for seed, y in by_seed.items()]
        if several
        else []
    )
    by_place = list(zip(*by_seed.values(), strict=True)) or [() for _ in x]
    measured = [[y for y in values if y is not None] for values in by_place]
    low = tuple(min(values, default=None) for values in measured) if several else ()
    high = tuple(max(values, default=None) for values in measured) if several else ()
    return [
        *out,
        Series(label, x, tuple(map(average, by_place)), low=low, high=high, colour=colour),
    ]
