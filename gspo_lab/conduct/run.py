"""conduct: from a study to its finished runs.

    lock ─> check models, tasks ─> declare (study.json) ─> trials ─> warm starts ─> pilots ─> runs
                                                           └───────── one crew of workers ─────────┘
    while workers work: their journals ─ ingest ─> runs/lab.db, and the live view; from there to `[record] mirror`
    with declared looks: the seeds of each look in turn, until one resolves every arm

Whatever ends it, the same command goes on: finished runs are skipped, the others go on from their last checkpoint.
"""

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path

from rich.console import Console

from gspo_lab.conduct.crew import Crew
from gspo_lab.conduct.declaration import archive, declare, set_band
from gspo_lab.conduct.looks import look_at
from gspo_lab.conduct.pilots import find_band, pilot_errand
from gspo_lab.conduct.prepare import starts_to_make, write_run
from gspo_lab.conduct.tuning import settled
from gspo_lab.conduct.watch import RunWatch
from gspo_lab.conduct.work import Errand, ErrandEnd, Interrupts
from gspo_lab.errors import LabError
from gspo_lab.exporters import target
from gspo_lab.exporters.mirror import Mirror
from gspo_lab.files import held
from gspo_lab.launch.base import Launcher
from gspo_lab.launch.make import LOCAL, make_launcher, slots_of
from gspo_lab.layout import CONDUCTOR_LOCK
from gspo_lab.plan.check import preflight
from gspo_lab.plan.memory import refuse_too_little
from gspo_lab.plan.pilots import found_bands, pilot, pilot_arms
from gspo_lab.runfolder import RunFolder, begun_arms, launched_folders, work_folders
from gspo_lab.store import ingest
from gspo_lab.study import Declaration, Run, Study
from gspo_lab.study.trials import trials_name


@dataclass(frozen=True)
class Conducted:
    """What came of conducting a study: how each errand ended, and whether Ctrl-C ended the work."""

    endings: Sequence[ErrandEnd]
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
) -> Conducted:
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
        refuse_too_little(study, slots)
    runs.mkdir(parents=True, exist_ok=True)
    ingest(runs)  # a database that cannot take the records in is told now, and not after the training
    with ExitStack() as stack:
        home = _take(study, runs, fresh, launcher, stack)
        interrupts = stack.enter_context(Interrupts())
        mirror = stack.enter_context(Mirror(runs, study.name, mirrors)) if mirrors else None
        crew = Crew(runs, console, live, launcher, slots, interrupts, mirror)
        _through_the_stages(study, runs, home, crew)
        crew.end()
    if interrupts.count:
        console.print("stopped; the same command goes on where this ended", markup=False)
    return Conducted(crew.endings, interrupts.count > 0)


def _through_the_stages(study: Study, runs: Path, home: Path, crew: Crew) -> None:
    begun = begun_arms(home)
    if (ready := settled(study, home, begun, crew)) is None:
        return
    study = ready
    declaration = declare(study, home)
    pilots = {
        arm.name: pilot(study, arm)
        for arm in pilot_arms(study)
        if arm.name not in begun and arm.name not in found_bands(study, home)
    }
    left = []
    for run in study.runs():
        folder = RunFolder(run.folder(runs))
        if folder.standing().finished:
            folder.drop_resume()  # its worker may have been killed before it could
        else:
            left.append(run)
    first, *later = stages(study, declaration)
    first_left = [run for run in left if run.seed in first]
    if not crew.work(f"{study.name}: warm starts", starts_to_make([*first_left, *pilots.values()], runs)):
        return
    pilot_errands = [errand for run in pilots.values() if (errand := pilot_errand(run, runs)) is not None]
    for run in pilots.values():
        write_run(run, runs)
    if not crew.work(f"{study.name}: pilots", pilot_errands):
        return
    for name, run in pilots.items():
        low, high = find_band(study.arms[name], run, runs, home)
        crew.console.print(f"arm {name}: calibrated clip range {low:.3g} / {high:.3g}, frozen", markup=False)
    for name, band in found_bands(study, home).items():
        if name not in begun:
            declaration = set_band(home, name, band)
    wanted = {run.id for run in left}
    waiting = [run for run in declared_runs(study, declaration) if run.id in wanted]
    skipped = len(study.runs()) - len(waiting)
    title = f"{study.name}: training" + (f" ({skipped} finished before)" if skipped else "")
    crew.work(title, _errands([run for run in waiting if run.seed in first], runs))
    for look, seeds in zip(declaration.looks, later, strict=False):
        if crew.interrupts.count or not _goes_on(study, look, runs, crew):
            return
        own = [run for run in waiting if run.seed in seeds]
        if not crew.work(f"{study.name}: warm starts", starts_to_make(own, runs)):
            return
        crew.work(title, _errands(own, runs))


def _errands(wanted: Sequence[Run], runs: Path) -> list[Errand]:
    out = []
    for run in wanted:
        folder = write_run(run, runs)
        watch = RunWatch(folder, run.settings.steps, run.settings.rollout.group_size)
        out.append(Errand(f"{run.arm}/s{run.seed}", folder, watch))
    return out


def _goes_on(study: Study, look: int, runs: Path, crew: Crew) -> bool:
    """Whether the look after so many seeds leaves an arm open; says what it found where it does not."""
    crew.ingest()
    found = look_at(study, look, runs)
    if found.stopped:
        crew.console.print(found.line, markup=False, highlight=False, soft_wrap=True)
    elif found.missing:
        said = f"the look after {look} seeds cannot be taken yet ({', '.join(found.missing)}); later seeds wait for it"
        crew.console.print(said, markup=False, highlight=False, soft_wrap=True)
    return not found.stopped and not found.missing


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
                if (process := folder.at_work()) is not None:
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
