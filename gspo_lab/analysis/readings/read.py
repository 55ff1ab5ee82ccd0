"""Reading a record: rows are pooled in SQLite by step or by mini-batch, and these pools are pooled
again here.

A pool keeps its weight, so that pooling it again gives the mean over all rows, however they were
split.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from gspo_lab.analysis.readings.reading import (
    Curve,
    Minibatch,
    Reading,
    Reduce,
    Steps,
    Summary,
    Value,
    Weight,
    Window,
)
from gspo_lab.analysis.readings.runs import (
    RecordedRun,
    Seeds,
    Source,
    first_settled,
    once,
    recorded_runs,
    runs,
)
from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.analysis.stats.collapse import FROZEN
from gspo_lab.analysis.stats.curve_summaries import carry_forward, last_fifth, normalised_auc
from gspo_lab.common.plain_data import OptionalFloat
from gspo_lab.recording.records.update import CLIP_FRACTION
from gspo_lab.recording.store.evidence import arrays
from gspo_lab.recording.store.records import of_entries, of_groups
from gspo_lab.recording.store.schema import metric_columns

TOGETHER = (
    CLIP_FRACTION,
    "clip_fraction_tokens_high",
    "clip_fraction_tokens_low",
    "clip_fraction_active_tokens",
    "clip_fraction_gradient",
    "would_clip_fraction_tokens_grpo",
    "would_clip_fraction_tokens_gspo",
)
"""What a report reads by mini-batch: one pass over the rows gives them all."""

SIGNALS = ("stale_k3", "grad_norm", CLIP_FRACTION, "expert_change", "entropy")
"""What may leave its range before a run falls, step by step."""

LAST_INDEX = 2**62
"""Above every step and every mini-batch's index."""
INDICES = {
    Minibatch.ALL: (-1, LAST_INDEX),
    Minibatch.FIRST: (0, 0),
    Minibatch.SECOND: (1, 1),
    Minibatch.LATER: (1, LAST_INDEX),
}


def signal(metric: str) -> Reading:
    """The reading that tells when a signal leaves its range: its curve over all steps and
    mini-batches.
    """
    return Reading(metric, Window(Steps.ALL))


def pooled(values: Floats, weights: Floats) -> Value:
    """The weighted mean of the values that were measured (not NaN), with the sum of their
    weights.
    """
    present = ~np.isnan(values)
    weight = float(weights[present].sum())
    if not weight:
        return Value(None)
    mean = float(
        values[present][0]
        if present.sum() == 1
        else (values[present] * weights[present]).sum() / weight
    )
    return Value(mean if math.isfinite(mean) else None, weight)


@once
def read(source: Source, reading: Reading) -> Mapping[str, Value]:
    """Per run id the reading's number, of every recorded run."""
    if reading.reduce in CURVES:
        curves = by_step(source, reading)
        return {
            run.id: _of_curve(run, curves[run.id], reading.reduce) for run in recorded_runs(source)
        }
    if not _together(reading):
        return {
            run: pooled(pool.values, pool.weights)
            for run, pool in _pools(source, reading, "whole").items()
        }
    out = {}
    for run, pools in _pools(source, reading, "minibatch").items():
        low, high = _indices(source, run, reading.window.minibatch)
        inside = (pools.steps >= low) & (pools.steps <= high)
        out[run] = pooled(pools.values[inside], pools.weights[inside])
    return out


def by_minibatch(source: Source, reading: Reading) -> Mapping[str, Mapping[int, Value]]:
    """Per run id and mini-batch index the mean over the window's steps."""
    return {
        run: {
            int(index): pooled(pools.values[[i]], pools.weights[[i]])
            for i, index in enumerate(pools.steps)
        }
        for run, pools in _pools(source, reading, "minibatch").items()
    }


def by_step(source: Source, reading: Reading, run: str | None = None) -> Mapping[str, Curve]:
    """Per run id, of all runs or of one, the mean of each recorded step of the window."""
    return _pools(source, reading, "step", run)


def by_layer(
    source: Source, reading: Reading, chosen_steps: Iterable[int]
) -> Mapping[str, tuple[OptionalFloat, ...]]:
    """Per run id the mean of each entry of a metric that is a list, over those of the steps `at`
    that the window has. Runs without any are left out."""
    query = of_entries(reading.table, reading.metric)
    steps = json.dumps(sorted(chosen_steps))

    def entries(run: RecordedRun) -> tuple[OptionalFloat, ...]:
        bounds = (
            *_range(source, run, reading.window.steps),
            *_indices(source, run.id, reading.window.minibatch),
        )
        return tuple(value for _, value in source.evidence.rows(query, (run.id, *bounds, steps)))

    return {run.id: values for run in recorded_runs(source) if (values := entries(run))}


def summarise(source: Source, reading: Reading, arm: str, seeds: Seeds) -> Summary:
    """The reading of an arm's runs of a set of seeds."""
    values = read(source, reading)
    return Summary(
        reading, seeds, {run.seed: values[run.id] for run in runs(source, seeds) if run.arm == arm}
    )


def _together(reading: Reading) -> bool:
    """Whether the reading is made of the pools by mini-batch that one pass over the rows gives."""
    usual = reading.window.steps in (Steps.ALL, Steps.SETTLED) and reading.weight is Weight.OWN
    return usual and reading.reduce is Reduce.MEAN and reading.metric in TOGETHER


def _group(reading: Reading, by: str) -> tuple[str, ...]:
    if by == "minibatch" and _together(reading):
        return TOGETHER
    if by == "step" and reading in map(signal, SIGNALS):
        return tuple(metric for metric in SIGNALS if signal(metric).table == reading.table)
    return (reading.metric,)


def _pools(
    source: Source, reading: Reading, by: str, only: str | None = None
) -> Mapping[str, Curve]:
    """Per run id the rows of the window pooled `by` "step", "minibatch" (of which the window keeps
    all) or "whole".
    """
    grouped = _grouped(
        source,
        reading.table,
        by,
        _group(reading, by),
        reading.window.steps,
        Minibatch.ALL if by == "minibatch" else reading.window.minibatch,
        (
            reading.reduce if reading.reduce in (Reduce.LARGEST, Reduce.SUM) else reading.weight
        ).value,
        only,
    )
    metric = reading.metric
    return {
        run: Curve(pools[by], pools[metric], pools[f"{metric}.weight"])
        for run, pools in grouped.items()
    }


@once
def _grouped(
    source: Source,
    table: str,
    by: str,
    metrics: tuple[str, ...],
    steps: Steps,
    minibatch: Minibatch,
    how: str,
    only: str | None,
) -> Mapping[str, dict[str, Floats]]:
    evidence = source.evidence
    metric_columns(table, metrics, numbers=True)
    query = of_groups(table, by, metrics, how)
    names = (by, *(name for metric in metrics for name in (metric, f"{metric}.weight")))

    def rows(run: RecordedRun) -> dict[str, Floats]:
        indices = _indices(source, run.id, minibatch) if table == "updates" else ()
        return arrays(evidence.rows(query, (run.id, *_range(source, run, steps), *indices)), names)

    key = ("grouped", source.study, query, steps, minibatch, only)
    chosen = [run for run in recorded_runs(source) if only in (None, run.id)]
    return evidence.once(key, lambda: {run.id: rows(run) for run in chosen})


def rows_of(
    source: Source, run: str, columns: str, window: Window, where: str, *values: object
) -> list[tuple[Any, ...]]:
    """The columns (SQL) of a run's updates in a window of which `where` holds too, in their
    order.
    """
    place = "run_id = ? AND step BETWEEN ? AND ? AND minibatch BETWEEN ? AND ?"
    query = f"SELECT {columns} FROM updates WHERE {place} AND {where} ORDER BY step, minibatch"
    bounds = (
        *_range(source, _by_id(source)[run], window.steps),
        *_indices(source, run, window.minibatch),
    )
    return source.evidence.rows(query, (run, *bounds, *values))


def _range(source: Source, run: RecordedRun, steps: Steps) -> tuple[int, int]:
    if steps is Steps.SETTLED:
        return first_settled(source).get(run.id, 0), LAST_INDEX
    if steps is Steps.BASELINE:
        settled_step = first_settled(source).get(run.id, 0)
        return settled_step, settled_step + FROZEN - 1
    if steps is Steps.LAST:
        last = -1 if run.steps_planned is None else run.steps_planned - 1
        return last, last
    return 0, 0 if steps is Steps.STEP_0 else LAST_INDEX


@once
def _by_id(source: Source) -> Mapping[str, RecordedRun]:
    return {run.id: run for run in recorded_runs(source)}


def _indices(source: Source, run: str, minibatch: Minibatch) -> tuple[int, int]:
    if minibatch is Minibatch.FINAL:
        last = (
            source.declaration.arms[_by_id(source)[run].arm].settings.update.per_rollout_batch - 1
        )
        return last, last
    return INDICES[minibatch]


def hold(run: RecordedRun, curve: Curve) -> tuple[Floats, Floats]:
    """Steps and values of a run's curve, from the first measured step to the last planned one, or
    of an unfinished run to the last recorded one. A step without a measurement holds the value
    before. An imported curve has its log's rows: a log says nothing of the steps between them."""
    if run.imported or not len(curve.steps):
        measured_T = np.isfinite(curve.values)
        return curve.steps[measured_T], curve.values[measured_T]
    last = run.steps_planned - 1 if run.finished and run.steps_planned else int(curve.steps[-1])
    return carry_forward(curve.steps, curve.values, last)


CURVES: Mapping[Reduce, Callable[[Floats, Floats], float]] = {
    Reduce.MEDIAN: lambda steps, values: float(np.median(values)),
    Reduce.PEAK: lambda steps, values: float(values.max()),
    Reduce.LATEST: lambda steps, values: float(values[-1]),
    Reduce.AREA: normalised_auc,
    Reduce.LAST_FIFTH: lambda steps, values: last_fifth(values),
}


def _of_curve(run: RecordedRun, curve: Curve, reduce: Reduce) -> Value:
    """Every step alike; an area needs two."""
    measured_T = np.isfinite(curve.values)
    steps, values = (
        (curve.steps[measured_T], curve.values[measured_T])
        if reduce is Reduce.MEDIAN
        else hold(run, curve)
    )
    if len(values) < (2 if reduce is Reduce.AREA else 1):
        return Value(None)
    return Value(CURVES[reduce](steps, values), len(values))
