"""Run a study until all its runs are finished.

    lock ─> check models, tasks ─> declare (study.json) ─> trials ─> warm starts ─> pilots ─> runs
                                                           └───────── one pool of workers ─────────┘
    while workers work: their journals ─ ingest ─> runs/lab.db, and the live view; from there to
    `[record] mirror` with declared looks: the seeds of each look in turn, until one resolves every
    arm

The same command resumes after any interruption: it skips finished runs and continues others from
their checkpoints.
"""

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, pairwise, product
from pathlib import Path

from rich.console import Console

from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.readings import runs as runs_of
from gspo_lab.common.atomic_files import exclusive_lock
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import CONDUCTOR_LOCK, database_of
from gspo_lab.common.states import State
from gspo_lab.common.text import counted
from gspo_lab.exchange.exporters import target
from gspo_lab.exchange.exporters.live_export import Mirror
from gspo_lab.recording.runfolder import RunFolder, begun_arms, launched_folders, work_folders
from gspo_lab.recording.store import Evidence, ingest
from gspo_lab.running.conduct.run_pilots import find_band, run_pilots
from gspo_lab.running.conduct.run_tuning import with_chosen_settings
from gspo_lab.running.conduct.study_lock import (
    announcement,
    archive,
    declare,
    save_calibrated_range,
    stored_declaration,
)
from gspo_lab.running.conduct.worker_pool import (
    WorkerPool,
    WorkItemResult,
    run_item,
    starts_to_make,
    write_run,
)
from gspo_lab.running.launch import LOCAL, make_launcher, slots_of
from gspo_lab.running.launch.base import Launcher
from gspo_lab.running.launch.local import LocalPool
from gspo_lab.running.plan.memory_fit import require_memory
from gspo_lab.running.plan.plan import plan_of
from gspo_lab.running.plan.preflight import preflight
from gspo_lab.running.plan.preparation import found_bands, pilot, pilot_arms
from gspo_lab.running.progress import ProgressView, print_text
from gspo_lab.study import Declaration, Run, Study
from gspo_lab.study.parent import Kind
from gspo_lab.study.verdict_tables import score_named


@dataclass(frozen=True)
class StudyRunResult:
    """The results of all work items of a study, and whether Ctrl-C ended it."""

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
    """Run the unfinished runs of `study` under the folder `runs`. On return the database holds all
    records.

    `on`: name of the launcher; `jobs`: its workers at once. `fresh` moves earlier runs to
    runs/_archive. `yes` ignores the memory estimate. LabError if the first step cannot be made.
    """
    launcher = make_launcher(on, jobs, study.launch.options)
    slots = slots_of(on, launcher, study.first_arm.settings.device)
    if isinstance(launcher, LocalPool):
        launcher.prepare(slots[0], study.first_arm.settings.engine.name)
    warnings = preflight(study)  # before the first folder is made
    mirrors = {name: target(name) for name in study.mirror}
    if not yes:
        require_memory(study, slots)
    runs.mkdir(parents=True, exist_ok=True)
    ingest(runs)  # fail now, not after the training, if the database cannot take records
    with ExitStack() as stack:
        home = _lock_folder(study, runs, fresh, launcher, stack)
        mirror = stack.enter_context(Mirror(runs, study.name, mirrors)) if mirrors else None
        by_reward = score_named(study.verdict.primary or "").reward
        view = ProgressView(console, study.name, live=live, by_reward=by_reward)
        planned = plan_of(study, runs, slots)
        opening = [planned.headline, study.question, *planned.warnings]
        if warnings:
            names = ", ".join(dict.fromkeys(warning.name for warning in warnings))
            command = shlex.join(["gspo-lab", "plan", str(study.path), *study.command[1:]])
            opening.append(f"warnings: {names}; {command} explains")
        for line in opening:
            print_text(console, line)
        warm_start_steps = study.first_arm.settings.warm_start.steps
        view.expect(planned.expected_rates(warm_start_steps), planned.stage_seconds)
        pool = stack.enter_context(WorkerPool(runs, console, launcher, slots, view, mirror))
        _run_stages(study, runs, home, pool)
        pool.end()
    if pool.interrupts:
        console.print("stopped; the same command resumes where this ended", markup=False)
    return StudyRunResult(pool.results, pool.interrupts > 0)


def _run_stages(study: Study, runs: Path, home: Path, pool: WorkerPool) -> None:
    begun = begun_arms(home)
    stored = stored_declaration(home)
    edits = len(stored.edits) if stored else 0
    chosen = with_chosen_settings(study, home, begun, pool)
    if chosen is None:
        return
    study = chosen
    declaration = declare(study, home)
    for edit in declaration.edits[edits:]:
        print_text(pool.console, announcement(edit))
    batches = seed_batches(study, declaration)
    remaining = _remaining_runs(study, runs, batches[0], pool)
    calibrated = {*begun, *found_bands(study, home)}
    pilots = [pilot(study, arm) for arm in pilot_arms(study) if arm.name not in calibrated]
    first_batch = [run for run in remaining if run.seed in batches[0]]
    starts = starts_to_make([*first_batch, *pilots], runs)
    if not (pool.work("warm starts", starts) and run_pilots(pool, "pilots", pilots, runs)):
        return
    _save_ranges(study, runs, home, pilots, pool)
    for name, band in found_bands(study, home).items():
        if name not in begun:
            declaration = save_calibrated_range(home, name, band)
    declared = {run.id: run for run in declared_runs(study, declaration)}
    skipped = len(study.runs()) - len(remaining)
    title = f"training ({skipped} finished before)" if skipped else "training"
    for number, seeds in enumerate(batches):
        if number and not _needs_more_seeds(study, declaration.looks[number - 1], runs, pool):
            return
        batch = [declared[run.id] for run in remaining if run.seed in seeds]
        if not pool.work("warm starts", starts_to_make(batch, runs)):
            return
        for run in batch:
            write_run(run, runs)
        pool.work(title, [run_item(run, runs) for run in batch])


def _save_ranges(
    study: Study, runs: Path, home: Path, pilots: Sequence[Run], pool: WorkerPool
) -> None:
    """Write the clip ranges that finished pilots give, and print them."""
    for run in pilots:
        low, high = find_band(study.arms[run.arm], run, runs, home)
        line = f"arm {run.arm}: calibrated clip range {low:.3g} / {high:.3g}, frozen"
        print_text(pool.console, line)


def _remaining_runs(study: Study, runs: Path, seeds: set[int], pool: WorkerPool) -> list[Run]:
    """The unfinished runs; shows those of the first batch's `seeds` and all finished ones."""
    remaining = []
    for run in study.runs():
        item = run_item(run, runs)
        folder = RunFolder(run.folder(runs))
        finished = folder.status().finished
        if finished:
            folder.drop_resume()  # its worker may have been killed before doing so
            item.cell.progress.state = State.FINISHED
        else:
            remaining.append(run)
        if finished or run.seed in seeds:
            pool.view.add([item.cell])
    return remaining


def _needs_more_seeds(study: Study, look: int, runs: Path, pool: WorkerPool) -> bool:
    """Whether the interim look at the first `look` seeds leaves an arm unresolved; if not, print
    the result.
    """
    if pool.interrupts:
        return False
    pool.ingest()
    with Evidence.open(database_of(runs), runs) as evidence:
        source = Source(evidence, study.name)
        decided = decision(source)
        declared = source.declaration
        begun = {(run.arm, run.seed) for run in runs_of(source)}
    short = decided.missing.values() if len(decided.seeds) <= look else ()
    missing = ", ".join(dict.fromkeys(chain(*short)))
    if decided.stopped:
        unbegun = len(set(product(declared.arms, declared.deciding)) - begun)
        line = (
            f"resolved at the look after {len(decided.seeds)} of {decided.planned} seeds; saved:"
            f" {counted(unbegun, 'declared run')} not begun"
        )
    else:
        line = (
            f"the look after {look} seeds cannot be taken yet ({missing}); later seeds wait for it"
        )
    if decided.stopped or missing:
        print_text(pool.console, line)
    return not decided.stopped and not missing


def seed_batches(study: Study, declaration: Declaration) -> list[set[int]]:
    """The new seeds of each interim look; seeds beyond the last look belong to its batch."""
    looks = declaration.looks
    out = [set(declaration.deciding[start:end]) for start, end in pairwise((0, *looks))]
    out[-1] |= set(study.seeds).difference(*out)
    return out


def declared_runs(study: Study, declaration: Declaration) -> list[Run]:
    """The study's runs with the ranges, reference ranges and digest in study.json."""
    arms = {name: declaration.arms[name] for name in study.arms}
    declared = replace(study, arms=arms, reference_bands=declaration.reference_bands)
    return [replace(run, declaration=declaration.digest) for run in declared.runs()]


def _lock_folder(
    study: Study, runs: Path, fresh: bool, launcher: Launcher, stack: ExitStack
) -> Path:
    """Lock the study's folder. `fresh` first archives it and removes its workers from queues."""
    home = runs / study.name
    trials = runs / Kind.TRIAL.study_name(study.name)
    refusal = (
        f"another gspo-lab run is conducting '{study.name}'; wait for it, or use --name NEW for a"
        " study beside it"
    )
    if fresh and home.exists():
        with exclusive_lock(home / CONDUCTOR_LOCK, refusal):
            places = [home] if study.tune is None or not trials.exists() else [trials, home]
            for folder in work_folders(*places):
                if (process := folder.lock_holder()) is not None:
                    raise LabError(
                        f"--fresh: {folder.path} still has a worker (process {process}); wait until"
                        " it leaves"
                    )
            for folder in launched_folders(*places):
                if (waiting := launcher.find_worker(folder.path)) is not None:
                    waiting.kill()
            for place in places:
                archive(place, runs, place.name)
    stack.enter_context(exclusive_lock(home / CONDUCTOR_LOCK, refusal))
    return home
