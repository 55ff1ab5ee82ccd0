"""How far the importance ratio spreads: quantiles over the steps, and the sequence ratio by response length."""

import json
import math
from typing import Literal

import numpy as np

from gspo_lab.findings import Findings
from gspo_lab.records import QUANTILES
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.frames import column, groups
from gspo_lab.stats.arrays import Floats

LOW, MIDDLE, HIGH = (QUANTILES.index(level) for level in (0.05, 0.5, 0.95))
BINS = 8
LEAST = 20
"""Responses that a length bin must hold for its spread to be shown."""
DETAILS = 50
"""Steps whose responses are read, evenly over the run: each holds every response of its updates."""


def ribbon(found: Findings, of: Literal["tokens", "responses"]) -> Chart:
    """Per arm the median log-ratio over the steps, and a band from its 5 % to its 95 % quantile."""
    metric, what = f"log_ratio_quantiles_{of}", "token" if of == "tokens" else "sequence"
    own = found.course
    frame = found.evidence.updates(found.study, [metric], at=own.sampled)
    frame = frame[(frame["minibatch"] > 0) & frame[metric].notna()]
    series = []
    for colour, arm in enumerate(found.arms):
        rows = frame[frame["arm"] == arm]
        steps = np.unique(rows["step"].to_numpy())
        if not len(steps):
            continue
        quantiles = np.array([json.loads(text) for text in rows[metric]], dtype=np.float64)
        where = np.searchsorted(steps, rows["step"].to_numpy())
        low, middle, high = (_means(where, quantiles[:, level], len(steps)) for level in (LOW, MIDDLE, HIGH))
        x = tuple(map(float, steps.tolist()))
        series.append(Series(arm, colour, x, column(middle), low=column(low), high=column(high)))
    note = f"Line: the median; band: 5 % to 95 % quantile; means over mini-batches and seeds. {own.sample_note}"
    title = f"{what.capitalize()} log-ratio, its spread over training"
    return Chart(f"m-log-ratio-{of}", title, "step", "nats", tuple(series), note=note.strip())


def by_length(found: Findings) -> Chart:
    """Per arm the standard deviation of the sequence log-ratio, for responses of like length."""
    lengths: dict[str, Floats] = {}
    ratios: dict[str, Floats] = {}
    recorded = math.lcm(*(arm.settings.record.detail_every for arm in found.declaration.arms.values()))
    last = found.course.last
    stride = max(1, -(-(last + 1) // (recorded * DETAILS))) * recorded
    frame = found.evidence.details(found.study, at=range(0, last + 1, stride))
    for arm, own in groups(frame[frame["minibatch"] > 0], "arm"):
        length, total = (
            np.concatenate([np.asarray(json.loads(text), dtype=np.float64) for text in own[name]])
            for name in ("length", "sum_log_ratio")
        )
        if len(length):  # an update whose responses all had no advantage measured none
            lengths[str(arm)], ratios[str(arm)] = length, total / np.maximum(length, 1)
    series = []
    if lengths:
        levels = np.quantile(np.concatenate(list(lengths.values())), np.linspace(0, 1, BINS + 1)[1:-1])
        for colour, arm in enumerate(found.arms):
            if arm in lengths:
                series += _binned(arm, colour, lengths[arm], ratios[arm], np.unique(levels))
    note = (
        f"Standard deviation of log s over responses of like length, all seeds together; bins of at least {LEAST} "
        f"responses with bounds that all arms share. Read at every {stride}th step."
    )
    return Chart("m-log-ratio-length", "Sequence log-ratio against response length", "tokens", "nats",
                 tuple(series), whole=True, note=note)  # fmt: skip


def _binned(arm: str, colour: int, length: Floats, ratio: Floats, bounds: Floats) -> list[Series]:
    bins = np.searchsorted(bounds, length, side="right")
    full = [index for index in range(len(bounds) + 1) if (bins == index).sum() >= LEAST]
    if not full:
        return []
    x = tuple(float(length[bins == index].mean()) for index in full)
    return [Series(arm, colour, x, tuple(float(ratio[bins == index].std()) for index in full))]


def _means(where: np.ndarray[tuple[int], np.dtype[np.int64]], values: Floats, count: int) -> Floats:
    """The mean of the known values at each of `count` places, NaN where there are none."""
    known = np.isfinite(values)
    sums = np.bincount(where[known], weights=values[known], minlength=count)
    counts = np.bincount(where[known], minlength=count)
    means: Floats = np.divide(sums, counts, out=np.full(count, np.nan), where=counts > 0)
    return means
