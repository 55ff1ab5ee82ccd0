"""What a study recorded, as claims read it: finished runs only, settled steps, one number per seed."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gspo_lab.claims.outcomes import stabilities
from gspo_lab.claims.parts import Untestable
from gspo_lab.stats.collapse import Stability
from gspo_lab.stats.series import carry_last_finite, normalised_auc, tail_mean
from gspo_lab.study import first_settled, primary_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from gspo_lab.store import Evidence

Floats = NDArray[np.float64]
CLIP = "clip_fraction_tokens"


@dataclass(frozen=True)
class Details:
    """Every response of a run's settled updates with minibatch >= 1, one entry each."""

    length: Floats
    advantage: Floats
    total: Floats
    """Sum of l_t over the response."""
    squares: Floats
    """Sum of l_t squared."""
    clipped: Floats
    """Tokens that the clip bound."""


class Recorded:
    """One study's evidence, read when asked for and kept. Arms are named as in the study."""

    def __init__(self, evidence: "Evidence", study: str) -> None:
        self.evidence = evidence
        self.study = study
        self.content: dict[str, Any] = evidence.study(study)
        self.settings: dict[str, dict[str, Any]] = {
            arm: entry["settings"] for arm, entry in self.content["arms"].items()
        }
        self._frames: dict[tuple[str, tuple[str, ...]], DataFrame] = {}
        self.details = cache(self._details)
        self.band_counts = cache(self._band_counts)

    @property
    def margin(self) -> float:
        """The study's declared margin of equivalence, in units of the score."""
        return float(self.content["verdict"]["margin"])

    @cached_property
    def primary(self) -> str | None:
        """The benchmark that decides the study, if it has any."""
        return primary_of(self.content)

    @cached_property
    def runs(self) -> dict[tuple[str, int], str]:
        """(arm, seed) -> run id of every finished run."""
        frame = self.evidence.runs(self.study)
        done = frame[frame["state"] == "finished"]
        return {
            (str(arm), int(seed)): str(run)
            for arm, seed, run in zip(done["arm"], done["seed"], done["run_id"], strict=True)
        }

    def seeds(self, arms: Iterable[str]) -> list[int]:
        """The seeds on which all of these arms have finished."""
        every = [{seed for name, seed in self.runs if name == arm} for arm in arms]
        return sorted(set.intersection(*every)) if every else []

    @cached_property
    def mixtures(self) -> dict[str, bool | None]:
        """Per arm whether its model routed tokens to experts; None while no run of it has an update."""
        frame = self.frame("updates", "expert_change")
        out: dict[str, bool | None] = {}
        for arm in self.settings:
            own = frame[frame["arm"] == arm]["expert_change"]
            out[arm] = bool(own.notna().any()) if len(own) else None
        return out

    def frame(self, table: str, *metrics: str) -> "DataFrame":
        """The metrics of all finished runs, from `steps` or `updates`."""
        key = (table, metrics)
        if key not in self._frames:
            read = self.evidence.steps if table == "steps" else self.evidence.updates
            frame = read(self.study, list(metrics))
            self._frames[key] = frame[frame["run_id"].isin(set(self.runs.values()))]
        return self._frames[key]

    def of(self, arm: str, seed: int, table: str, *metrics: str) -> "DataFrame":
        """One run's rows; Untestable where a metric was not recorded at all."""
        frame = self.frame(table, *metrics)
        own = frame[(frame["arm"] == arm) & (frame["seed"] == seed)]
        for metric in metrics:
            if own[metric].isna().all():
                raise Untestable(f"{metric} was not recorded in {arm}, seed {seed}")
        return own

    def first_settled(self, arm: str) -> int:
        """The arm's first step whose updates all have the full learning rate."""
        return first_settled(self.settings[arm])

    def settled(self, arm: str, seed: int, *metrics: str, later: bool = False) -> "DataFrame":
        """One run's updates after the warm-up of the learning rate; with `later` those with minibatch >= 1."""
        own = self.of(arm, seed, "updates", *metrics)
        first = self.first_settled(arm)
        rows = own[(own["step"] >= first) & (own["minibatch"] >= (1 if later else 0))]
        if rows.empty:
            steps = self.settings[arm]["steps"]
            after = " and minibatch >= 1" if later else ""
            raise Untestable(
                f"{arm} has no update after the learning rate's warm-up{after}: {first} of {steps} steps warm up"
            )
        return rows

    def share(self, arm: str, seed: int, metric: str, weight: str, *, later: bool = False) -> float:
        """A run's mean of a share, every settled update weighted by its tokens."""
        rows = self.settled(arm, seed, metric, weight, later=later).dropna()
        return float((rows[metric] * rows[weight]).sum() / rows[weight].sum())

    def clipped(self, arm: str, seed: int) -> tuple[int, int]:
        """(clipped tokens, response tokens) over a run's settled updates."""
        rows = self.settled(arm, seed, CLIP, "response_tokens")
        tokens = rows["response_tokens"]
        return round(float((rows[CLIP] * tokens).sum())), int(tokens.sum())

    def reward_auc(self, arm: str, seed: int) -> float:
        """Normalised area under the run's training reward over its steps: the mean height, in units of reward."""
        rows = self.of(arm, seed, "steps", "reward_mean")
        reward, _ = carry_last_finite(rows["reward_mean"].to_numpy(dtype=np.float64))
        return normalised_auc(rows["step"], reward)

    def scores(self, arm: str, seed: int, bench: str | None = None) -> "DataFrame":
        """A run's evaluations of a benchmark (the primary one): step and score, ungraded ones carried."""
        wanted = bench or self.primary
        if wanted is None:
            raise Untestable("the study declares no benchmark, so there is no score")
        frame = self.evidence.scores(self.study)
        rows = frame[(frame["run_id"] == self.runs[arm, seed]) & (frame["bench"] == wanted)].sort_values("step")
        if rows.empty or math.isnan(rows["score"].iloc[0]):
            raise Untestable(f"{wanted} was not evaluated at the start of {arm}, seed {seed}")
        return rows.assign(score=carry_last_finite(rows["score"])[0])[["step", "score"]]

    def final(self, arm: str, seed: int, bench: str | None = None) -> float:
        """The run's score at the planned end: the mean of its last `verdict.last` evaluations."""
        rows = self.scores(arm, seed, bench)
        return tail_mean(rows[rows["step"] > 0]["score"], self.content["verdict"]["last"])

    def stability(self, arm: str, seed: int) -> Stability:
        found = self._stabilities.get(self.runs[arm, seed])
        if found is None:
            raise Untestable(f"reward_mean was not recorded in {arm}, seed {seed}")
        return found

    @cached_property
    def _stabilities(self) -> dict[str, Stability]:
        return stabilities(self.evidence, self.study)

    def _details(self, arm: str, seed: int) -> Details:
        rows = self.settled(arm, seed, "response_detail", later=True)["response_detail"].dropna()
        if rows.empty:
            raise Untestable(f"response_detail was recorded at no settled update of {arm}, seed {seed}")
        found = [json.loads(text) for text in rows]
        names = ("length", "advantage", "sum_log_ratio", "sum_square_log_ratio", "clipped_tokens")
        return Details(*(np.concatenate([np.asarray(one[name], dtype=np.float64) for one in found]) for name in names))

    def _band_counts(self, arm: str, seed: int) -> Mapping[str, Floats]:
        """Per rule the tokens that its reference range x 1/4, 1/2, 1, 2, 4 would bind in the run's settled updates."""
        rows = self.settled(arm, seed, "band_counts")["band_counts"].dropna()
        found = [json.loads(text) for text in rows]
        return {
            rule: np.sum([[*map(sum, zip(one[rule]["low"], one[rule]["high"], strict=True))] for one in found], axis=0)
            for rule in ("grpo", "gspo")
        }
