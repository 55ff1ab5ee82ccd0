"""What a study recorded, as claims read it: finished runs of the deciding seeds, settled steps, one number per seed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from gspo_lab.claims.estimates import Estimate, Region, Untestable, over_seeds
from gspo_lab.findings import Findings
from gspo_lab.findings.outcomes import RunOutcome
from gspo_lab.readings import (
    Curve,
    Minibatch,
    Reading,
    Source,
    Steps,
    Value,
    Weight,
    Window,
    average,
    by_step,
    once,
    read,
)
from gspo_lab.readings.responses import Columns, responses
from gspo_lab.stats.arrays import Floats
from gspo_lab.stats.collapse import Stability
from gspo_lab.stats.series import carry_last_finite
from gspo_lab.study import Settings

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Details:
    """Every response of a run's settled updates with minibatch >= 1, one entry each."""

    length: Floats
    total: Floats
    """Sum of l_t over the response."""
    squares: Floats
    """Sum of l_t squared."""
    clipped: Floats
    """Tokens that the clip bound."""


DETAILS = ("length", "sum_log_ratio", "sum_square_log_ratio", "clipped_tokens")
"""The lists of `response_detail` behind the fields of `Details`."""


class Recorded:
    """One study's findings as claims read them. Arms are named as in the study. With `wrong` answers that could not be
    graded count as wrong, else they are left out."""

    def __init__(self, found: Findings, *, wrong: bool = False) -> None:
        self.found = found
        self._wrong = wrong
        self.settings: dict[str, Settings] = {name: arm.settings for name, arm in found.declaration.arms.items()}
        self.verdict = found.declaration.verdict
        self._frames: dict[tuple[str, tuple[str, ...]], DataFrame] = {}

    @cached_property
    def mixtures(self) -> dict[str, bool | None]:
        """Per arm whether its model routed tokens to experts; None while no run of it has an update."""
        frame = self.frame("updates", "expert_change")
        own = {arm: frame[frame["arm"] == arm]["expert_change"] for arm in self.settings}
        return {arm: bool(rows.notna().any()) if len(rows) else None for arm, rows in own.items()}

    def seeds(self, arms: Iterable[str]) -> list[int]:
        """The seeds that decide and on which all of these arms have finished."""
        return [seed for seed in self.found.seeds(arms) if seed in self.found.declaration.deciding]

    def frame(self, table: str, *metrics: str) -> "DataFrame":
        """The metrics of all runs that count, from `steps` or `updates`."""
        key = (table, metrics)
        if key not in self._frames:
            read = self.found.evidence.steps if table == "steps" else self.found.evidence.updates
            frame = read(self.found.study, list(metrics))
            self._frames[key] = frame[frame["run_id"].isin(set(self.found.deciding.values()))]
        return self._frames[key]

    def of(self, arm: str, seed: int, table: str, *metrics: str) -> "DataFrame":
        """One run's rows; Untestable where a metric was not recorded at all."""
        frame = self.frame(table, *metrics)
        own = frame[(frame["arm"] == arm) & (frame["seed"] == seed)]
        for metric in metrics:
            if own[metric].isna().all():
                raise Untestable(f"{metric} was not recorded in {arm}, seed {seed}")
        return own

    def read(self, reading: Reading, arm: str, seed: int) -> Value:
        """The reading of one run, with a finite value. Untestable, with the reason, where it has none."""
        run = self.found.finished[arm, seed]
        value = read(self.found, reading)[run]
        if value.value is not None:
            return value
        everywhere = Reading(reading.metric, Window(Steps.ALL), weight=Weight.ROWS)
        if not read(self.found, everywhere)[run].weight:
            raise Untestable(f"{reading.metric} was not recorded in {arm}, seed {seed}")
        if reading.table == "updates" and reading.window.steps is Steps.SETTLED:
            raise _unsettled(self, arm, run, later=reading.window.minibatch is Minibatch.LATER)
        raise Untestable(f"{reading.metric} is finite at no step of {arm}, seed {seed}")

    def number(self, reading: Reading, arm: str, seed: int) -> float:
        """The same without its weight."""
        return float(self.read(reading, arm, seed).value or 0.0)

    def mean(self, reading: Reading, arm: str) -> float:
        """The mean over the runs of an arm that count, each run once. Untestable as `read` is."""
        found = average(self.number(reading, arm, seed) for seed in self.seeds([arm]))
        return math.nan if found is None else found

    def curve(self, reading: Reading, arm: str, seed: int) -> Curve:
        """The reading of one run step by step. Untestable where its metric was not recorded."""
        self.read(reading, arm, seed)
        return by_step(self.found, reading)[self.found.finished[arm, seed]]

    def reward(self, arm: str, seed: int) -> tuple[Floats, Floats]:
        """Steps and mean training reward of a run, by the findings' rule."""
        if (arm, seed) not in self.found.rewards:
            raise Untestable(f"reward_mean was not recorded in {arm}, seed {seed}")
        return self.found.rewards[arm, seed]

    def scores(self, arm: str, seed: int, bench: str | None = None) -> "DataFrame":
        """A run's evaluations of a benchmark (the primary one): step and score, ungraded ones carried."""
        wanted = bench or self.found.declaration.primary
        if wanted is None:
            raise Untestable("the study declares no benchmark, so there is no score")
        run, frame = self.found.finished[arm, seed], self.found.scores
        rows = frame[(frame["run_id"] == run) & (frame["bench"] == wanted)].sort_values("step")
        if self._wrong:
            rows = rows.assign(score=rows["step"].map(self.found.counted_wrong(wanted, run)))
        if rows.empty or math.isnan(rows["score"].iloc[0]):
            raise Untestable(f"{wanted} was not evaluated at the start of {arm}, seed {seed}")
        return rows.assign(score=carry_last_finite(rows["score"])[0])[["step", "score"]]

    def final(self, arm: str, seed: int, bench: str | None = None) -> float:
        """The run's score at the planned end: the mean of its last `verdict.last` evaluations."""
        wanted = bench or self.found.declaration.primary
        run = self.outcome(arm, seed, wanted)
        known = run.counted_wrong if self._wrong else run.final
        if known is not None:
            return known
        self.scores(arm, seed, bench)  # which says what is missing
        raise Untestable(f"{wanted} was not evaluated after the start of {arm}, seed {seed}")

    def over_seeds(
        self,
        name: str,
        values: Mapping[int, float],
        supported: Region | None,
        contradicted: Sequence[Region] | None = None,
        *,
        ratio: bool = False,
        scores_of: Sequence[str] = (),
    ) -> Estimate:
        """The estimate of one number per seed at the study's level. `scores_of` names the two arms of a difference of
        primary scores: there the interval is at least as wide as finitely many answers make it."""
        variance = None
        if len(scores_of) == 2 and not ratio:
            first, second = scores_of
            variance = self.found.answers_variance(second, first, list(values), counted_wrong=self._wrong)
        return over_seeds(
            name, values, supported, contradicted, alpha=self.verdict.alpha, ratio=ratio, items_variance=variance
        )

    def outcome(self, arm: str, seed: int, bench: str | None = None) -> RunOutcome:
        """What became of a run on a benchmark (the primary one)."""
        runs = self.found.outcomes(bench or self.found.declaration.primary)
        return next(run for run in runs if (run.arm, run.seed) == (arm, seed))

    def stability(self, arm: str, seed: int) -> Stability:
        """Whether a finished run stood. Untestable where neither reward nor updates were recorded."""
        found = self.found.stabilities.get(self.found.finished[arm, seed])
        if found is None:
            raise Untestable(f"reward_mean was not recorded in {arm}, seed {seed}")
        return found


def settled(recorded: Recorded, arm: str, seed: int, metric: str) -> "DataFrame":
    """A metric of one run's updates with minibatch >= 1 after the warm-up of the learning rate."""
    rows = recorded.of(arm, seed, "updates", metric)
    run = recorded.found.finished[arm, seed]
    kept = rows[(rows["step"] >= recorded.found.settled[run]) & (rows["minibatch"] >= 1)]
    if kept.empty:
        raise _unsettled(recorded, arm, run, later=True)
    return kept


def details(recorded: Recorded, arm: str, seed: int) -> Details:
    """The recorded responses of one run. Untestable where none was recorded."""
    columns = _responses(recorded.found)[recorded.found.finished[arm, seed]]
    if not len(columns["length"]):
        recorded.of(arm, seed, "updates", "response_detail")  # which says where none was recorded at all
        raise Untestable(f"response_detail was recorded at no settled update of {arm}, seed {seed}")
    return Details(*(columns[name] for name in DETAILS))


@once
def _responses(of: Source) -> Mapping[str, Columns]:
    most = max(arm.settings.steps for arm in of.declaration.arms.values())
    return responses(of, DETAILS, Window(minibatch=Minibatch.LATER), range(most))


def _unsettled(recorded: Recorded, arm: str, run: str, *, later: bool) -> Untestable:
    after = " and minibatch >= 1" if later else ""
    steps = f"{recorded.found.settled[run]} of {recorded.settings[arm].steps} steps warm up"
    return Untestable(f"{arm} has no update after the learning rate's warm-up{after}: {steps}")
