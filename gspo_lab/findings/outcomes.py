"""What became of each run: its score at the end, by the rule that the study declared, and whether it collapsed."""

from dataclasses import dataclass

import numpy as np

from gspo_lab.readings import Source, average, once, runs
from gspo_lab.readings.answers import counted_wrong, evaluations
from gspo_lab.readings.curves import measured_rewards, nonfinite_steps
from gspo_lab.stats.collapse import Stability, stability
from gspo_lab.stats.series import carry_last_finite, tail_mean

NOT_JUDGED = "not judged"
"""Stands wherever a run has too few evaluations and steps to tell whether it fell."""


@dataclass(frozen=True)
class RunOutcome:
    """One run on one benchmark. `final` is the mean of the last evaluations of a finished run, else None.

    Single answers that could not be graded (`errors`) are left out of it; in `counted_wrong`, else the same number,
    they are wrong. Both are of the evaluations after `steps`. `carried` counts evaluations without any grade, which
    `final` replaces by the one before them; `nonfinite` are updates that were skipped, or of a dead model. `latest` is
    where an unfinished run stands. `best` is the highest that `final` would have been at any end, or the start's score.
    `scores` is how many numbers `best` is the highest of: one alone shows no fall.
    """

    arm: str
    seed: int
    state: str
    start: float | None
    final: float | None
    counted_wrong: float | None
    steps: tuple[int, ...]
    latest: float | None
    evaluations: int
    carried: int
    errors: int
    nonfinite: int
    stability: Stability | None
    best: float | None = None
    scores: int = 0

    @property
    def gain(self) -> float | None:
        """The final score less that of the starting model; None where either was not measured."""
        return None if self.final is None or self.start is None else self.final - self.start

    @property
    def collapsed(self) -> bool:
        """Whether the run fell for good; False, too, where that could not be judged."""
        return self.stability is not None and self.stability.collapse is not None

    @property
    def lost(self) -> float | None:
        """How far the final score lies below the best one of its run; None where there is no other score."""
        return None if self.final is None or self.best is None or self.scores < 2 else self.best - self.final

    @property
    def fell(self) -> bool:
        """Whether the run collapsed, fell back to half of what it had gained, or ended below half of its best score."""
        return self.collapsed or self.halved or self.regressed

    @property
    def regressed(self) -> bool:
        """Whether the reward fell back, perhaps for a while; False, too, where that could not be judged."""
        return self.stability is not None and self.stability.regression is not None

    @property
    def halved(self) -> bool:
        """Whether the final score is below half of the best one: what a run too short for its reward can still show."""
        return self.final is not None and self.best is not None and self.final < 0.5 * self.best

    @property
    def judged(self) -> bool:
        """Whether the run is long enough to be told not to have collapsed; a collapse is seen in any."""
        return self.stability is not None and (self.stability.judged or self.collapsed)

    @property
    def fall_judged(self) -> bool:
        """Whether it can be told if the run fell: by its reward, or by its final score beside an earlier one."""
        return self.judged or self.regressed or self.lost is not None


@once
def outcomes(found: Source, bench: str | None) -> list[RunOutcome]:
    """One entry per run of the study, arm by arm, seed by seed; without a benchmark they have no score.

    The starting model's score is never part of `final`.
    """
    last = found.declaration.verdict.last
    scored, out = evaluations(found, bench or ""), []
    for run in runs(found):
        step, score, failed = scored.get(run.id, np.zeros((3, 0)))
        start, trained = score[step == 0], int(np.count_nonzero(step > 0))
        start = start[~np.isnan(start)][:1]
        final = wrong = latest = best = None
        scores: list[float] = []
        deciding = tuple(int(one) for one in step[step > 0][-last:])
        errors = sum(int(count) for count in failed[step > 0][-last:] if count == count)
        carried = 0
        # What no grade was found for has the score before; where that is the start's, and it has none, nothing has.
        curve = score if len(start) else score[step > 0]
        if trained and not np.isnan(curve[0]):
            values, missing = carry_last_finite(curve)
            values, missing = values[-trained:], missing[-trained:]
            latest, carried = float(values[-1]), int(np.count_nonzero(missing[-last:]))
            final = tail_mean(values, last) if run.finished else None
            ends = [tail_mean(values[:end], last) for end in range(min(last, trained), trained + 1)]
            scores = [*ends, *start.tolist()]
            best = max(scores)
        if final is not None:
            wrong = final
            if errors:
                scored_wrong = counted_wrong(found, bench or "", run.id)
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
                nonfinite=len(nonfinite_steps(found).get(run.id, ())),
                stability=stabilities(found).get(run.id),
                best=best,
                scores=len(scores),
            )
        )
    return out


@once
def stabilities(found: Source) -> dict[str, Stability]:
    """Per run id what its reward and its non-finite updates say; runs without either are left out. An imported run
    is as long as its log."""
    out = {}
    for run in runs(found):
        steps, reward = measured_rewards(found).get(run.id, ((), ()))
        fatal = nonfinite_steps(found).get(run.id, [])
        length = int(max([*steps[-1:], *fatal])) + 1 if run.imported and (len(steps) or fatal) else run.steps_planned
        if (len(steps) or fatal) and length is not None:
            out[run.id] = stability(steps, reward, length, nonfinite_steps=fatal)
    return out
