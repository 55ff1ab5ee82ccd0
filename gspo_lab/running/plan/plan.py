"""The cost of a study before it starts: `gspo-lab plan` and `gspo-lab run --dry-run`."""

import heapq
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gspo_lab.common.errors import LabError
from gspo_lab.common.states import State
from gspo_lab.recording.runfolder import RunFolder, begun_arms
from gspo_lab.running.launch import LOCAL, make_launcher, slots_of
from gspo_lab.running.launch.base import Slot
from gspo_lab.running.launch.local import visible_gpus
from gspo_lab.running.plan.memory_fit import MemoryFit, memory_fits
from gspo_lab.running.plan.preflight import blocker, preflight
from gspo_lab.running.plan.preparation import (
    distinct_starts,
    found_bands,
    pilot,
    pilot_arms,
    trials_left,
)
from gspo_lab.running.plan.time_estimate import Pace, guessed_pace, measured_pace, run_seconds
from gspo_lab.study import BenchTable, Run, Settings, Study
from gspo_lab.tasks import build_task
from gspo_lab.tasks.base import Task
from gspo_lab.training.models.wording import options_for


@dataclass(frozen=True)
class PlannedRun:
    """One run with its progress, which is read from its folder."""

    id: str
    state: State
    steps_done: int
    steps: int
    seconds: float
    """Estimated remaining time."""


@dataclass(frozen=True)
class Plan:
    """The cost of the remaining work of a study, except where a field says otherwise."""

    study: str
    runs: tuple[PlannedRun, ...]
    workers: int
    updates_per_step: dict[str, int]
    """Per arm the optimizer updates on one rollout batch."""
    responses: int
    responses_max: int
    """With the replacements that `rollout.dynamic_sampling` may sample."""
    response_tokens_max: int
    evaluations: int
    evaluation_answers: int
    warm_starts: int
    """Warm starts still to be made."""
    pilots: tuple[str, ...]
    """Arms whose clip range is still to be calibrated."""
    memory: tuple[MemoryFit, ...]
    """Per arm with a model of known shape the memory of its runs."""
    seconds: float
    basis: str
    """The source of `seconds`: measured runs, or a guess with its formula."""
    trials: int = 0
    """Runs on which the arms are still to choose their values."""
    trial_steps: int = 0
    """The most steps of these; only `seconds` includes them."""
    looks: tuple[int, ...] = ()
    """After how many seeds the study may end, where that is declared."""
    obstacle: str | None = None
    """Why this machine cannot run it."""

    @property
    def finished(self) -> int:
        """How many runs have come to their end."""
        return sum(run.state is State.FINISHED for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        """Plain data, as `gspo-lab plan --json` prints it."""
        needs = [
            {**asdict(fit), "total": fit.need.total, "too_little": fit.too_little}
            for fit in self.memory
        ]
        return {**asdict(self), "memory": needs, "finished": self.finished}

    def lines(self) -> list[str]:
        """For people, one fact a line."""
        updates = set(self.updates_per_step.values())
        per_arm = ", ".join(f"{arm} {count}" for arm, count in self.updates_per_step.items())
        left = len(self.runs) - self.finished
        looks = ", ".join(map(str, self.looks))
        more = self.responses_max > self.responses
        dropped = f" (up to {self.responses_max:,} where groups are dropped)" if more else ""
        return [
            (
                f"{self.study}: {len(self.runs)} runs, {self.finished} finished, {left} to go on"
                f" {self.workers} workers"
            ),
            *(
                f"  {run.id}: {run.state} at step {run.steps_done}/{run.steps}"
                for run in self.runs
                if run.steps_done
            ),
            *(
                [f"looks after {looks} seeds: it ends at the first that resolves it"]
                if looks
                else []
            ),
            f"updates per rollout batch: {updates.pop() if len(updates) == 1 else per_arm}",
            (
                f"rollouts: {self.responses:,} responses{dropped}, at most"
                f" {self.response_tokens_max:,} tokens"
            ),
            f"evaluations: {self.evaluations:,} with {self.evaluation_answers:,} answers",
            f"warm starts to make: {self.warm_starts}",
            f"pilots to run: {', '.join(self.pilots) or 'none'}",
            *(
                [f"trials to run: {self.trials}, at most {self.trial_steps:,} steps"]
                if self.trials
                else []
            ),
            *(f"memory: {fit.line()}{': too little' * fit.too_little}" for fit in self.memory),
            f"time: about {_rounded(self.seconds)} ({self.basis})",
            *([f"cannot be run here yet: {self.obstacle}"] if self.obstacle else []),
        ]


class Work(NamedTuple):
    """What one run, or the rest of it, has to do; the names are those of a `Plan`."""

    steps: int = 0
    responses: int = 0
    responses_max: int = 0
    response_tokens_max: int = 0
    evaluations: int = 0
    evaluation_answers: int = 0


def plan(study: Study, runs: Path, *, on: str = LOCAL, jobs: int | None = None) -> Plan:
    """The plan of what is left of `study` in the folder `runs`; writes nothing and starts nothing.

    `on` names the launcher, `jobs` how many workers it may start at once. LabError for a mistake in
    the study; what it needs and this machine lacks is told in the plan.
    """
    preflight(study, here=False)
    settings = next(iter(study.arms.values())).settings
    places, missing = _places(study, settings.device, on, jobs)
    tasks = _Tasks(study.path.parent.resolve())
    home = runs / study.name
    bands = found_bands(study, home)
    begun = begun_arms(home)
    waiting = [
        pilot(study, arm)
        for arm in pilot_arms(study)
        if arm.name not in bands and arm.name not in begun
    ]
    on_gpu = places[0].kind == "gpu"
    paces: dict[str, Pace] = {
        arm.name: (
            measured_pace(arm.settings, runs)
            or guessed_pace(
                arm.settings,
                on_gpu=on_gpu,
                turns=tasks.built(arm.settings.task, arm.settings.model).max_turns,
            )
        )
        for arm in study.arms.values()
    }
    planned: list[PlannedRun] = []
    left = []
    needy = []
    for run in study.runs():
        stands = RunFolder(run.folder(runs)).status()
        done = min(stands.steps, run.settings.steps)
        seconds = 0.0
        if not stands.finished:
            work = tasks.work(run.settings, 0 if stands.state is State.PLANNED else done)
            seconds = run_seconds(paces[run.arm], work.steps, work.evaluation_answers)
            left.append(work)
            needy.append(run)
        planned.append(PlannedRun(run.id, stands.state, done, run.settings.steps, seconds))
    trials, trial_steps = trials_left(study, runs)
    each = (
        trial_steps / len(trials) if trials else 0.0
    )  # the steps of one trial to go, on average: most end early
    needed = distinct_starts([*needy, *waiting, *trials], runs)
    starts = [run for folder, run in needed.items() if folder.model_folder() is None]
    family = {run.arm: run.arm.partition("@")[0] for run in trials} | {
        name: name for name in study.arms
    }

    def trial_seconds(run: Run) -> float:
        answers = tasks.work(run.settings, 0).evaluation_answers * each / run.settings.steps
        return run_seconds(paces[family[run.arm]], each, answers)

    stages = [
        [paces[family[run.arm]].warm_start_seconds for run in starts],
        list(map(trial_seconds, trials)),
        [run_seconds(paces[run.arm], run.settings.steps, 0) for run in waiting],
        [run.seconds for run in planned if run.seconds],
    ]
    return Plan(
        study=study.name,
        runs=tuple(planned),
        workers=len(places),
        updates_per_step={
            name: arm.settings.update.per_rollout_batch for name, arm in study.arms.items()
        },
        **{name: sum(getattr(work, name) for work in left) for name in Work._fields[1:]},
        warm_starts=len(starts),
        pilots=tuple(run.arm for run in waiting),
        trials=len(trials),
        trial_steps=trial_steps,
        memory=tuple(memory_fits(study, places)),
        seconds=sum(_makespan(stage, len(places)) for stage in stages),
        basis="; ".join(dict.fromkeys([*missing, *(pace.basis for pace in paces.values())])),
        looks=tuple(study.verdict.looks or ()),
        obstacle=blocker(study),
    )


def _places(study: Study, device: str, on: str, jobs: int | None) -> tuple[list[Slot], list[str]]:
    """The workers' places; where a GPU is asked for and none is here, one of unknown size, and a
    word about it.
    """
    try:
        return slots_of(on, make_launcher(on, jobs, study.launch.options), device), []
    except LabError:
        if on != LOCAL or not device.startswith("cuda") or visible_gpus():
            raise
        return ([Slot("gpu", "0", {})] if jobs or 1 else []), [
            "for one GPU, of which there is none here"
        ]


class _Tasks:
    """The study's tasks, each built once, and the work that settings make of them."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._built: dict[str, Task] = {}
        self._work: dict[tuple[int, int], Work] = {}

    def work(self, settings: Settings, done: int) -> Work:
        """What is left behind step `done`; found once for all runs of an arm, which share their
        settings.
        """
        key = id(settings), done
        if key not in self._work:
            rollout = settings.rollout
            steps = settings.steps - done
            responses = steps * rollout.prompts_per_step * rollout.group_size
            most = responses * max(rollout.dynamic_sampling, 1)
            limit = rollout.max_tokens or self.built(settings.task, settings.model).max_tokens
            evaluations = answers = 0
            for bench in settings.bench:
                times = [at for at in bench.moments(settings.steps) if at > done or done == 0]
                samples = sum(bench.samples_at(at, settings.steps) for at in times)
                evaluations += len(times)
                answers += samples * self._held_out(bench, settings)
            self._work[key] = Work(steps, responses, most, most * limit, evaluations, answers)
        return self._work[key]

    def _held_out(self, bench: BenchTable, settings: Settings) -> int:
        """How many problems a benchmark asks; as many as wanted where they are not here yet to be
        counted.
        """
        try:
            available = len(
                self.built(bench.task or settings.task, settings.model).problems("held-out")
            )
        except LabError:
            if bench.problems is None:
                raise
            return bench.problems
        return min(bench.problems or available, available)

    def built(self, table: Any, model: str) -> Task:
        """The task of a table of the study, as the model is asked."""
        options = options_for(table, model)
        key = repr((table.name, sorted(options.items(), key=repr)))
        if key not in self._built:
            self._built[key] = build_task(table.name, options, self._base)
        return self._built[key]


def _makespan(seconds: Sequence[float], workers: int) -> float:
    """When the last job ends if each worker takes the next one when it is free."""
    ends = [0.0] * workers
    for measured in seconds:
        heapq.heapreplace(ends, ends[0] + measured)
    return max(ends)


def _rounded(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
