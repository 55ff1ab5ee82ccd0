"""What a study's starting models earn before anything trains: `gspo-lab plan --start`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import OptionalFloat
from gspo_lab.recording.records import Record
from gspo_lab.running.plan.preparation import needs_start, start_folder
from gspo_lab.study import Run, Study
from gspo_lab.tasks.base import Problem
from gspo_lab.training.engines.step_numbers import step_numbers

SAMPLING = {"model", "upcycle", "warm_start", "task", "rollout"}
"""The settings that decide on a first batch."""


@dataclass(frozen=True)
class StartSignal:
    """The first rollout batch of some arms, sampled from their starting model on the first seed.

    The arms have the same model, task and sampling.
    """

    arms: list[str]
    responses: int
    reward: float
    """Mean reward of the batch."""
    signal_groups: OptionalFloat
    """Share of its groups whose rewards differ: only those train. None: one response is no group.
    """

    def line(self) -> str:
        """One line for people."""
        text = f"start of {', '.join(self.arms)}: mean reward {self.reward:.3g}"
        if self.signal_groups is not None:
            text += f", and {self.signal_groups:.0%} of the groups have a signal"
        return f"{text} ({self.responses} responses)"


def start_signals(study: Study, runs: Path) -> Iterator[StartSignal]:
    """Sample the first batch of each distinct start. Nothing is trained, and nothing is recorded.

    The study was checked by its plan. LabError where a warm start is still to be made: it trains.
    """
    runs_by_start: dict[str, list[Run]] = {}
    for run in study.runs():
        if run.seed == study.seeds[0]:
            start = run.settings.model_dump_json(include=SAMPLING)
            runs_by_start.setdefault(start, []).append(run)
    for alike in runs_by_start.values():
        yield _start_signal(alike[0], [run.arm for run in alike], runs)


def _start_signal(run: Run, arms: list[str], runs: Path) -> StartSignal:
    from gspo_lab.training.engines.native.build_run import set_up
    from gspo_lab.training.engines.native.loop import TrainingRun
    from gspo_lab.training.models.upcycle import ensure_mixture

    warm_start = None
    if needs_start(run.settings.model):
        warm_start = start_folder(run, runs).model_folder()
        if warm_start is None:
            raise LabError(
                f"--start: {run.settings.model} is trained before the study, and this warm start"
                f" is not made yet; gspo-lab run {run.study} makes it first"
            )
    if run.settings.upcycled is not None:
        ensure_mixture(run.settings, Path(run.base))
    with TemporaryDirectory() as folder:
        training = TrainingRun(run, set_up(run, warm_start), NoRecords(), Path(folder))
        problems: list[Problem] = []
        for problem in training.prompts.step(0):
            problems += repeat(problem, run.settings.rollout.group_size)
        rollouts = training.sample(training.requests(0), problems)
        grades = training.grade(problems, rollouts)
    numbers = step_numbers(training.rewards(grades), [], [], 0)
    equal = numbers.get("zero_variance_groups")
    return StartSignal(
        arms=arms,
        responses=len(rollouts),
        reward=numbers["reward_mean"],
        signal_groups=None if equal is None else 1 - equal,
    )


class NoRecords:
    """A sink for a run of which nothing is recorded."""

    def write(self, records: Sequence[Record]) -> None:
        """Drop the records."""
