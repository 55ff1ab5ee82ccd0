"""What a number is a reading of, and how it is read: rows are pooled in SQLite by step or by
mini-batch, and these pools are pooled again here.

A row weighs what its record's field declares (`per`). A pool keeps its weight, so that pooling it
again gives the mean over all rows, however they were split.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Any, NamedTuple

import numpy as np

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
from gspo_lab.common.plain_data import OptionalFloat, OptionalText, Strings
from gspo_lab.recording.records.update import CLIP_FRACTION, EVALUATED_TOKENS
from gspo_lab.recording.store.evidence import arrays
from gspo_lab.recording.store.schema import RECORD_TABLES, Column, metric_columns


class Steps(StrEnum):
    """Which steps of a run count."""

    ALL = "all"
    SETTLED = "settled"
    """From the first step on whose updates, and all later ones, have the full learning rate."""
    BASELINE = "baseline"
    """The first `stats.collapse.FROZEN` of the settled steps, which signals are held against."""
    STEP_0 = "step0"
    LAST = "last"
    """The last planned step alone."""


class Minibatch(StrEnum):
    """Which updates of a step count, by their index within the rollout batch."""

    ALL = "all"
    FIRST = "first"
    SECOND = "second"
    """Index 1: the policy has made one update since it sampled."""
    LATER = "later"
    """Index 1 and above: on the first mini-batch all ratios are 1."""
    FINAL = "final"
    """The last index that the arm's settings have."""


class Weight(StrEnum):
    """How rows are weighed in a mean."""

    OWN = "own"
    """The weight is the column that the metric's field declares (`per`)."""
    ROWS = "rows"
    """Every row alike."""


class Reduce(StrEnum):
    """What becomes of a run's rows: of all of them, or of its curve by step."""

    MEAN = "mean"
    SUM = "sum"
    LARGEST = "largest"
    MEDIAN = "median"
    """The median of the curve's measured steps."""
    PEAK = "peak"
    """The highest step of the curve. Here and below gaps hold the value before."""
    LATEST = "latest"
    """The curve's last step."""
    AREA = "area"
    LAST_FIFTH = "last-fifth"


@dataclass(frozen=True)
class Window:
    """The rows that count.

    A record of a rollout batch has no mini-batch: there all rows of the steps count.
    """

    steps: Steps = Steps.SETTLED
    minibatch: Minibatch = Minibatch.ALL


SAID = {
    Steps.SETTLED: "after the learning rate's warm-up",
    Steps.BASELINE: f"first {FROZEN} steps after the learning rate's warm-up",
    Steps.STEP_0: "step 0",
    Steps.LAST: "last step",
    Minibatch.FIRST: "mini-batch 0",
    Minibatch.SECOND: "mini-batch 1",
    Minibatch.LATER: "mini-batches ≥ 1",
    Minibatch.FINAL: "last mini-batch",
    Reduce.SUM: "sum",
    Reduce.LARGEST: "largest",
    Reduce.MEDIAN: "median over steps",
    Reduce.PEAK: "highest step",
    Reduce.LATEST: "last recorded step",
    Reduce.AREA: "area under the curve",
    Reduce.LAST_FIFTH: "last fifth of the steps",
    Weight.ROWS: "every row alike",
}
"""The parts of a label; what is not here goes without saying."""


@dataclass(frozen=True)
class Reading:
    """One question to a run's record.

    The default is the metric's mean over settled steps by its own weight.
    """

    metric: str
    window: Window = Window()
    reduce: Reduce = Reduce.MEAN
    weight: Weight = Weight.OWN

    @property
    def table(self) -> str:
        """The table that records the metric: `updates` or `steps`."""
        return "updates" if self.metric in RECORD_TABLES["updates"].names else "steps"

    @property
    def column(self) -> Column:
        """The metric's column: its unit and its meaning."""
        return RECORD_TABLES[self.table].column(self.metric)

    @classmethod
    def parse(cls, key: str) -> "Reading":
        """The reading that has this key."""
        metric, reduce, steps, minibatch, weight = key.split(".")
        return cls(
            metric, Window(Steps(steps), Minibatch(minibatch)), Reduce(reduce), Weight(weight)
        )

    @property
    def key(self) -> str:
        """A stable name, as "clip_fraction_tokens.mean.settled.later.own"."""
        return ".".join(
            (self.metric, self.reduce, self.window.steps, self.window.minibatch, self.weight)
        )

    def label(self) -> str:
        """The reading for people: "mini-batches ≥ 1, after the learning rate's warm-up"."""
        parts = (self.reduce, self.window.minibatch, self.window.steps, self.weight)
        return ", ".join(SAID[part] for part in parts if part in SAID)


class Value(NamedTuple):
    """A number of one run with the weight that it was made of; None: not measured."""

    value: OptionalFloat
    weight: float = 0.0

    @property
    def total(self) -> float:
        """What a mean per unit of weight adds up to; 0 where nothing was measured."""
        return 0.0 if self.value is None else self.value * self.weight


class Curve(NamedTuple):
    """A run's rows pooled by step: steps, values (NaN: not measured) and their weights."""

    steps: Floats
    values: Floats
    weights: Floats


@dataclass(frozen=True)
class Summary:
    """One reading of an arm: the value of each run by its seed, and their mean, each run once."""

    reading: Reading
    seeds: "Seeds"
    by_seed: Mapping[int, Value]

    @property
    def mean(self) -> OptionalFloat:
        """The mean over the runs that measured it."""
        return average(number.value for number in self.by_seed.values())

    @property
    def largest(self) -> OptionalFloat:
        """The largest of the runs that measured it."""
        return max(
            (number.value for number in self.by_seed.values() if number.value is not None),
            default=None,
        )


def average(values: Iterable[OptionalFloat]) -> OptionalFloat:
    """The mean of the known values, each once; None where there are none."""
    present = _numbers(values)
    return sum(present) / len(present) if present else None


def middle(values: Iterable[OptionalFloat]) -> OptionalFloat:
    """The median of the known values; None where there are none."""
    present = _numbers(values)
    return median(present) if present else None


def _numbers(values: Iterable[OptionalFloat]) -> list[float]:
    return [float(value) for value in values if value is not None and value == value]


LATER = Window(minibatch=Minibatch.LATER)

CLIP_EVERYWHERE = Reading(CLIP_FRACTION)
"""The share of response tokens that the clip binds, over all mini-batches."""
CLIP = Reading(CLIP_FRACTION, LATER)
"""The share of response tokens that the clip binds, over mini-batches >= 1.

On the first mini-batch all ratios are 1. Pages call this number "clipped" without more.
"""
CLIP_GRADIENT = Reading("clip_fraction_gradient", LATER)
"""The share of the gradient that the clip takes. Only the native engine records it."""
CLIP_ACTIVE = Reading("clip_fraction_active_tokens", LATER)
"""The share of the tokens with an advantage, by which saturation is judged."""
WOULD_CLIP = {
    rule: Reading(f"would_clip_fraction_tokens_{rule}", LATER) for rule in ("grpo", "gspo")
}
"""Per rule the share that it would have clipped on the same batches."""
CHANGE_LATER = Reading("expert_change", LATER)
"""The share of activated experts that the router would choose differently by now."""

REWARD = Reading("reward_mean", Window(Steps.ALL), Reduce.LAST_FIFTH)
"""The mean training reward over the last fifth of the steps."""
LATEST_REWARD = Reading("reward_mean", Window(Steps.ALL), Reduce.LATEST)
"""The mean training reward where a run stands."""
DEVICE_SECONDS = Reading("device_seconds_total", Window(Steps.LAST))
"""The seconds of all devices together up to a run's planned end."""
PEAK_MEMORY = Reading("peak_memory_bytes", Window(Steps.ALL), Reduce.LARGEST)
"""The peak memory of any step."""


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
BY_STEP = (*SIGNALS, "reward_mean")
"""What a report reads by step: one pass over a table's rows gives all of its columns."""

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
            run.id: _curve_value(run, curves[run.id], reading.reduce)
            for run in recorded_runs(source)
        }
    if not _has_shared_pools(reading):
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


def by_step(source: Source, reading: Reading, run: OptionalText = None) -> Mapping[str, Curve]:
    """Per run id, of all runs or of one, the mean of each recorded step of the window."""
    return _pools(source, reading, "step", run)


def by_layer(
    source: Source, reading: Reading, chosen_steps: Iterable[int]
) -> Mapping[str, tuple[OptionalFloat, ...]]:
    """Per run id the mean of each entry of a metric that is a list, over the chosen steps that the
    window has. Runs without any are left out."""
    weight = row_weight(reading.table, reading.metric) or 1
    entries_in_window = f'json_each("{reading.metric}") AS entry {_window(reading.table)}'
    query = (
        f"SELECT entry.key, TOTAL(entry.value * {weight}) / SUM({weight})"
        f" FROM {reading.table}, {entries_in_window}"
        " AND step IN (SELECT value FROM json_each(?)) AND entry.value IS NOT NULL GROUP BY 1"
    )
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


def _has_shared_pools(reading: Reading) -> bool:
    """Whether the reading is made of the pools by mini-batch that one pass over the rows gives."""
    usual = reading.window.steps in (Steps.ALL, Steps.SETTLED) and reading.weight is Weight.OWN
    return usual and reading.reduce is Reduce.MEAN and reading.metric in TOGETHER


def _group(reading: Reading, by: str) -> Strings:
    if by == "minibatch" and _has_shared_pools(reading):
        return TOGETHER
    if by == "step" and reading in map(signal, BY_STEP):
        return tuple(metric for metric in BY_STEP if signal(metric).table == reading.table)
    return (reading.metric,)


def _pools(
    source: Source, reading: Reading, by: str, only: OptionalText = None
) -> Mapping[str, Curve]:
    """Per run id the rows of the window pooled `by` "step", "minibatch" (of which the window keeps
    all) or "whole".
    """
    grouped = _read_groups(
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
def _read_groups(
    source: Source,
    table: str,
    by: str,
    metrics: Strings,
    steps: Steps,
    minibatch: Minibatch,
    pooling: str,
    only: OptionalText,
) -> Mapping[str, dict[str, Floats]]:
    evidence = source.evidence
    metric_columns(table, metrics, numbers=True)
    query = _group_query(table, by, metrics, pooling)
    names = [by]
    for metric in metrics:
        names += (metric, f"{metric}.weight")

    def rows(run: RecordedRun) -> dict[str, Floats]:
        indices = _indices(source, run.id, minibatch) if table == "updates" else ()
        return arrays(evidence.rows(query, (run.id, *_range(source, run, steps), *indices)), names)

    key = ("grouped", source.study, query, steps, minibatch, only)
    chosen = [run for run in recorded_runs(source) if only in (None, run.id)]
    return evidence.once(key, lambda: {run.id: rows(run) for run in chosen})


def row_weight(table: str, metric: str) -> OptionalText:
    """What a row weighs in a mean of the metric, in SQL: the count that the field declares, 1 where
    the row does not know it. None: every row weighs alike.
    """
    per = RECORD_TABLES[table].column(metric).per
    if per == EVALUATED_TOKENS:
        per_row = 'IIF("evaluated_responses" < "responses", "active_tokens", "response_tokens")'
        return f"IFNULL({per_row}, 1)"
    return None if per is None else f'IFNULL("{per}", 1)'


def _pool_of(table: str, metric: str, pooling: str) -> str:
    """The aggregate of a metric's rows and its weight.

    `pooling` is "own" (mean by weights), "rows", "sum" or "largest".
    """
    weight = row_weight(table, metric)
    if pooling == "own" and weight is not None:
        return f"{weighted_mean(metric, weight)}, IFNULL({_weight_of(metric, weight)}, 0)"
    function = {"largest": "MAX", "sum": "SUM"}.get(pooling, "AVG")
    return f'{function}("{metric}"), COUNT("{metric}")'


def weighted_mean(metric: str, weight: str) -> str:
    """The weighted mean over rows with the metric. A single row keeps its exact value."""
    several = f'TOTAL("{metric}" * {weight}) / {_weight_of(metric, weight)}'
    return f'CASE COUNT(*) WHEN 1 THEN "{metric}" ELSE {several} END'


def _weight_of(metric: str, weight: str) -> str:
    """The total weight of a metric's measurements; NULL without any."""
    return f'SUM({weight}) FILTER (WHERE "{metric}" IS NOT NULL)'


def _group_query(table: str, by: str, metrics: Iterable[str], pooling: str) -> str:
    """A query for groups of rows `by` "step", "minibatch" or "whole" (all rows), with each metric's
    aggregate and weight.

    Its values are run id, first and last step, and for updates lowest and highest mini-batch.
    """
    if (table, by) == ("steps", "step"):  # a row is a pool: nothing is grouped
        rows = ", ".join(
            f'"{metric}", {_weight_in_row(table, metric, pooling)}' for metric in metrics
        )
        return f"SELECT step, {rows} FROM steps {_window(table)} ORDER BY step"
    pools = ", ".join(_pool_of(table, metric, pooling) for metric in metrics)
    pool = "0" if by == "whole" else by
    return f"SELECT {pool} AS pool, {pools} FROM {table} {_window(table)} GROUP BY pool"


def _weight_in_row(table: str, metric: str, pooling: str) -> str:
    weight = row_weight(table, metric) if pooling == "own" else None
    return f'CASE WHEN "{metric}" IS NULL THEN 0 ELSE {weight or 1} END'


def _window(table: str) -> str:
    indices = " AND minibatch BETWEEN ? AND ?" if table == "updates" else ""
    return f"WHERE run_id = ? AND step BETWEEN ? AND ?{indices}"


def rows_of(
    source: Source, run: str, columns: str, window: Window, where: str, *values: object
) -> list[tuple[Any, ...]]:
    """The columns (SQL) of a run's updates in a window of which `where` holds too, in their
    order.
    """
    # The plus keeps SQLite from walking through the range where `where` names single steps.
    place = "run_id = ? AND +step BETWEEN ? AND ? AND minibatch BETWEEN ? AND ?"
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
    """Steps and values of a run's curve. It begins at the first measured step.

    It ends at the last planned step, or for an unfinished run at the last recorded one. A step
    without a measurement holds the value before. An imported curve has its log's rows: a log says
    nothing of the steps between them."""
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


def _curve_value(run: RecordedRun, curve: Curve, reduce: Reduce) -> Value:
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
