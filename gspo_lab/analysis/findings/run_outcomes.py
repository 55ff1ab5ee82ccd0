"""The outcome of each run: its final score by the study's declared rule, and whether it was
unstable.
"""

from dataclasses import dataclass
from math import fsum, sqrt

import numpy as np

from gspo_lab.analysis.readings import Source, average, once, runs
from gspo_lab.analysis.readings.answers import counted_wrong, evaluations
from gspo_lab.analysis.readings.curves import measured, nonfinite_steps
from gspo_lab.analysis.stats.collapse import Stability, stability
from gspo_lab.analysis.stats.curve_summaries import carry_last_finite, tail_mean
from gspo_lab.common.plain_data import Integers, OptionalFloat, OptionalText

NOISE = 2
"""Standard errors of answers that a fall from the best score must exceed."""
NOT_JUDGED = "not judged"
"""Stands where a run has too few evaluations and steps to judge its stability."""


@dataclass(frozen=True)
class RunOutcome:
    """One run on one benchmark. `final` is the mean of the last evaluations of a finished run, else
    None.

    `final` leaves out ungraded answers (`errors`); `counted_wrong` counts them as wrong. Both are
    of the evaluations after `steps`. `carried` counts evaluations without any grade, which repeat
    the one before. `nonfinite` counts updates that were skipped or not finite. `latest` is the
    score of an unfinished run so far. `best` is the highest value that `final` would have had at
    any earlier end, or the start's score. It is the highest of `scores` numbers: a single one shows
    no drop.
    """

    arm: str
    seed: int
    state: str
    start: OptionalFloat
    final: OptionalFloat
    counted_wrong: OptionalFloat
    steps: Integers
    latest: OptionalFloat
    evaluations: int
    carried: int
    errors: int
    nonfinite: int
    stability: Stability | None
    best: OptionalFloat = None
    scores: int = 0
    best_evaluation: OptionalFloat = None
    """The highest score of a single evaluation after the start."""
    answers: OptionalFloat = None
    """The answers behind `final`, of all its evaluations; None: not recorded."""

    @property
    def gain(self) -> OptionalFloat:
        """The final score less that of the starting model; None where either was not measured."""
        return None if self.final is None or self.start is None else self.final - self.start

    @property
    def collapsed(self) -> bool:
        """Whether the run collapsed; False, too, where that could not be judged."""
        return self.stability is not None and self.stability.collapse is not None

    @property
    def drop(self) -> OptionalFloat:
        """The best score of the run less its final one; None with fewer than two scores."""
        return (
            None
            if self.final is None or self.best is None or self.scores < 2
            else self.best - self.final
        )

    @property
    def unstable(self) -> bool:
        """Whether the run collapsed, regressed, or ended below half of its best score."""
        return self.collapsed or self.ended_below_half or self.regressed

    @property
    def regressed(self) -> bool:
        """Whether the reward regressed, perhaps for a while; False, too, where that could not be
        judged.
        """
        return self.stability is not None and self.stability.regression is not None

    @property
    def ended_below_half(self) -> bool:
        """Whether the final score is below half of the best one by more than the noise of so few
        answers; a short run can show it too.
        """
        if self.final is None or self.best is None or self.final >= 0.5 * self.best:
            return False
        if not self.answers:
            return True
        share = (self.final + self.best) / 2
        error = sqrt(max(0.0, 2 * share * (1 - share)) / self.answers)
        return self.best - self.final > NOISE * error

    @property
    def judged(self) -> bool:
        """Whether the run is long enough to show that it did not collapse; a collapse shows in any
        run.
        """
        return self.stability is not None and (self.stability.judged or self.collapsed)

    @property
    def stability_judged(self) -> bool:
        """Whether the run's stability can be judged: by its reward, or by its final score beside an
        earlier one.
        """
        return self.judged or self.regressed or self.drop is not None


@once
def outcomes(source: Source, bench: OptionalText) -> list[RunOutcome]:
    """One entry per run of the study, arm by arm, seed by seed; without a benchmark they have no
    score.

    The starting model's score is never part of `final`.
    """
    rule = source.declaration.verdict
    scored = evaluations(source, bench or "")
    out = []
    for run in runs(source):
        step, score, failed, answers = scored.get(run.id, np.zeros((4, 0)))
        start = score[step == 0]
        trained = int(np.count_nonzero(step > 0))
        start = start[~np.isnan(start)][:1]
        final = wrong = latest = best = best_evaluation = None
        scores: list[float] = []
        deciding = tuple(rule.deciding(step.astype(int).tolist()))
        last = max(1, len(deciding))
        asked = fsum(answers[step > 0][-last:])
        errors = sum(int(count) for count in failed[step > 0][-last:] if count == count)
        carried = 0
        # An evaluation without grades repeats the one before it. Without a start's score the first
        # has none to repeat.
        curve = score if len(start) else score[step > 0]
        if trained and not np.isnan(curve[0]):
            values, missing = carry_last_finite(curve)
            values = values[-trained:]
            missing = missing[-trained:]
            latest = float(values[-1])
            carried = int(np.count_nonzero(missing[-last:]))
            final = tail_mean(values, last) if run.finished else None
            ends = [tail_mean(values[:end], last) for end in range(min(last, trained), trained + 1)]
            scores = [*ends, *start.tolist()]
            best = max(scores)
            best_evaluation = float(values.max())
        if final is not None:
            wrong = final
            if errors:
                scored_wrong = counted_wrong(source, bench or "", run.id)
                wrong = average(scored_wrong[at] for at in deciding)
        out.append(
            RunOutcome(
                arm=run.arm,
                seed=run.seed,
                state=run.state,
                start=float(start[0]) if len(start) else None,
                final=final,
                counted_wrong=wrong,
                steps=deciding,
                latest=latest,
                evaluations=trained,
                carried=carried,
                errors=errors,
                nonfinite=len(nonfinite_steps(source).get(run.id, ())),
                stability=stabilities(source).get(run.id),
                best=best,
                scores=len(scores),
                best_evaluation=best_evaluation,
                answers=None if np.isnan(asked) else asked,
            )
        )
    return out


def deciding_steps(source: Source, bench: OptionalText) -> Integers:
    """After which steps the evaluations lie whose mean is a run's final score; empty before any run
    has one.
    """
    ended = [run.steps for run in outcomes(source, bench) if run.final is not None]
    return max(ended, key=len, default=())


@once
def stabilities(source: Source) -> dict[str, Stability]:
    """Per run id with a reward or non-finite updates its stability; an imported run is as long as
    its log.
    """
    out = {}
    for run in runs(source):
        steps, reward = measured(source).get(run.id, ((), ()))
        fatal = nonfinite_steps(source).get(run.id, [])
        length = (
            int(max([*steps[-1:], *fatal])) + 1
            if run.imported and (len(steps) or fatal)
            else run.steps_planned
        )
        if (len(steps) or fatal) and length is not None:
            out[run.id] = stability(steps, reward, length, nonfinite_steps=fatal)
    return out
