"""`[tune]`: the trials by which every arm chooses its settings before the study's first step.

    declare both (study.json of the study and of its trials) ─> warm starts ─> round 1 ─> ... ─> the
    choice, declared
                                                                              └ what is kept goes on
                                                                              from its checkpoint

A round is decided by the trials' records alone, so that an interruption changes no choice.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gspo_lab.analysis.matching.tuning_check import choices_text, read_trials
from gspo_lab.common.atomic_files import sha256_of
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import database_of
from gspo_lab.common.states import Exit, State
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.recording.store import Evidence
from gspo_lab.running.conduct.study_lock import (
    declare,
    stored_declaration,
    with_previous_choice,
)
from gspo_lab.running.conduct.worker_pool import WorkerPool, run_item, starts_to_make, write_run
from gspo_lab.running.progress import print_text
from gspo_lab.study import Declaration, Study
from gspo_lab.study.parent import Kind
from gspo_lab.study.tune import Tune
from gspo_lab.study.tuning_trials import trial_study, tuned

SETTLED = (Exit.FINISHED, Exit.CRASHED)
"""Exit codes that depend on a trial's values; any other code depends on the machine, and the trial
is repeated.
"""


def with_chosen_settings(
    study: Study, home: Path, begun: set[str], pool: WorkerPool
) -> Study | None:
    """The study with the values that its arms chose, after the trials if needed; None if these were
    interrupted.

    LabError where its existing runs chose by another [tune], and where another study lies in the
    place of the trials.
    """
    if study.tune is None or study.tune.chosen:
        return study
    if begun and (stored := stored_declaration(home)) is not None:
        return with_previous_choice(study, stored, home)
    declare(study, home)
    trials = trial_study(study)
    folder = home.parent / trials.name
    former = stored_declaration(folder)
    if former is not None and (former.parent is None or former.parent.study != study.name):
        raise LabError(
            f"{folder} is a study of its folder, where the trials of {study.name} would lie; give"
            " this one another --name"
        )
    chosen = _choice(trials, study.tune, declare(trials, folder), pool)
    if chosen is None:
        return None
    folders = [RunFolder(run.folder(pool.runs)) for run in trials.runs()]
    journals = {
        f.path.relative_to(pool.runs).as_posix(): sha256_of(f.journal)
        for f in folders
        if f.journal.is_file()
    }
    out = tuned(study, study.tune.replace(chosen=dict(chosen), journals=journals))
    declare(out, home)
    for trial in folders:
        trial.drop_resume()
    assert out.tune is not None
    line = f"chosen on trials, and locked: {choices_text(out.tune)}"
    print_text(pool.console, line)
    return out


def _choice(
    trials: Study, tune: Tune, declaration: Declaration, pool: WorkerPool
) -> Mapping[str, int] | None:
    """Train all rounds; None if Ctrl-C or the machine ended them before all arms had chosen."""
    runs = {run.id: replace(run, declaration=declaration.digest) for run in trials.runs()}
    reached: dict[str, int] = {}
    began = len(pool.results)
    again = {
        run.id
        for run in runs.values()
        if RunFolder(run.folder(pool.runs)).status().state is State.FAILED
    }
    if not pool.work("warm starts", starts_to_make(runs.values(), pool.runs)):
        return None
    while True:
        pool.ingest()
        with Evidence.open(database_of(pool.runs), pool.runs) as evidence:
            result = read_trials(evidence, trials.name, tune, again)
        if result.dead:
            raise LabError(
                f"{', '.join(result.dead)}: every candidate collapsed or died in its trials, so"
                f" there is nothing to choose; gspo-lab show {trials.name} says how, give it calmer"
                " values under [tune]"
            )
        if not result.open:
            del pool.results[
                began:
            ]  # a failed trial is a result of the tuning, not a failure of the study
            return result.chosen
        steps = tune.rounds[len(result.rounds)].steps
        if silent := [run for run in result.open if reached.get(run) == steps]:
            raise LabError(
                f"{silent[0]} came to step {steps} and left no {tune.metric} there: its engine does"
                " not evaluate before it stops; give such a study fixed values"
            )
        reached |= dict.fromkeys(result.open, steps)
        waiting = [replace(runs[run], until=steps) for run in result.open]
        for run in waiting:
            write_run(run, pool.runs)
        items = [run_item(run, pool.runs, Kind.TRIAL) for run in waiting]
        results_before = len(pool.results)
        pool.work(
            f"trials, round {1 + len(result.rounds)} of {len(tune.rounds)}, to step {steps}", items
        )
        if pool.interrupts or any(
            item.code not in SETTLED for item in pool.results[results_before:]
        ):
            return None
        again -= set(result.open)
