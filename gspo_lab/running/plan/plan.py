"""The cost of a study before it starts: `gspo-lab plan` and `gspo-lab run --dry-run`."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import Integers, JsonObject, OptionalInt, OptionalText, Strings
from gspo_lab.common.states import State
from gspo_lab.common.text import counted, duration, first_few
from gspo_lab.recording.runfolder import RunFolder, begun_arms
from gspo_lab.running.launch import LOCAL, make_launcher, slots_of
from gspo_lab.running.launch.base import Slot
from gspo_lab.running.launch.local import visible_gpus
from gspo_lab.running.plan.memory_fit import MemoryFit, memory_fits
from gspo_lab.running.plan.peak_in_grid import (
    Grid,
    earlier_curves,
    peak_warnings,
    proposed_grid,
)
from gspo_lab.running.plan.preflight import obstacle
from gspo_lab.running.plan.preparation import (
    distinct_starts,
    found_bands,
    pilot,
    pilot_arms,
    trials_left,
)
from gspo_lab.running.plan.time_estimate import (
    START_SECONDS,
    Pace,
    guessed_pace,
    measured_paces,
    run_seconds,
)
from gspo_lab.running.progress import (
    PILOTS,
    TRAINING,
    TRIALS,
    WARM_START_STEP,
    WARM_STARTS,
    makespan,
)
from gspo_lab.study import BenchTable, Run, Settings, Study
from gspo_lab.study.schema import TaskTable
from gspo_lab.study.study import missing_mixture
from gspo_lab.tasks import build_task
from gspo_lab.tasks.base import Task
from gspo_lab.training.models.wording import options_for

RUNS_NAMED = 4
GUESSED = "a guess by the model's size: it may take a third of that, or three times as much"


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
    arms: int
    seeds: int
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
    mixtures: int
    """Mixtures of experts of dense models that are still to be made."""
    warm_starts: int
    """Warm starts still to be made."""
    pilots: Strings
    """Arms whose clip range is still to be calibrated."""
    memory: tuple[MemoryFit, ...]
    """Per arm with a model of known shape the memory of its runs."""
    paces: dict[str, Pace]
    """Per arm how long a step, an answer to a benchmark and a warm start take."""
    problems: dict[str, int]
    """Per benchmark its problems."""
    stage_seconds: dict[str, float]
    """Per stage its estimated time on all workers; the stages follow each other."""
    basis: str
    """The source of the estimated time: measured runs, or a guess with its formula."""
    trials: int = 0
    """Runs on which the arms are still to choose their values."""
    trial_steps: int = 0
    """The most steps of these; only the estimated time includes them."""
    looks: Integers = ()
    """After how many seeds the study may end, where that is declared."""
    peaks: Strings = ()
    """Why the swept values may hold no peak of a rule, one line each."""
    grid: Grid | None = None
    """The values to sweep that earlier runs propose, with `[verdict] over`."""
    without_model: Strings = ()
    """Finished runs whose trained model is gone."""
    obstacle: OptionalText = None
    """Why this machine cannot run it."""

    @property
    def seconds(self) -> float:
        """The estimated time of all stages."""
        return sum(self.stage_seconds.values())

    @property
    def finished(self) -> int:
        """How many runs have come to their end."""
        return sum(run.state is State.FINISHED for run in self.runs)

    @property
    def certainty(self) -> str:
        """How far the estimated time can be trusted."""
        measured = all(pace.measured for pace in self.paces.values())
        return self.basis if measured else GUESSED

    @property
    def headline(self) -> str:
        """Arms, seeds, runs, what is made before them, and the estimated time in one line."""
        work = [counted(len(self.runs), "run")]
        if self.finished:
            work.append(f"{self.finished} finished")
        for number, noun in (
            (self.mixtures, "mixture"),
            (self.warm_starts, "warm start"),
            (len(self.pilots), "pilot"),
            (self.trials, "trial"),
        ):
            if number:
                work.append(f"{counted(number, noun)} to make")
        arms = counted(self.arms, "arm")
        seeds = counted(self.seeds, "seed")
        workers = counted(self.workers, "worker")
        line = f"{self.study}: {arms} x {seeds}: {', '.join(work)}"
        if self.finished == len(self.runs):
            return f"{line}; nothing is left to train"
        return f"{line}; about {duration(self.seconds)} on {workers} ({self.certainty})"

    @property
    def warnings(self) -> list[str]:
        """What the plan cannot mend, one line each."""
        lines = list(self.peaks)
        if self.without_model:
            lines.append(lost_models(self.without_model))
        return lines

    def expected_rates(self, warm_start_steps: int) -> dict[tuple[str, str], float]:
        """Seconds per unit of each kind of work, as the progress view counts it."""
        rates: dict[tuple[str, str], float] = {}
        for arm, pace in self.paces.items():
            rates["start", arm] = START_SECONDS
            rates["step", arm] = pace.seconds_per_step
            for bench, problems in self.problems.items():
                rates[f"bench {bench}", arm] = problems * pace.seconds_per_answer
            if warm_start_steps:
                rates[WARM_START_STEP, ""] = pace.warm_start_seconds / warm_start_steps
        return rates

    def to_json(self) -> JsonObject:
        """Plain data, as `gspo-lab plan --json` prints it."""
        needs = [
            {**asdict(fit), "total": fit.need.total, "too_little": fit.too_little}
            for fit in self.memory
        ]
        return {
            **asdict(self),
            "memory": needs,
            "finished": self.finished,
            "seconds": self.seconds,
            "certainty": self.certainty,
        }

    def lines(self) -> list[str]:
        """For people, one fact a line."""
        return list(self._lines())

    def _lines(self) -> Iterator[str]:
        yield self.headline
        yield from self.warnings
        for run in self.runs:
            if run.steps_done:
                yield f"  {run.id}: {run.state} at step {run.steps_done}/{run.steps}"
        if self.looks:
            looks = ", ".join(map(str, self.looks))
            yield f"looks after {looks} seeds: it ends at the first that resolves it"
        updates = set(self.updates_per_step.values())
        per_arm = ", ".join(f"{arm} {count}" for arm, count in self.updates_per_step.items())
        updates_text = str(updates.pop()) if len(updates) == 1 else per_arm
        yield f"updates per rollout batch: {updates_text}"
        dropped = ""
        if self.responses_max > self.responses:
            dropped = f" (up to {self.responses_max:,} where groups are dropped)"
        tokens = f"at most {self.response_tokens_max:,} tokens"
        yield f"rollouts: {self.responses:,} responses{dropped}, {tokens}"
        yield f"evaluations: {self.evaluations:,} with {self.evaluation_answers:,} answers"
        if self.grid is not None:
            yield self.grid.line()
        if self.pilots:
            yield f"pilots to run: {', '.join(self.pilots)}"
        if self.trials:
            yield f"trials to run: {self.trials}, at most {self.trial_steps:,} steps"
        for fit in self.memory:
            too_little = ": too little" if fit.too_little else ""
            yield f"memory: {fit.line()}{too_little}"
        yield f"time: {self.basis}"
        if self.obstacle:
            yield f"cannot be run here yet: {self.obstacle}"


class Work(NamedTuple):
    """What one run, or the rest of it, has to do; the names are those of a `Plan`."""

    steps: int = 0
    responses: int = 0
    responses_max: int = 0
    response_tokens_max: int = 0
    evaluations: int = 0
    evaluation_answers: int = 0


def lost_models(runs: Sequence[str]) -> str:
    """The line about finished runs, by their ids, whose trained model was deleted."""
    return (
        "finished, but without its trained model (checkpoints/final):"
        f" {first_few(runs, RUNS_NAMED)}; the records are whole. To train a run again, delete"
        " its folder"
    )


def plan(study: Study, runs: Path, *, on: str = LOCAL, jobs: OptionalInt = None) -> Plan:
    """The plan of what is left of `study` in the folder `runs`; writes nothing and starts nothing.

    `on` names the launcher, `jobs` how many workers it may start at once. LabError for a mistake in
    the study; what it needs and this machine lacks is told in the plan.
    """
    found = obstacle(study)
    settings = study.first_arm.settings
    slots, missing = _slots(study, settings.device, on, jobs)
    planned = plan_of(study, runs, slots)
    obstacles = [text for text in (missing, found) if text is not None]
    return replace(planned, obstacle="; ".join(obstacles) or None)


def plan_of(study: Study, runs: Path, slots: Sequence[Slot]) -> Plan:
    """The plan of a checked study on these slots."""
    tasks = _Tasks(study)
    home = runs / study.name
    piloted = found_bands(study, home).keys() | begun_arms(home)
    pilots = [pilot(study, arm) for arm in pilot_arms(study) if arm.name not in piloted]
    paces = _paces(study, runs, tasks, on_gpu=slots[0].kind == "gpu")
    planned: list[PlannedRun] = []
    remaining: list[Work] = []
    unfinished: list[Run] = []
    without_model: list[str] = []
    for run in study.runs():
        folder = RunFolder(run.folder(runs))
        progress = folder.status()
        steps_done = min(progress.steps, run.settings.steps)
        seconds = 0.0
        if not progress.finished:
            work = tasks.work(run, 0 if progress.state is State.PLANNED else steps_done)
            seconds = run_seconds(paces[run.arm], work.steps, work.evaluation_answers)
            remaining.append(work)
            unfinished.append(run)
        elif folder.has_lost_model():
            without_model.append(run.id)
        planned.append(PlannedRun(run.id, progress.state, steps_done, run.settings.steps, seconds))
    trials, trial_steps = trials_left(study, runs)
    needed = distinct_starts([*unfinished, *pilots, *trials], runs)
    starts = [run for folder, run in needed.items() if folder.model_folder() is None]
    family = {trial.arm: trial.arm.partition("@")[0] for trial in trials}

    def pace(run: Run) -> Pace:
        return paces[family.get(run.arm, run.arm)]

    def trial_seconds(run: Run) -> float:
        steps = trial_steps / len(trials)  # on average: most end early
        answers = tasks.work(run, 0).evaluation_answers * steps / run.settings.steps
        return run_seconds(pace(run), steps, answers)

    curves, earlier = earlier_curves(study, runs)
    stages = {
        WARM_STARTS: [pace(run).warm_start_seconds for run in starts],
        TRIALS: list(map(trial_seconds, trials)),
        PILOTS: [run_seconds(pace(run), run.settings.steps, 0) for run in pilots],
        TRAINING: [run.seconds for run in planned if run.seconds],
    }
    return Plan(
        study=study.name,
        arms=len(study.arms),
        seeds=len(study.seeds),
        runs=tuple(planned),
        workers=len(slots),
        updates_per_step={
            name: arm.settings.update.per_rollout_batch for name, arm in study.arms.items()
        },
        **{name: sum(getattr(work, name) for work in remaining) for name in Work._fields[1:]},
        mixtures=len({missing_mixture(run.settings, study.base) for run in unfinished} - {None}),
        warm_starts=len(starts),
        pilots=tuple(run.arm for run in pilots),
        trials=len(trials),
        trial_steps=trial_steps,
        memory=tuple(memory_fits(study, slots)),
        paces=paces,
        problems=tasks.problems(),
        stage_seconds={name: makespan(stage, len(slots)) for name, stage in stages.items()},
        basis="; ".join(dict.fromkeys(pace.basis for pace in paces.values())),
        looks=tuple(study.verdict.looks or ()),
        peaks=tuple(peak_warnings(study, curves, earlier)),
        grid=proposed_grid(study, curves, earlier),
        without_model=tuple(without_model),
    )


def _paces(study: Study, runs: Path, tasks: "_Tasks", *, on_gpu: bool) -> dict[str, Pace]:
    """Per arm the measured pace, or a guess."""
    arms = list(study.arms.values())
    measured = measured_paces(arms, runs)
    paces = {}
    for arm in arms:
        model = study.model(arm)
        turns = tasks.task(arm.settings.task, model).max_turns
        guess = guessed_pace(arm.settings, model, on_gpu=on_gpu, turns=turns)
        paces[arm.name] = measured.get(arm.name, guess)
    return paces


def _slots(
    study: Study, device: str, on: str, jobs: OptionalInt
) -> tuple[list[Slot], OptionalText]:
    """The workers' slots. If the GPU is missing, slots of one GPU and what is missing.

    LabError where `--set` asks for that GPU: it speaks of this machine, a study's file need not.
    """
    try:
        return slots_of(on, make_launcher(on, jobs, study.launch.options), device), None
    except LabError as error:
        for_here = any(re.match(r"device\s*=", word) for word in study.command)
        if on != LOCAL or not device.startswith("cuda") or visible_gpus() or for_here:
            raise
        return [Slot("gpu", "0", {}) for _ in range(jobs or 1)], str(error)


class _Tasks:
    """The study's tasks, each built once, and the work that settings make of them."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._tasks: dict[str, Task] = {}
        self._work: dict[tuple[int, int], Work] = {}

    def work(self, run: Run, steps_done: int) -> Work:
        """The work after step `steps_done`, computed once for all runs that share settings."""
        settings = run.settings
        key = id(settings), steps_done
        if key in self._work:
            return self._work[key]
        rollout = settings.rollout
        steps = settings.steps - steps_done
        responses = steps * rollout.prompts_per_step * rollout.group_size
        most = responses * max(rollout.dynamic_sampling, 1)
        limit = rollout.max_tokens or self.task(settings.task, run.model).max_tokens
        evaluations = 0
        answers = 0
        for bench in settings.bench:
            moments = [
                moment
                for moment in bench.moments(settings.steps)
                if moment > steps_done or not steps_done
            ]
            samples = sum(bench.samples_at(moment, settings.steps) for moment in moments)
            evaluations += len(moments)
            answers += samples * self._held_out(bench, settings, run.model)
        self._work[key] = Work(steps, responses, most, most * limit, evaluations, answers)
        return self._work[key]

    def problems(self) -> dict[str, int]:
        """Per benchmark its problems."""
        arm = self._study.first_arm
        model = self._study.model(arm)
        return {
            bench.name: self._held_out(bench, arm.settings, model) for bench in arm.settings.bench
        }

    def _held_out(self, bench: BenchTable, settings: Settings, model: str) -> int:
        """The problems of a benchmark; the declared number if the data are not here yet."""
        task = self.task(bench.task or settings.task, model)
        try:
            available = len(task.problems("held-out"))
        except LabError:
            if bench.problems is None:
                raise
            return bench.problems
        return min(bench.problems or available, available)

    def task(self, table: TaskTable, model: str) -> Task:
        """The task of a table of the study, as the model is asked."""
        options = options_for(table, model)
        key = repr((table.name, sorted(options.items(), key=repr)))
        if key not in self._tasks:
            self._tasks[key] = build_task(table.name, options, self._study.base)
        return self._tasks[key]
