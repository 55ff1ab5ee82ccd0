"""What explains a difference: drift and mismatch, gradients, the spread of the ratios, the policy and its answers.

Drawn is what something is decided by: a signal that leaves its range before a run becomes unstable, a flag beside its
collapse, a number that a claim of the papers reads, the signal that advice looks at. The database has every metric.
"""

import math
from typing import Any

import numpy as np

from gspo_lab.findings.training_curves import course
from gspo_lab.readings import Source, runs
from gspo_lab.readings.reading import LATER
from gspo_lab.readings.responses import responses, shared_bounds, spread_by_length
from gspo_lab.report.chart import Chart, Part, Section, Series
from gspo_lab.report.markup import h
from gspo_lab.report.series import curve
from gspo_lab.stats.array_checks import Floats
from gspo_lab.study import Declaration

LOG, WHOLE, SHARE = {"log": True}, {"whole": True}, {"whole": True, "share": True}
DIAGNOSTICS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("stale_k3", "Drift from the old policy, k3", "nats per token", LOG),
    ("mismatch_k3", "Trainer–sampler mismatch, k3", "nats per token", LOG),
    ("grad_norm", "Gradient norm", "L2 norm before clipping", {"log": True, "envelope": True}),
    ("ratio_max_negative", "Largest token ratio where A < 0", "ratio", {"log": True, "envelope": True}),
    ("log_ratio_std_tokens", "Spread of the token log-ratio", "nats", WHOLE),
    ("log_ratio_std_responses", "Spread of the sequence log-ratio", "nats", WHOLE),
    ("entropy", "Entropy", "nats per token", WHOLE),
    ("response_tokens_mean", "Response length", "tokens", {}),
    ("truncated_responses", "Responses cut at the limit", "share of responses", SHARE),
    ("zero_variance_groups", "Groups without a signal", "share of groups", SHARE),
)
"""Metric, title, unit and look of each chart; its id is `m-` and the metric's name."""

INTRODUCTION = (
    "Drift: the policy being trained against the old policy, by the updates in between. Mismatch: the trainer's old "
    "policy against what the sampler said of the same tokens. Bands of largest values reach to single updates."
)
COVERED = (
    "Entropy, mismatch, drift and the spread of log-ratios cover the responses that the trainer evaluated: without a "
    "KL term only those with A ≠ 0, and with the sampler's old log-probs entropy and mismatch only mini-batch 0. As "
    "groups without a signal become more, these curves are of fewer, undecided prompts. Clip fractions are of all "
    "response tokens."
)
"""Where an arm skips responses without advantage."""

BINS = 8
LEAST = 20
"""Responses that a length bin must hold for its spread to be shown."""
DETAILS = 50
"""Steps whose responses are read, evenly over the run: each holds every response of its updates."""


def diagnostics(study: Source) -> Section | None:
    """One small chart per entry of `DIAGNOSTICS`, and the sequence ratio's spread by length."""
    body: list[Part] = [h("p", INTRODUCTION)]
    if skipping(study.declaration):
        body.append(h("p", COVERED, class_="soft"))
    body += [curve(study, metric, title, unit, small=True, **look) for metric, title, unit, look in DIAGNOSTICS]
    return Section("diagnostics", "Diagnostics", (*body, by_length(study)))


def skipping(declared: Declaration) -> bool:
    """Whether an arm leaves responses with A = 0 out of its forward passes."""
    key = "update.skip_zero_advantage"
    known = [arm.settings for arm in declared.arms.values() if declared.is_known(arm.name, key)]
    return any(settings.update.skip_zero_advantage and not settings.objective.regularised for settings in known)


def by_length(study: Source) -> Chart:
    """Per arm the standard deviation of the sequence log-ratio, for responses of like length."""
    recorded = math.lcm(*(arm.settings.record.detail_every for arm in study.declaration.arms.values()))
    last = course(study).last
    stride = max(1, -(-(last + 1) // (recorded * DETAILS))) * recorded
    details = responses(study, ("length", "sum_log_ratio"), LATER, range(0, last + 1, stride))
    lengths: dict[str, Floats] = {}
    ratios: dict[str, Floats] = {}
    for arm in study.arms:
        parts = [details[run.id] for run in runs(study) if run.arm == arm and len(details[run.id]["length"])]
        if parts:  # an update whose responses all had no advantage measured none
            lengths[arm] = np.concatenate([part["length"] for part in parts])
            ratios[arm] = np.concatenate([part["sum_log_ratio"] / np.maximum(part["length"], 1) for part in parts])
    series = []
    if lengths:
        bounds = shared_bounds(lengths.values(), BINS)
        for arm in lengths:
            if points := spread_by_length(lengths[arm], ratios[arm], bounds, LEAST):
                x, y = zip(*points, strict=True)
                series.append(Series(arm, x, y))
    note = (
        f"Standard deviation of log s over responses of like length, all seeds together; bins of at least {LEAST} "
        f"responses with bounds that all arms share. Read at every {stride}th step."
    )
    return Chart("m-log-ratio-length", "Spread of the sequence log-ratio by response length", "tokens", "nats",
                 tuple(series), whole=True, small=True, note=note, reading="sum_log_ratio.std.by-length")  # fmt: skip
