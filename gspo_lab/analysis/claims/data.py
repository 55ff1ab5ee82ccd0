"""A study as claims read it: finished runs of the deciding seeds, one number per seed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gspo_lab.analysis.claims.estimates import (
    Estimate,
    Region,
    Untestable,
    not_recorded,
    over_seeds,
)
from gspo_lab.analysis.findings.clip_fractions import warm_up_text
from gspo_lab.analysis.findings.imported_metrics import imported_metrics
from gspo_lab.analysis.findings.run_outcomes import RunOutcome, outcomes, stabilities
from gspo_lab.analysis.readings import (
    Source,
    average,
    by_minibatch,
    by_step,
    deciding,
    once,
    read,
    runs,
)
from gspo_lab.analysis.readings.answers import answers_variance, counted_wrong, evaluations
from gspo_lab.analysis.readings.reading import (
    Curve,
    Minibatch,
    Reading,
    Steps,
    Value,
    Weight,
    Window,
)
from gspo_lab.analysis.readings.runs import deciding_runs, first_settled
from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.analysis.stats.collapse import Stability
from gspo_lab.analysis.stats.curve_summaries import carry_last_finite
from gspo_lab.common.plain_data import OptionalText, Strings
from gspo_lab.study import Settings
from gspo_lab.study.verdict_tables import VerdictTable

Roles = Mapping[str, str]
"""Role -> the arm that plays it, e.g. {"grpo": "grpo-tuned", "gspo": "gspo"}."""


@dataclass(frozen=True)
class ClaimData:
    """One study's numbers for one claim, whose `roles` name the arms that it compares.

    With `ungraded_wrong` ungraded answers count as wrong, else they are left out. A number that was
    not measured raises Untestable, which names it.
    """

    source: Source
    roles: Roles = field(default_factory=dict)
    ungraded_wrong: bool = False

    @property
    def arms(self) -> Strings:
        """The arms of the claim, in the order of its roles."""
        return tuple(self.roles.values())

    @property
    def verdict(self) -> VerdictTable:
        """The rule that the study declares."""
        return self.source.declaration.verdict

    @property
    def seeds(self) -> list[int]:
        """The deciding seeds on which all arms of the claim have finished."""
        return self.seeds_of(self.arms)

    def settings(self, arm: str) -> Settings:
        """An arm's settings."""
        return self.source.declaration.arms[arm].settings

    def seeds_of(self, arms: Iterable[str]) -> list[int]:
        """The deciding seeds on which all of these arms have finished."""
        counting = deciding(self.source.declaration)
        return sorted({run.seed for run in runs(self.source, counting, list(arms))})

    def run(self, arm: str, seed: int) -> str:
        """The id of a finished run of a deciding seed."""
        return deciding_runs(self.source)[arm, seed]

    def value(self, reading: Reading, arm: str, seed: int) -> Value:
        """The reading of one run, with a finite value."""
        run = self.run(arm, seed)
        if reading.metric == "reward_mean":
            check_rewards(self.source)
        value = read(self.source, reading)[run]
        if value.value is not None:
            return value
        everywhere = Reading(reading.metric, Window(Steps.ALL), weight=Weight.ROWS)
        if not read(self.source, everywhere)[run].weight:
            raise not_recorded(reading.metric, arm, seed)
        if reading.table == "updates" and reading.window.steps is Steps.SETTLED:
            later = reading.window.minibatch is Minibatch.LATER
            warm_up = first_settled(self.source)[run]
            planned = self.settings(arm).steps
            text = warm_up_text(arm, warm_up, planned, later=later)
            raise Untestable("only-warm-up", text)
        text = f"{reading.metric} is finite at no step of {arm}, seed {seed}"
        raise Untestable("never-finite", text)

    def number(self, reading: Reading, arm: str, seed: int) -> float:
        """The value of a reading for one run, without its weight."""
        return float(self.value(reading, arm, seed).value or 0.0)

    def mean_of_arm(self, reading: Reading, arm: str) -> float:
        """The mean over the counting runs of an arm, each run once."""
        mean = average(self.number(reading, arm, seed) for seed in self.seeds_of([arm]))
        return math.nan if mean is None else mean

    def curve(self, reading: Reading, arm: str, seed: int) -> Curve:
        """The reading of one run step by step."""
        self.value(reading, arm, seed)
        return by_step(self.source, reading)[self.run(arm, seed)]

    def scores(self, arm: str, seed: int, bench: OptionalText = None) -> tuple[Floats, Floats]:
        """Steps and scores of a run's evaluations on a benchmark (the primary one), ungraded ones
        carried.
        """
        name = bench or self.source.declaration.primary
        if name is None:
            raise Untestable(
                "no-benchmark", "the study declares no benchmark, so there is no score"
            )
        run = self.run(arm, seed)
        steps, scores, *_ = evaluations(self.source, name).get(run, np.zeros((4, 0)))
        if self.ungraded_wrong and len(steps):
            by_step = counted_wrong(self.source, name, run)
            scores = np.array([by_step[int(step)] for step in steps])
        if not len(scores) or math.isnan(scores[0]):
            raise not_evaluated(name, "at", arm, seed)
        return steps, carry_last_finite(scores)[0]

    def final(self, arm: str, seed: int, bench: OptionalText = None) -> float:
        """The run's score at the planned end: the mean of the evaluations that decide."""
        name = bench or self.source.declaration.primary
        run = self.outcome(arm, seed, name)
        score = run.counted_wrong if self.ungraded_wrong else run.final
        if score is not None:
            return score
        self.scores(arm, seed, bench)  # raises Untestable with what is missing
        raise not_evaluated(str(name), "after", arm, seed)

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
        """The estimate of one number per seed at the study's level.

        `scores_of` names the two arms of a difference of primary scores, whose interval includes
        the answers' variance.
        """
        variance = None
        if len(scores_of) == 2 and not ratio:
            weights = dict(zip(scores_of, (1, -1), strict=True))
            variance = answers_variance(
                self.source, weights, list(values), counted_wrong=self.ungraded_wrong
            )
        return over_seeds(
            name,
            values,
            supported,
            contradicted,
            alpha=self.verdict.alpha,
            ratio=ratio,
            items_variance=variance,
        )

    def outcome(self, arm: str, seed: int, bench: OptionalText = None) -> RunOutcome:
        """The outcome of a run on a benchmark (the primary one)."""
        ended = outcomes(self.source, bench or self.source.declaration.primary or "")
        return next(run for run in ended if (run.arm, run.seed) == (arm, seed))

    def stability(self, arm: str, seed: int) -> Stability:
        """Whether a finished run became unstable, by its reward and its updates."""
        stability = stabilities(self.source).get(self.run(arm, seed))
        if stability is None:
            raise not_recorded("reward_mean", arm, seed)
        return stability


def check_rewards(source: Source) -> None:
    """Untestable where the arms' logs may sum different reward functions."""
    logged = imported_metrics(source)
    if logged is not None and logged.rewards_differ:
        raise Untestable("rewards-differ", "the arms' logs do not name the same reward functions")


def not_evaluated(bench: str, when: str, arm: str, seed: int) -> Untestable:
    """What a claim raises where a run has no score `when` ("at", "after") its start."""
    text = f"{bench} was not evaluated {when} the start of {arm}, seed {seed}"
    return Untestable("not-evaluated", text)


@once
def mixtures(source: Source) -> dict[str, bool | None]:
    """Per arm whether its model routed tokens to experts; None while no finished run of it has an
    update.
    """
    pools = by_minibatch(source, Reading("expert_change", Window(Steps.ALL)))
    out: dict[str, bool | None] = dict.fromkeys(source.declaration.arms)
    for (arm, _), run in deciding_runs(source).items():
        if pools[run]:
            routed = any(mean.value is not None for mean in pools[run].values())
            out[arm] = routed or bool(out[arm])
    return out
