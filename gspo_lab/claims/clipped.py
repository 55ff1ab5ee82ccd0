"""Clip fractions by mini-batch, put together by tokens: one rule for the terminal and the report."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gspo_lab.study import settled_since

if TYPE_CHECKING:
    from pandas import DataFrame

    from gspo_lab.store import Evidence


def after_warmup(evidence: "Evidence", study: str, weights: Mapping[str, str]) -> "DataFrame":
    """`Evidence.by_minibatch` without the steps in which the learning rate still rose, where any others are left."""
    settled = evidence.by_minibatch(study, weights, since=settled_since(evidence.study(study)))
    return settled if len(settled) else evidence.by_minibatch(study, weights)


def weighted(frame: "DataFrame", metric: str) -> float | None:
    """One run's mean of the metric over the mini-batches of `frame`, every update weighted by its tokens."""
    heights, weights = (frame[name].to_numpy(dtype=np.float64) for name in (metric, f"{metric}.weight"))
    known = ~np.isnan(heights)
    total = weights[known].sum()
    found = float((heights[known] * weights[known]).sum() / total) if total else math.nan
    return found if math.isfinite(found) else None


def seed_mean(frame: "DataFrame", metric: str) -> float | None:
    """The mean over seeds of each run's weighted mean; `frame` has one arm."""
    runs = [weighted(own, metric) for _, own in frame.groupby("seed", sort=True)]
    known = [one for one in runs if one is not None]
    return sum(known) / len(known) if known else None
