"""What a study's starting models earn before anything trains: `gspo-lab plan --start`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from gspo_lab.common.errors import LabError
from gspo_lab.recording.records import Record
from gspo_lab.running.plan.preparation import needs_start, start_folder
from gspo_lab.study import Run, Study

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
    signal_groups: float
    """Share of its groups whose rewards differ: only those train."""

    def line(self) -> str:
        """One line for people."""
        return (
            f"start of {', '.join(self.arms)}: mean reward {self.reward:.3g}, and"
            f" {self.signal_groups:.0%} of the groups have a signal ({self.responses} responses)"
        )


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
        problems = []
        for problem in training.prompts.step(0):
            problems += [problem] * run.settings.rollout.group_size
        rollouts = training.sample(training.requests(0), problems)
        reward_PG = training.rewards(training.grade(problems, rollouts))
    return StartSignal(
        arms=arms,
        responses=len(rollouts),
        reward=float(reward_PG.mean()),
        signal_groups=float((reward_PG.amax(dim=1) > reward_PG.amin(dim=1)).float().mean()),
    )


class NoRecords:
    """A sink for a run of which nothing is recorded."""

    def write(self, records: Sequence[Record]) -> None:
        """Drop the records."""
