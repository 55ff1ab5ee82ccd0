"""conduct: from a study to its finished runs.

    lock ─> check models, tasks ─> declare (study.json) ─> trials ─> warm starts ─> pilots ─> runs
                                                           └───────── one pool of workers ─────────┘
    while workers work: their journals ─ ingest ─> runs/lab.db, and the live view; from there to `[record] mirror`
    with declared looks: the seeds of each look in turn, until one resolves every arm

Whatever ends it, the same command resumes: finished runs are skipped, the others go on from their last checkpoint.
"""

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path

from rich.console import Console

from gspo_lab.conduct.declaration import archive, declare, set_band
from gspo_lab.conduct.pilots import find_band, run_pilots
from gspo_lab.conduct.tuning import settled
from gspo_lab.conduct.worker_pool import WorkerPool, WorkItem, WorkItemResult, run_item, starts_to_make, write_run
from gspo_lab.errors import LabError
from gspo_lab.exporters import target
from gspo_lab.exporters.mirror import Mirror
from gspo_lab.files import held
from gspo_lab.findings.decision import decision
from gspo_lab.launch.base import Launcher
from gspo_lab.launch.make import LOCAL, make_launcher, slots_of
from gspo_lab.layout import CONDUCTOR_LOCK, database_of
from gspo_lab.plan.check import preflight
from gspo_lab.plan.memory import require_memory
from gspo_lab.plan.preparation import found_bands, pilot, pilot_arms
from gspo_lab.progress import ProgressView, duration
from gspo_lab.readings import FINISHED, Source, average, read
from gspo_lab.readings import runs as runs_of
from gspo_lab.readings.reading import DEVICE_SECONDS
from gspo_lab.runfolder import RunFolder, begun_arms, launched_folders, work_folders
from gspo_lab.states import State
from gspo_lab.store import Evidence, ingest
from gspo_lab.study import Declaration, Run, Study
from gspo_lab.study.judging import score_named
from gspo_lab.study.trials import trials_name


@dataclass(frozen=True)
class StudyRunResult:
    """What came of running a study: how each piece of work ended, and whether Ctrl-C ended it all."""

    results: Sequence[WorkItemResult]
    interrupted: bool


def conduct(
    study: Study,
    runs: Path,
    *,
    on: str = LOCAL,
    jobs: int | None = None,
    console: Console,
    fresh: bool = False,
    live: bool = True,
    yes: bool = False,
) -> StudyRunResult:
    """Run what is left of `study` under the folder `runs`; when it returns, everything is in the database.

    `on` names the launcher, `jobs` how many workers it may start at once. `fresh` moves the study's former runs to
    runs/_archive; `yes` goes on where memory is estimated not to do. Raises LabError for what keeps the first step from
    being made.
    """
    launcher = make_launcher(on, jobs, study.launch.options)
    warnings = preflight(study)  # before the first folder is made
    mirrors = {name: target(name) for name in study.mirror}
    console.print(f"{study.name}: {study.question}", markup=False, highlight=False)
    if warnings:
        named = ", ".join(dict.fromkeys(one.name for one in warnings))
        command = shlex.join(["gspo-lab", "check", str(study.path), *study.command[1:]])
        console.print(f"warnings: {named}; {command} explains", markup=False, highlight=False, soft_wrap=True)
    slots = slots_of(on, launcher, next(iter(study.arms.values())).settings.device)
    if not yes:
        require_memory(study, slots)
    runs.mkdir(parents=True, exist_ok=True)
    ingest(runs)  # a database that cannot take the records in is told now, and not after the training
    with ExitStack() as stack:
        home = _take(study, runs, fresh, launcher, stack)
        mirror = stack.enter_context(Mirror(runs, study.name, mirrors)) if mirrors else None
        by_reward = score_named(study.verdict.primary or "").reward
        view = ProgressView(console, study.name, live=live, by_reward=by_reward)
        pool = stack.enter_context(WorkerPool(runs, console, launcher, slots, view, mirror))
        _run_stages(study, runs, home, pool)
        pool.end()
    if pool.interrupts.count:
        console.print("stopped; the same command resumes where this ended", markup=False)
    return StudyRunResult(pool.results, pool.interrupts.count > 0)


def _run_stages(study: Study, runs: Path, home: Path, pool: WorkerPool) -> None:
    begun = begun_arms(home)
    if (ready := settled(study, home, begun, pool)) is None:
        return
    study = ready
    declaration = declare(study, home)
    pilots = {
        arm.name: pilot(study, arm)
        for arm in pilot_arms(study)
        if arm.name not in begun and arm.name not in found_bands(study, home)
    }
    left = []
    first, *later = stages(study, declaration)
    for run in study.runs():
        item = run_item(run, runs)
        if RunFolder(item.folder.path).status().finished:
            RunFolder(item.folder.path).drop_resume()  # its worker may have been killed before it could
            item.cell.progress.state = State.FINISHED
            pool.view.add([item.cell])
        else:
            left.append(run)
            if run.seed in first:
                pool.view.add([item.cell])
    first_left = [run for run in left if run.seed in first]
    if not pool.work("warm starts", starts_to_make([*first_left, *pilots.values()], runs)):
        return
    if not run_pilots(pool, "pilots", list(pilots.values()), runs):
        return
    for name, run in pilots.items():
        low, high = find_band(study.arms[name], run, runs, home)
        pool.console.print(f"arm {name}: calibrated clip range {low:.3g} / {high:.3g}, frozen", markup=False)
    for name, band in found_bands(study, home).items():
        if name not in begun:
            declaration = set_band(home, name, band)
    ids = {run.id for run in left}
    waiting = [run for run in declared_runs(study, declaration) if run.id in ids]
    skipped = len(study.runs()) - len(waiting)
    title = "training" + (f" ({skipped} finished before)" if skipped else "")
    pool.work(title, _written([run for run in waiting if run.seed in first], runs))
    for look, seeds in zip(declaration.looks, later, strict=False):
        if pool.interrupts.count or not _goes_on(study, look, runs, pool):
            return
        of_look = [run for run in waiting if run.seed in seeds]
        if not pool.work("warm starts", starts_to_make(of_look, runs)):
            return
        pool.work(title, _written(of_look, runs))


def _written(chosen: Sequence[Run], runs: Path) -> list[WorkItem]:
    for run in chosen:
        write_run(run, runs)
    return [run_item(run, runs) for run in chosen]


def _goes_on(study: Study, look: int, runs: Path, pool: WorkerPool) -> bool:
    """Whether the look at the first `look` seeds leaves an arm open; prints what it found where it does not.

    What is saved is the device time that the runs not begun would take, by the mean of those that finished.
    """
    pool.ingest()
    with Evidence.open(database_of(runs), runs) as evidence:
        found = Source(evidence, study.name)
        decided, declared, recorded = decision(found), found.declaration, runs_of(found)
        spent = read(found, DEVICE_SECONDS)
        usual = average(spent[run.id].value for run in runs_of(found, FINISHED))
    short = decided.missing.values() if len(decided.seeds) <= look else ()
    missing = ", ".join(dict.fromkeys(run for own in short for run in own))
    if decided.stopped:
        begun = {(run.arm, run.seed) for run in recorded}
        left = sum((arm, seed) not in begun for arm in declared.arms for seed in declared.deciding)
        about = "" if usual is None else f", about {duration(usual * left)} of device time"
        line = (
            f"resolved at the look after {len(decided.seeds)} of {decided.planned} seeds; saved: "
            f"{left} declared run{'' if left == 1 else 's'} not begun{about}"
        )
    else:
        line = f"the look after {look} seeds cannot be taken yet ({missing}); later seeds wait for it"
    if decided.stopped or missing:
        pool.console.print(line, markup=False, highlight=False, soft_wrap=True)
    return not decided.stopped and not missing


def stages(study: Study, declaration: Declaration) -> list[set[int]]:
    """The seeds of each declared look that those before it lack; seeds that no look is of come with the last."""
    looks = declaration.looks
    out = [set(declaration.deciding[start:end]) for start, end in pairwise((0, *looks))]
    out[-1] |= set(study.seeds).difference(*out)
    return out


def declared_runs(study: Study, declaration: Declaration) -> list[Run]:
    """The study's runs with the ranges, the yardstick and the digest that study.json declares."""
    arms = {name: declaration.arms[name] for name in study.arms}
    runs = replace(study, arms=arms, reference_bands=declaration.reference_bands).runs()
    return [replace(run, declaration=declaration.digest) for run in runs]


def _take(study: Study, runs: Path, fresh: bool, launcher: Launcher, stack: ExitStack) -> Path:
    """The study's folder, locked for this conductor; an empty one with `fresh`, for which nobody waits in a queue."""
    home, trials = runs / study.name, runs / trials_name(study.name)
    refusal = f"another gspo-lab run is conducting '{study.name}'; wait for it, or use --name NEW for a study beside it"
    if fresh and home.exists():
        with held(home / CONDUCTOR_LOCK, refusal):
            places = [home] if study.tune is None or not trials.exists() else [trials, home]
            for folder in chain.from_iterable(map(work_folders, places)):
                if (process := folder.lock_holder()) is not None:
                    raise LabError(
                        f"--fresh: {folder.path} still has a worker (process {process}); wait until it leaves"
                    )
            for folder in chain.from_iterable(map(launched_folders, places)):
                if (waiting := launcher.find(folder.path)) is not None:
                    waiting.kill()
            for place in places:
                archive(place, runs, place.name)
    stack.enter_context(held(home / CONDUCTOR_LOCK, refusal))
    return home
