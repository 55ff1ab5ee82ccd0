"""Clip fractions by mini-batch, put together by tokens: one rule for terminal, report and claims."""

import math
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gspo_lab.objectives.measures import WITHOUT_CLIP
from gspo_lab.stats.arrays import Floats
from gspo_lab.study import Declaration

if TYPE_CHECKING:
    from pandas import DataFrame

    from gspo_lab.store import Evidence

CLIP, ACTIVE = "clip_fraction_tokens", "clip_fraction_active_tokens"
WEIGHTS = {
    CLIP: "response_tokens",
    "clip_fraction_tokens_high": "response_tokens",
    "clip_fraction_tokens_low": "response_tokens",
    "would_clip_fraction_tokens_grpo": "response_tokens",
    "would_clip_fraction_tokens_gspo": "response_tokens",
    ACTIVE: "active_tokens",
}
"""What is told by mini-batch index, and the tokens that weigh it."""

NO_CLIP = "no clip"
"""What stands for the clip fraction of an arm whose loss has no clip: nothing was left unmeasured."""

SATURATED = 0.45
"""Above this clipped share of the active tokens on mini-batches >= 1 a narrower range could hardly clip more: the mean
ratio is near 1."""


class Clipped:
    """A study's clip fractions; the steps in which the learning rate still rose are left out where others are there."""

    def __init__(self, evidence: "Evidence", declaration: Declaration, since: Mapping[str, int]) -> None:
        """`since` has per run id its first settled step."""
        self._evidence = evidence
        self._declaration = declaration
        self._since = since
        self._known: dict[tuple[str, bool], dict[str, dict[int, float | None]]] = {}

    @cached_property
    def frame(self) -> "DataFrame":
        """`Evidence.by_minibatch` of WEIGHTS: a row per run and mini-batch index."""
        study = self._declaration.name
        settled = self._evidence.by_minibatch(study, WEIGHTS, since=self._since)
        return settled if len(settled) else self._evidence.by_minibatch(study, WEIGHTS)

    @cached_property
    def later(self) -> "DataFrame":
        """The same of mini-batches >= 1: on the first one all ratios are 1."""
        return self.frame[self.frame["minibatch"] >= 1]

    def share(
        self, arm: str, metric: str = CLIP, *, seeds: Collection[int] | None = None, all_minibatches: bool = False
    ) -> float | None:
        """An arm's mean over seeds of each run's weighted mean over mini-batches >= 1; None: not measured."""
        runs = self._runs(metric, all_minibatches).get(arm, {})
        known = [one for seed, one in runs.items() if one is not None and (seeds is None or seed in seeds)]
        return sum(known) / len(known) if known else None

    def _runs(self, metric: str, all_minibatches: bool) -> dict[str, dict[int, float | None]]:
        """Per arm and seed the run's weighted mean."""
        key = (metric, all_minibatches)
        if key not in self._known:
            found: dict[str, dict[int, float | None]] = {}
            frame = self.frame if all_minibatches else self.later
            for (arm, seed), share in weighted_by_run(frame, metric).items():
                found.setdefault(arm, {})[seed] = share
            self._known[key] = found
        return self._known[key]

    def clips(self, arm: str) -> bool:
        """Whether the arm's loss takes any token's gradient."""
        return self._declaration.arms[arm].settings.objective.policy_loss not in WITHOUT_CLIP

    def saturated(self, arm: str) -> bool:
        """Whether the arm's clip fraction is a ceiling, and no measurement of its rule."""
        active = self.active(arm)
        return active is not None and active > SATURATED

    def active(self, arm: str) -> float | None:
        """The share of the active tokens by which saturation is judged: that of the seeds that decide."""
        return self.share(arm, ACTIVE, seeds=self._declaration.deciding)


def weighted(frame: "DataFrame", metric: str) -> float | None:
    """One run's mean of the metric over the mini-batches of `frame`, every update weighted by its tokens."""
    return _mean(*(frame[name].to_numpy(dtype=np.float64) for name in (metric, f"{metric}.weight")))


def weighted_by_run(frame: "DataFrame", metric: str) -> dict[tuple[str, int], float | None]:
    """The same of each run, by its arm and seed, in their order."""
    heights, weights = (frame[name].to_numpy(dtype=np.float64) for name in (metric, f"{metric}.weight"))
    rows: dict[tuple[str, int], list[int]] = {}
    for row, run in enumerate(zip(frame["arm"].tolist(), frame["seed"].tolist(), strict=True)):
        rows.setdefault(run, []).append(row)
    return {run: _mean(heights[rows[run]], weights[rows[run]]) for run in sorted(rows)}


def _mean(heights: Floats, weights: Floats) -> float | None:
    known = ~np.isnan(heights)
    total = weights[known].sum()
    found = float((heights[known] * weights[known]).sum() / total) if total else math.nan
    return found if math.isfinite(found) else None
