"""How far the sequence ratio spreads, by response length."""

import math
from dataclasses import replace

import numpy as np

from gspo_lab.findings.training_curves import course
from gspo_lab.readings import Source, runs
from gspo_lab.readings.named import LATER
from gspo_lab.readings.responses import responses, shared_bounds, spread_by_length
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.titles import over_length
from gspo_lab.stats.arrays import Floats

BINS = 8
LEAST = 20
"""Responses that a length bin must hold for its spread to be shown."""
DETAILS = 50
"""Steps whose responses are read, evenly over the run: each holds every response of its updates."""


def by_length(found: Source) -> Chart:
    """Per arm the standard deviation of the sequence log-ratio, for responses of like length."""
    recorded = math.lcm(*(arm.settings.record.detail_every for arm in found.declaration.arms.values()))
    last = course(found).last
    stride = max(1, -(-(last + 1) // (recorded * DETAILS))) * recorded
    details = responses(found, ("length", "sum_log_ratio"), LATER, range(0, last + 1, stride))
    lengths: dict[str, Floats] = {}
    ratios: dict[str, Floats] = {}
    for arm in found.arms:
        parts = [details[run.id] for run in runs(found) if run.arm == arm and len(details[run.id]["length"])]
        if parts:  # an update whose responses all had no advantage measured none
            lengths[arm] = np.concatenate([part["length"] for part in parts])
            ratios[arm] = np.concatenate([part["sum_log_ratio"] / np.maximum(part["length"], 1) for part in parts])
    series = []
    if lengths:
        bounds = shared_bounds(lengths.values(), BINS)
        for colour, arm in enumerate(found.arms):
            if arm in lengths and (points := spread_by_length(lengths[arm], ratios[arm], bounds, LEAST)):
                x, y = zip(*points, strict=True)
                series.append(Series(arm, colour, x, y))
    note = (
        f"Standard deviation of log s over responses of like length, all seeds together; bins of at least {LEAST} "
        f"responses with bounds that all arms share. Read at every {stride}th step."
    )
    chart = Chart("m-log-ratio-length", "Spread of the sequence log-ratio by response length", "tokens", "nats",
                  tuple(series), whole=True, small=True, note=note)  # fmt: skip
    return replace(chart, finding=over_length(chart))
