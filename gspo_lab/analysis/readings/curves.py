"""What runs recorded as they trained: rewards, signals that left their range, failed updates and
grades, responses.

What was recorded response by response, and the counts of tokens that a range would bind, have one
window.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from gspo_lab.analysis.readings.reading import (
    SIGNALS,
    Minibatch,
    Reading,
    Steps,
    Window,
    by_step,
    hold,
    rows_of,
    signal,
)
from gspo_lab.analysis.readings.runs import (
    FINISHED,
    Source,
    first_settled,
    once,
    recorded_runs,
    runs,
)
from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.analysis.stats.collapse import Onset, entropy_collapse, signal_onset
from gspo_lab.recording.records import RULES

REWARD = Reading("reward_mean", Window(Steps.ALL))


@once
def nonfinite_steps(source: Source) -> dict[str, list[int]]:
    """Per run id with any the step of each update that was not finite: skipped, or of a dead
    model.
    """
    query = "SELECT step FROM updates WHERE run_id = ? AND nonfinite = 1 ORDER BY step, minibatch"
    steps = {
        run.id: [step for (step,) in source.evidence.rows(query, (run.id,))] for run in runs(source)
    }
    return {run: bad for run, bad in steps.items() if bad}


@once
def measured(source: Source, reading: Reading = REWARD) -> dict[str, tuple[Floats, Floats]]:
    """Per run id the steps at which a reading (the mean training reward) was measured, and its
    values there.
    """
    points = {}
    for run, curve in by_step(source, reading).items():
        finite = ~np.isnan(curve.values)
        points[run] = (curve.steps[finite], curve.values[finite])
    return points


@once
def reward_curves(source: Source) -> dict[tuple[str, int], tuple[Floats, Floats]]:
    """(arm, seed) -> steps and mean training reward of every finished run, as `reading.hold` has
    them.
    """
    recorded = by_step(source, REWARD)
    curves = {run: hold(run, recorded[run.id]) for run in runs(source, FINISHED)}
    return {(run.arm, run.seed): curve for run, curve in curves.items() if len(curve[0])}


@once
def grader_errors(source: Source) -> dict[str, float]:
    """Per run id the share of its training responses on which the grader failed, those of dropped
    groups among them; they counted as reward 0. Runs that have not counted them are left out."""
    query = (
        "SELECT TOTAL(grader_errors), SUM(responses), TOTAL(dropped_groups) FROM steps "
        "WHERE run_id = ? AND grader_errors IS NOT NULL GROUP BY run_id"
    )
    out: dict[str, float] = {}
    for run in runs(source):
        for failed, trained, dropped in source.evidence.rows(query, (run.id,)):
            if dropped and not source.declaration.is_known(run.arm, "rollout.group_size"):
                continue
            graded = (
                trained + dropped * source.declaration.arms[run.arm].settings.rollout.group_size
            )
            out |= {run.id: failed / graded} if graded else {}
    return out


@once
def onsets(source: Source, run: str) -> Mapping[str, Onset]:
    """Per recorded entry of SIGNALS when it left its range in a run, step by step after the
    warm-up.
    """
    out = {}
    for metric in SIGNALS:
        curve = by_step(source, signal(metric), run)[run]
        measured_T = ~np.isnan(curve.values)
        if measured_T.any():
            out[metric] = signal_onset(
                curve.steps[measured_T], curve.values[measured_T], first_settled(source)[run]
            )
    return out


@once
def entropy_collapses(source: Source) -> Mapping[str, Onset]:
    """Per run id when the entropy of its training tokens collapsed; runs that recorded none are
    left out. An imported run is as long as its log."""
    curves = by_step(source, signal("entropy"))
    recorded = measured(source, signal("entropy"))
    return {
        run.id: entropy_collapse(
            *recorded[run.id], run.steps_planned or int(curves[run.id].steps.max()) + 1
        )
        for run in runs(source)
        if len(recorded[run.id][0])
    }


Columns: TypeAlias = Mapping[str, Floats]


def responses(
    source: Source, names: Sequence[str], window: Window, steps: Iterable[int]
) -> Mapping[str, Columns]:
    """Per run id the lists `names` of `response_detail`, put together over the window's updates of
    these steps; an empty array where nothing was recorded."""
    lists = ", ".join(f"json_extract(response_detail, '$.{name}')" for name in names)
    where = "response_detail IS NOT NULL AND step IN (SELECT value FROM json_each(?))"
    out = {}
    for run in recorded_runs(source):
        rows = rows_of(source, run.id, lists, window, where, json.dumps(sorted(steps)))
        lists_of: dict[str, list[Floats]] = {name: [np.zeros(0)] for name in names}
        for row in rows:
            for name, text in zip(names, row, strict=True):
                lists_of[name].append(np.asarray(json.loads(text), dtype=np.float64))
        out[run.id] = {name: np.concatenate(arrays) for name, arrays in lists_of.items()}
    return out


@once
def band_counts(source: Source, run: str) -> tuple[Mapping[str, Floats], float]:
    """Per rule the response tokens of a run that its reference range x BAND_SCALES would bind, over
    all settled updates that counted them, and these updates' tokens; ({}, 0) where none did."""
    rows = rows_of(source, run, "band_counts, response_tokens", Window(), "band_counts IS NOT NULL")
    tokens = float(sum(count or 0 for _, count in rows))
    counts = [json.loads(text) for text, _ in rows]
    if not tokens:
        return {}, 0.0
    sides = {
        rule: [np.add(update[rule]["low"], update[rule]["high"]) for update in counts]
        for rule in RULES
    }
    return {
        rule: np.asarray(updates, dtype=np.float64).sum(axis=0) for rule, updates in sides.items()
    }, tokens


@dataclass(frozen=True)
class Weights:
    """How alike the tokens of a response are weighed, over a run's settled updates with minibatch
    >= 1.
    """

    partly_clipped: int
    """Responses of which the clip bound some tokens and not all."""
    spread: float
    """The mean over responses of two tokens or more of the standard deviation of l_t within one."""


@once
def weights_within(source: Source, run: str) -> Weights | None:
    """One run's; None where it recorded no responses there."""
    window = Window(minibatch=Minibatch.LATER)
    rows = rows_of(source, run, "response_detail", window, "response_detail IS NOT NULL")
    names = ("length", "sum_log_ratio", "sum_square_log_ratio", "clipped_tokens")
    details = [json.loads(detail) for (detail,) in rows]
    length, total, squares, clipped = (
        np.concatenate(
            [np.zeros(0), *(np.asarray(detail[name], dtype=np.float64) for detail in details)]
        )
        for name in names
    )
    if not len(length):
        return None
    long = length > 1
    variance = squares[long] / length[long] - (total[long] / length[long]) ** 2
    partly = np.count_nonzero((clipped > 0) & (clipped < length))
    return Weights(int(partly), float(np.sqrt(np.maximum(variance, 0)).mean()))


@dataclass(frozen=True)
class Movement:
    """How far a run's policy moved from the one that sampled, over its settled updates; log-ratios
    in nats.

    `length` is the mean of all responses. The spreads, of l_t over tokens and of log s over
    responses, and the drift are of mini-batches >= 1.
    """

    length: float
    spread_tokens: float
    spread: float
    drift: float


def movement(source: Source, run: str) -> Movement | None:
    """One run's; None where it recorded no response's own numbers on mini-batches >= 1."""
    columns = "minibatch, response_detail, stale_k3"
    rows = rows_of(source, run, columns, Window(), "response_detail IS NOT NULL")
    updates = list(_log_ratio_rows(rows))
    if not any(index_B.any() for index_B, *_ in updates):
        return None
    index_N, length_N, total_N, square_N, expected_N = map(
        np.concatenate, zip(*updates, strict=True)
    )
    mean_N = total_N / length_N
    later_N = index_N > 0
    drifts = {index: float(mean_N[index_N == index].mean()) for index in np.unique(index_N)}
    residual_N = mean_N - np.vectorize(drifts.__getitem__, otypes=[float])(index_N)
    tokens = length_N[later_N].sum()
    mean = total_N[later_N].sum() / tokens
    return Movement(
        length=float(length_N.mean()),
        spread_tokens=math.sqrt(square_N[later_N].sum() / tokens - mean**2),
        spread=float(residual_N[later_N].std()),
        drift=float(-expected_N[later_N].mean()),
    )


def _log_ratio_rows(rows: Iterable[Sequence[Any]]) -> Iterator[tuple[Floats, ...]]:
    """Mini-batch index, length, sum of l_t and of its square, and expected log s of the responses
    of each update that has finite ones."""
    for minibatch, detail, stale_k3 in rows:
        lists = json.loads(detail)
        length_B = np.asarray(lists["length"], dtype=np.float64)
        total_B = np.asarray(lists["sum_log_ratio"], dtype=np.float64)
        square_B = np.asarray(lists["sum_square_log_ratio"], dtype=np.float64)
        measured = stale_k3 is not None and math.isfinite(stale_k3)
        if len(length_B) and np.isfinite(total_B).all() and measured:
            like_B = np.ones_like(length_B)
            yield minibatch * like_B, length_B, total_B, square_B, -stale_k3 * like_B


def shared_bounds(lengths: Iterable[Floats], bins: int) -> Floats:
    """Bounds of so many bins of like length, each with as many of all the responses."""
    levels: Floats = np.quantile(np.concatenate(list(lengths)), np.linspace(0, 1, bins + 1)[1:-1])
    return np.unique(levels)


def spread_by_length(
    length: Floats, value: Floats, bounds: Floats, least: int
) -> list[tuple[float, float]]:
    """Mean length and standard deviation of `value` of the responses between the bounds; bins with
    fewer than `least` responses are left out."""
    bins = np.searchsorted(bounds, length, side="right")
    full = [index for index in range(len(bounds) + 1) if np.count_nonzero(bins == index) >= least]
    return [
        (float(length[bins == index].mean()), float(value[bins == index].std())) for index in full
    ]
