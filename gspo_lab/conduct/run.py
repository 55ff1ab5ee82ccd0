"""conduct: from a study to its finished runs.

    lock ─> check models, tasks ─> declare (study.json) ─> warm starts ─> pilots ─> runs ─> outcome
                                                           └──── one crew of workers ────┘
    while workers work: their journals ─ ingest ─> runs/lab.db, and the live view

Whatever ends it, the same command goes on: finished runs are skipped, the others go on from their last checkpoint.
"""

import shlex
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from gspo_lab.conduct.crew import Crew
from gspo_lab.conduct.declaration import archive, declare, set_band
from gspo_lab.conduct.memory import refuse_too_little
from gspo_lab.conduct.pilots import calibrate, calibrated, found_bands, pilot, pilot_job
from gspo_lab.conduct.prepare import preflight, starts_to_make, write_run
from gspo_lab.conduct.summary import StudyOutcome, outcome
from gspo_lab.conduct.watch import RunWatch
from gspo_lab.conduct.work import Interrupts, Job
from gspo_lab.errors import LabError
from gspo_lab.files import held
from gspo_lab.launch.local import LocalPool
from gspo_lab.layout import CONDUCTOR_LOCK, LOCK
from gspo_lab.runfolder import RunFolder, WorkFolder, begun_arms
from gspo_lab.store import DATABASE
from gspo_lab.study import Declaration, Run, Study


def conduct(
    study: Study,
    runs: Path,
    *,
    jobs: int | None = None,
    console: Console,
    fresh: bool = False,
    live: bool = True,
    yes: bool = False,
    report: Callable[[str], object] | None = None,
) -> StudyOutcome:
    """Run what is left of `study` under the folder `runs` and say what was seen.

    `fresh` moves the study's former runs to runs/_archive; `yes` goes on where memory is estimated not to do. `report`
    is called with the study's name when everything is in the database, unless an interrupt ended the work. Raises
    LabError for what keeps the first step from being made.
    """
    warnings = preflight(study)  # before the first folder is made
    console.print(f"{study.name}: {study.question}", markup=False, highlight=False)
    if warnings:
        named = ", ".join(dict.fromkeys(one.name for one in warnings))
        command = shlex.join(["gspo-lab", "check", str(study.path), *study.command[1:]])
        console.print(f"warnings: {named}; {command} explains", markup=False, highlight=False, soft_wrap=True)
    launcher = LocalPool(jobs)
    slots = launcher.slots(next(iter(study.arms.values())).settings.device)
    if not yes:
        refuse_too_little(study, slots)
    with ExitStack() as stack:
        home = _take(study, runs, fresh, stack)
        interrupts = stack.enter_context(Interrupts())
        crew = Crew(study, runs, console, live, launcher, slots, interrupts)
        _through_the_stages(study, runs, home, crew)
        crew.ingest()
    interrupted = interrupts.count > 0
    written = None
    if interrupted:
        console.print("stopped; the same command goes on where this ended", markup=False)
    elif report is not None and any(RunFolder(run.folder(runs)).standing().finished for run in study.runs()):
        written = report(study.name)  # before the outcome: who writes it may accept mismatches
    return outcome(study, runs / DATABASE, crew.endings, interrupted=interrupted, report=written)


def _through_the_stages(study: Study, runs: Path, home: Path, crew: Crew) -> None:
    begun = begun_arms(home)
    declaration = declare(study, home)
    pilots = {
        arm.name: pilot(study, arm)
        for arm in calibrated(study)
        if arm.name not in begun and arm.name not in found_bands(study, home)
    }
    left = []
    for run in study.runs():
        folder = RunFolder(run.folder(runs))
        if folder.standing().finished:
            folder.drop_resume()  # its worker may have been killed before it could
        else:
            left.append(run)
    if not crew.work(f"{study.name}: warm starts", starts_to_make([*left, *pilots.values()], runs)):
        return
    pilot_jobs = [job for run in pilots.values() if (job := pilot_job(run, runs)) is not None]
    for run in pilots.values():
        write_run(run, runs)
    if not crew.work(f"{study.name}: pilots", pilot_jobs):
        return
    for name, run in pilots.items():
        low, high = calibrate(study.arms[name], run, runs, home)
        crew.console.print(f"arm {name}: calibrated clip range {low:.3g} / {high:.3g}, frozen", markup=False)
    for name, band in found_bands(study, home).items():
        if name not in begun:
            declaration = set_band(home, name, band)
    wanted = {run.id for run in left}
    jobs = []
    for run in declared_runs(study, declaration):
        if run.id in wanted:
            folder = write_run(run, runs)
            jobs.append(Job(f"{run.arm}/s{run.seed}", folder, RunWatch(folder, run.settings.steps)))
    skipped = len(study.runs()) - len(jobs)
    crew.work(study.name + (f" ({skipped} finished before)" if skipped else ""), jobs)


def declared_runs(study: Study, declaration: Declaration) -> list[Run]:
    """The study's runs with the ranges and the yardstick that are declared in study.json."""
    arms = {name: declaration.arms[name] for name in study.arms}
    return replace(study, arms=arms, reference_bands=declaration.reference_bands).runs()


def _take(study: Study, runs: Path, fresh: bool, stack: ExitStack) -> Path:
    """The study's folder, locked for this conductor; an empty one with `fresh`."""
    home = runs / study.name
    refusal = f"another gspo-lab run is conducting '{study.name}'; wait for it, or use --name NEW for a study beside it"
    if fresh and home.exists():
        with held(home / CONDUCTOR_LOCK, refusal):
            for lock in home.glob(f"**/{LOCK}"):
                if (process := WorkFolder(lock.parent).at_work()) is not None:
                    raise LabError(
                        f"--fresh: {lock.parent} still has a worker (process {process}); wait until it leaves"
                    )
            archive(home, runs, study.name)
    stack.enter_context(held(home / CONDUCTOR_LOCK, refusal))
    return home
