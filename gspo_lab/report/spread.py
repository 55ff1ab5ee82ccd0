"""How far the sequence ratio spreads, by response length."""

import json
import math
from dataclasses import replace

import numpy as np

from gspo_lab.findings import Findings
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.frames import groups
from gspo_lab.report.titles import over_length
from gspo_lab.stats.arrays import Floats

BINS = 8
LEAST = 20
"""Responses that a length bin must hold for its spread to be shown."""
DETAILS = 50
"""Steps whose responses are read, evenly over the run: each holds every response of its updates."""


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
    chart = Chart("m-log-ratio-length", "Spread of the sequence log-ratio by response length", "tokens", "nats",
                  tuple(series), whole=True, small=True, note=note)  # fmt: skip
    return replace(chart, finding=over_length(chart))


def _binned(arm: str, colour: int, length: Floats, ratio: Floats, bounds: Floats) -> list[Series]:
    bins = np.searchsorted(bounds, length, side="right")
    full = [index for index in range(len(bounds) + 1) if (bins == index).sum() >= LEAST]
    if not full:
        return []
    x = tuple(float(length[bins == index].mean()) for index in full)
    return [Series(arm, colour, x, tuple(float(ratio[bins == index].std()) for index in full))]
