"""`Findings`: what became of a study's runs, each number by one rule, read when first asked for and kept.

with Evidence.open(Path("runs/lab.db")) as evidence:
    found = Findings(evidence, "moe_stability")
    found.decision.sentences
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gspo_lab.findings.asked import Asked, asked
from gspo_lab.findings.compared import Compared, Scalar, compared, scalars
from gspo_lab.findings.course import Course, course
from gspo_lab.findings.decision import Decision, decision
from gspo_lab.findings.dose_response import DoseResponse, dose_response
from gspo_lab.findings.elsewhere import archived, executions_at
from gspo_lab.findings.executions import Executions, executions
from gspo_lab.findings.lengths import Lengths, lengths
from gspo_lab.findings.logged import Logged, logged
from gspo_lab.findings.noise import Graded, answers_variance, graded, noise
from gspo_lab.findings.outcomes import RunOutcome, outcomes, stabilities
from gspo_lab.findings.ranked import ranked
from gspo_lab.findings.steadiness import Regime, Steadiness, regime, steadiness
from gspo_lab.matching import Certificate, certificate
from gspo_lab.matching.tuned import Trials, read_trials
from gspo_lab.readings import FINISHED, RecordedRun, Source, by_step, runs
from gspo_lab.readings.read import SIGNALS, signal
from gspo_lab.readings.settled import first_settled
from gspo_lab.stats import TwoWay
from gspo_lab.stats.arrays import Floats
from gspo_lab.stats.collapse import Onset, Stability, signal_onset
from gspo_lab.stats.ranking import Ranking
from gspo_lab.stats.series import held
from gspo_lab.store.answers import grades, read_scores, tallies

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    from gspo_lab.store import Evidence


class Findings(Source):
    """One study in the database of `evidence`, which shows one moment for as long as it is open; `label` is its name
    where several stand side by side. In `elsewhere` further executions of it lie: folders of runs, databases."""

    def __init__(
        self, evidence: "Evidence", study: str, label: str | None = None, elsewhere: Sequence[Path] = ()
    ) -> None:
        super().__init__(evidence, study, label or study, tuple(elsewhere))
        self._outcomes: dict[str, list[RunOutcome]] = {}
        self._answers: dict[Asked, DataFrame] = {}
        self._tallies: dict[str, DataFrame] = {}
        self._onsets: dict[str, dict[str, Onset]] = {}

    @property
    def arms(self) -> list[str]:
        """The arms in their declared order, which is also the order of their colours."""
        return list(self.declaration.arms)

    @property
    def treatments(self) -> list[str]:
        """Every arm but the baseline."""
        return self.declaration.treatments

    @cached_property
    def frame(self) -> "DataFrame":
        """`Evidence.runs`: one row per run."""
        return self.evidence.runs(self.study)

    @property
    def runs(self) -> tuple[RecordedRun, ...]:
        """Every run, arm by arm, seed by seed."""
        return runs(self)

    @cached_property
    def finished(self) -> dict[tuple[str, int], str]:
        """(arm, seed) -> run id of every finished run."""
        return {(run.arm, run.seed): run.id for run in self.runs if run.finished}

    @cached_property
    def deciding(self) -> dict[tuple[str, int], str]:
        """The same of the seeds that decide: all that a word is read from."""
        return {run: name for run, name in self.finished.items() if run[1] in self.declaration.deciding}

    @property
    def not_counted(self) -> tuple[str, ...]:
        """In a sentence the finished runs of seeds that do not decide; empty where there are none."""
        others = [seed for _, seed in self.finished.keys() - self.deciding.keys()]
        seeds = ", ".join(map(str, sorted(set(others))))
        return (f"Not counted: {len(others)} run{'s' * (len(others) > 1)} of other seeds ({seeds}).",) * bool(others)

    def seeds(self, arms: Iterable[str]) -> list[int]:
        """The seeds on which all of these arms have finished."""
        wanted = list(arms)
        return sorted({run.seed for run in runs(self, FINISHED, wanted)})

    @cached_property
    def scores(self) -> "DataFrame":
        """`Evidence.scores` of what the runs recorded as they trained."""
        return read_scores(self.evidence, self.study)

    @cached_property
    def benches(self) -> list[str]:
        """The benchmarks that any run was asked, the primary one first."""
        primary = self.declaration.primary
        return sorted(set(self.scores["bench"]), key=lambda bench: (bench != primary, bench))

    @cached_property
    def asked(self) -> list[Asked]:
        """Every benchmark that finished runs answered, while training and later."""
        return asked(self)

    def tallies(self, bench: str) -> "DataFrame":
        """`store.answers.tallies`: how many answers to each problem were graded and right, run by run."""
        if bench not in self._tallies:
            self._tallies[bench] = tallies(self.evidence, self.study, bench)
        return self._tallies[bench]

    def counted_wrong(self, bench: str, run: str) -> "Series[float]":
        """A run's score on a benchmark by step, with answers that could not be graded counted as wrong."""
        tallies = self.tallies(bench)
        own = tallies[tallies["run_id"] == run]
        return (own["correct"] / own["answers"]).groupby(own["step"]).mean()

    def answered(
        self, one: Asked, arms: Sequence[str], seeds: Sequence[int] | None = None, *, counted_wrong: bool = False
    ) -> dict[str, Graded]:
        """Per arm the graded answers to a benchmark, over the problems that all runs of these arms and seeds (None:
        all) answered; those that could not be graded are left out, or `counted_wrong`."""
        if one not in self._answers:
            self._answers[one] = grades(self.evidence, self.study, one.bench, one.steps, one.evaluation)
        frame = self._answers[one]
        chosen = frame if seeds is None else frame[frame["seed"].isin(seeds)]
        chosen = chosen.fillna({"correct": 0.0}) if counted_wrong else chosen
        return graded(chosen, arms, len(one.steps))

    @cached_property
    def _primary(self) -> Asked | None:
        bench = self.declaration.primary
        return next((one for one in self.asked if one.bench == bench and not one.evaluation), None)

    def answers_variance(
        self, first: str, second: str, seeds: Sequence[int], *, counted_wrong: bool = False
    ) -> float | None:
        """What finitely many answers alone would vary in the primary score's difference of one pair of these arms'
        runs, answers without a grade left out or `counted_wrong`; None where their answers are not stored."""
        primary = self._primary
        found = {} if primary is None else self.answered(primary, (first, second), seeds, counted_wrong=counted_wrong)
        return answers_variance(found[first], found[second]) if {first, second} <= found.keys() else None

    @cached_property
    def new_problems(self) -> dict[str, TwoWay]:
        """Per treatment its difference to the baseline on the primary benchmark with the interval that also holds for
        other problems of the kind; treatments without a finished pair are left out."""
        baseline, alpha = self.declaration.baseline, self.declaration.verdict.alpha
        blocks = {} if self._primary is None else self.answered(self._primary, self.arms, self.decision.seeds)
        others = {arm: block for arm, block in blocks.items() if arm != baseline and baseline in blocks}
        found = {arm: noise(blocks[baseline], block, arm, alpha) for arm, block in others.items()}
        return {arm: one.crossed for arm, one in found.items() if one is not None}

    def outcomes(self, bench: str | None) -> list[RunOutcome]:
        """One entry per run, in the order of `runs`; without a benchmark they have no score."""
        if (bench or "") not in self._outcomes:
            self._outcomes[bench or ""] = outcomes(self, bench or "")
        return self._outcomes[bench or ""]

    @cached_property
    def nonfinite(self) -> dict[str, list[int]]:
        """Per run id with any the step of each update that was not finite: skipped, or of a dead model."""
        bad = self.evidence.updates(self.study, [], nonfinite=1)
        return {str(run): [int(step) for step in rows] for run, rows in bad.groupby("run_id")["step"]}

    @cached_property
    def stabilities(self) -> dict[str, Stability]:
        """Per run id whether it stood, by its reward and its non-finite updates; runs without either are left out."""
        return stabilities(self)

    @cached_property
    def measured_rewards(self) -> dict[str, tuple[Floats, Floats]]:
        """Per run id the steps at which its mean training reward was measured, and the reward."""
        return self.evidence.series(self.study, "steps", "reward_mean")

    @cached_property
    def grader_errors(self) -> dict[str, float]:
        """Per run id the share of its training responses on which the grader failed, those of dropped groups among
        them; they counted as reward 0. Runs that have not counted them are left out."""
        query = (
            "SELECT run_id, TOTAL(grader_errors) AS failed, SUM(responses) AS trained, "
            "TOTAL(dropped_groups) AS dropped FROM chosen JOIN steps USING (run_id) "
            "WHERE grader_errors IS NOT NULL GROUP BY run_id"
        )
        sums = self.evidence.select(self.study, query).set_index("run_id")
        out: dict[str, float] = {}
        for run in self.runs:
            if run.id in sums.index:
                failed, trained, dropped = map(float, sums.loc[run.id])
                if dropped and not self.declaration.told(run.arm, "rollout.group_size"):
                    continue
                graded = trained + dropped * self.declaration.arms[run.arm].settings.rollout.group_size
                out |= {run.id: failed / graded} if graded else {}
        return out

    @cached_property
    def rewards(self) -> dict[tuple[str, int], tuple[Floats, Floats]]:
        """(arm, seed) -> steps and mean training reward of every finished run, from its first measured step on; a step
        without a measurement has the reward of the step before it. Of an imported run these are its log's own rows."""
        out = {}
        for run in self.runs:
            steps, reward = self.measured_rewards.get(run.id, (np.zeros(0), np.zeros(0)))
            if run.finished and run.imported and len(steps):
                out[run.arm, run.seed] = steps, reward
            elif run.finished and len(steps):
                last = steps[-1] if run.steps_planned is None else run.steps_planned - 1
                out[run.arm, run.seed] = held(steps, reward, last)
        return out

    @cached_property
    def settled(self) -> Mapping[str, int]:
        """`first_settled`: per run id the first step whose updates, and all later ones, have the full learning rate."""
        return first_settled(self)

    def onsets(self, run: str) -> dict[str, Onset]:
        """Per recorded entry of SIGNALS when it left its range in a run, step by step after the warm-up."""
        if run not in self._onsets:
            found = {}
            for metric in SIGNALS:
                curve = by_step(self, signal(metric), run)[run]
                known = ~np.isnan(curve.values)
                if known.any():
                    found[metric] = signal_onset(curve.steps[known], curve.values[known], self.settled[run])
            self._onsets[run] = found
        return self._onsets[run]

    @cached_property
    def scalars(self) -> list[Scalar]:
        """One number per finished run: benchmark scores, the primary first, then what became of the reward."""
        return scalars(self)

    @cached_property
    def compared(self) -> list[Compared]:
        """Each scalar of each treatment against the baseline."""
        return compared(self)

    @cached_property
    def course(self) -> Course:
        """The recorded numbers as charts draw them: means over spans of steps."""
        return course(self.evidence, self.study)

    @cached_property
    def certificate(self) -> Certificate:
        """Whether the runs are matched."""
        return certificate(self.evidence, self.declaration)

    @cached_property
    def logged(self) -> Logged | None:
        """What the logs of imported runs are; None where the lab's own workers recorded every run."""
        return logged(self)

    @cached_property
    def doses(self) -> DoseResponse | None:
        """What a sweep says so far; None for a study that sweeps nothing, or the length of answers."""
        return dose_response(self)

    @cached_property
    def lengths(self) -> Lengths | None:
        """What a sweep over the length of answers says so far; None for any other study."""
        return lengths(self)

    @cached_property
    def trials(self) -> Trials | None:
        """The trials on which the arms chose, round by round; None where they did not, or those are not here."""
        tune = self.declaration.tune
        name = self.study if self.declaration.trials_of else tune and tune.trials
        there = tune is not None and name is not None and name in self.evidence.studies()
        return read_trials(self.evidence, str(name), tune) if there and tune is not None else None

    @cached_property
    def decision(self) -> Decision:
        """What the study says of its question so far."""
        return decision(self)

    @cached_property
    def ranking(self) -> Ranking | None:
        """Which of three arms or more may be the best; None where nothing ranks them."""
        return ranked(self)

    def against(self, baseline: str) -> "Findings":
        """The same records with another arm as the baseline: what its words say is description."""
        other = copy(self)
        other.known = {}
        for name in ("deciding", "decision", "steadiness", "regime", "new_problems", "compared", "doses", "executions"):
            other.__dict__.pop(name, None)
        rule = self.declaration.verdict.model_copy(update={"baseline": baseline})
        # The seeds that decided: another baseline may ask for a look whose runs were never needed.
        other.__dict__["declaration"] = replace(self.declaration, verdict=rule, seeds=self.decision.seeds, added=())
        other.__dict__["certificate"] = replace(self.certificate, baseline=baseline)
        return other

    @cached_property
    def rules(self) -> tuple[str, str] | None:
        """GRPO's arm and GSPO's, those without routing replay first; None where one is lacking."""
        told = partial(self.declaration.told, key="objective.importance_sampling_level")
        arms = [one for name, one in self.declaration.arms.items() if told(name)]
        clipping = [one for one in arms if one.settings.objective.policy_loss == "clip"]
        plain = sorted(clipping, key=lambda one: one.settings.routing_replay != "none")
        levels = {one.settings.objective.importance_sampling_level: one.name for one in reversed(plain)}
        return (levels["token"], levels["sequence"]) if {"token", "sequence"} <= levels.keys() else None

    @cached_property
    def steadiness(self) -> dict[str, Steadiness]:
        """Per treatment how its runs stood beside the baseline's."""
        return steadiness(self)

    @cached_property
    def regime(self) -> Regime:
        """Whether any finished run of the seeds that decide fell."""
        return regime([one for one in self.outcomes(self.declaration.primary) if one.seed in self.decision.seeds])

    @cached_property
    def executions(self) -> Executions:
        """Every time that this study's content was carried out, here, in the archive and in `elsewhere`."""
        return executions(self, chain(archived(self), *(executions_at(path, self) for path in self.elsewhere)))
