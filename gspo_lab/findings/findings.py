"""`Findings`: what became of a study's runs, under one name. Each number is a function of its own module, found once.

with Evidence.open(Path("runs/lab.db")) as evidence:
    found = Findings(evidence, "moe_stability")
    found.decision.verdicts
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from gspo_lab.findings import (
    clipped,
    compared,
    course,
    decision,
    dose_response,
    elsewhere,
    lengths,
    logged,
    matched,
    outcomes,
    ranked,
    steadiness,
)
from gspo_lab.findings.outcomes import RunOutcome
from gspo_lab.readings import RecordedRun, Source, answers, curves, runs
from gspo_lab.readings.answers import Asked
from gspo_lab.readings.graded import Graded
from gspo_lab.readings.runs import deciding_runs, finished_runs, finished_seeds, not_counted
from gspo_lab.readings.settled import first_settled
from gspo_lab.stats.collapse import Onset

if TYPE_CHECKING:
    from pandas import DataFrame

    from gspo_lab.store import Evidence

T = TypeVar("T")


class Found(Generic[T]):
    """An attribute that is a function of the study."""

    def __init__(self, read: Callable[[Source], T]) -> None:
        self.read = read

    def __get__(self, of: Source, kind: type[Source]) -> T:
        return self.read(of)


def _runs(of: Source) -> tuple[RecordedRun, ...]:
    return runs(of)


def _course(of: Source) -> course.Course:
    return course.course(of.evidence, of.study)


def _arms(of: Source) -> list[str]:
    return list(of.declaration.arms)


def _frame(of: Source) -> "DataFrame":
    return of.evidence.runs(of.study)


class Findings(Source):
    """One study in the database of `evidence`, which shows one moment for as long as it is open; `label` is its name
    where several stand side by side. In `elsewhere` further executions of it lie: folders of runs, databases."""

    def __init__(
        self, evidence: "Evidence", study: str, label: str | None = None, elsewhere: Sequence[Path] = ()
    ) -> None:
        super().__init__(evidence, study, label or study, tuple(elsewhere))

    arms = Found(_arms)
    """The arms in their declared order, which is also the order of their colours."""
    runs = Found(_runs)
    """Every run, arm by arm, seed by seed."""
    frame = Found(_frame)
    """`Evidence.runs`: one row per run."""
    finished = Found(finished_runs)
    deciding = Found(deciding_runs)
    not_counted = Found(not_counted)
    scores = Found(answers.scores)
    benches = Found(answers.benches)
    rewards = Found(curves.reward_curves)
    grader_errors = Found(curves.grader_errors)
    settled = Found(first_settled)
    rules = Found(clipped.rule_arms)
    asked = Found(answers.asked)
    stabilities = Found(outcomes.stabilities)
    course = Found(_course)
    certificate = Found(matched.study_certificate)
    trials = Found(matched.trials)
    doses = Found(dose_response.dose_response)
    lengths = Found(lengths.lengths)
    logged = Found(logged.logged)
    decision = Found(decision.decision)
    new_problems = Found(compared.new_problems)
    scalars = Found(compared.scalars)
    compared = Found(compared.compared)
    regime = Found(steadiness.regime)
    verdicts = Found(steadiness.verdicts)
    """Per arm the verdict on the declared question: what every surface states."""
    steadiness = Found(steadiness.steadiness)
    ranking = Found(ranked.ranked)
    executions = Found(elsewhere.all_executions)

    def seeds(self, arms: Iterable[str]) -> list[int]:
        """The seeds on which all of these arms have finished."""
        return finished_seeds(self, arms)

    def counted_wrong(self, bench: str, run: str) -> dict[int, float]:
        """A run's score on a benchmark by step, with answers that could not be graded counted as wrong."""
        return answers.counted_wrong(self, bench, run)

    def onsets(self, run: str) -> Mapping[str, Onset]:
        """Per recorded signal when it left its range in a run."""
        return curves.onsets(self, run)

    def outcomes(self, bench: str | None) -> list[RunOutcome]:
        """One entry per run, in the order of `runs`; without a benchmark they have no score."""
        return outcomes.outcomes(self, bench or "")

    def answered(
        self, benchmark: Asked, arms: Sequence[str], seeds: Sequence[int] | None = None, *, counted_wrong: bool = False
    ) -> dict[str, Graded]:
        """`readings.answers.answered`."""
        return answers.answered(self, benchmark, arms, seeds, counted_wrong=counted_wrong)

    def answers_variance(
        self, first: str, second: str, seeds: Sequence[int], *, bench: str | None = None, counted_wrong: bool = False
    ) -> float | None:
        """`readings.answers.answers_variance`."""
        return answers.answers_variance(self, first, second, seeds, bench=bench, counted_wrong=counted_wrong)

    def against(self, baseline: str) -> "Findings":
        """The same records with another arm as the baseline: its verdicts are descriptive."""
        return decision.against(self, baseline)
