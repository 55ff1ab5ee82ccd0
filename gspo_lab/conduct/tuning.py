"""`[tune]`: the trials on which every arm chooses, before the study's first step.

    declare both (study.json of the study and of its trials) ─> warm starts ─> round 1 ─> ... ─> the choice, declared
                                                                              └ what is kept goes on from its checkpoint

What a round decides follows from the trials' records alone, so that a kill changes no choice.
"""

from dataclasses import replace
from pathlib import Path

from gspo_lab.conduct.declaration import declare
from gspo_lab.conduct.worker_pool import WorkerPool, run_item, starts_to_make, write_run
from gspo_lab.errors import LabError
from gspo_lab.files import read_json, sha256_of
from gspo_lab.layout import STUDY, database_of
from gspo_lab.matching.tuned import Trials, choices, read_trials
from gspo_lab.runfolder import RunFolder
from gspo_lab.states import Exit, State
from gspo_lab.store import Evidence
from gspo_lab.study import Declaration, Study
from gspo_lab.study.trials import trial_study, tuned
from gspo_lab.study.tune import Tune

SETTLED = (Exit.FINISHED, Exit.CRASHED)
"""How a trial ends that says something of its values; all else says something of the machine, and is tried again."""


def settled(study: Study, home: Path, begun: set[str], pool: WorkerPool) -> Study | None:
    """The study with the values that its arms chose, on trials where they have not yet; None where those were not
    brought to their end. LabError where all candidates of an arm died."""
    if study.tune is None or study.tune.chosen:
        return study
    before = read_json(home / STUDY) if begun else None
    if before is not None:
        return _as_chosen(study, Declaration.parse(before, home / STUDY).tune, home)
    declare(study, home)
    trials = trial_study(study)
    own = home.parent / trials.name
    _refuse_other_study(own, study.name)
    declaration = declare(trials, own)
    found = _rounds(trials, study.tune, declaration, pool)
    if found is None or found.chosen is None:
        return None
    folders = [RunFolder(run.folder(pool.runs)) for run in trials.runs()]
    written = [folder for folder in folders if folder.journal.is_file()]
    journals = {folder.path.relative_to(pool.runs).as_posix(): sha256_of(folder.journal) for folder in written}
    tune = study.tune.model_copy(update={"chosen": dict(found.chosen), "journals": journals})
    out = tuned(study, tune)
    declare(out, home)
    for folder in folders:
        folder.drop_resume()
    pool.console.print(f"chosen on trials, and locked: {choices(tune)}", markup=False, highlight=False, soft_wrap=True)
    return out


def _as_chosen(study: Study, before: Tune | None, home: Path) -> Study:
    """The study with what its begun runs were made with; a [tune] that changed since would be refused."""
    unchosen = None if before is None else before.model_copy(update={"chosen": {}, "journals": {}})
    if before is None or unchosen != study.tune:
        raise LabError(
            f"{home} holds runs whose arms chose by another [tune]; start this one beside them with --name NEW, or "
            "start over with --fresh"
        )
    return tuned(study, before)


def _refuse_other_study(own: Path, name: str) -> None:
    data = read_json(own / STUDY)
    if data is not None and data.get("trials_of") != name:
        raise LabError(
            f"{own} is a study of its own, where the trials of {name} would lie; give this one another --name"
        )


def _rounds(trials: Study, tune: Tune, declaration: Declaration, pool: WorkerPool) -> Trials | None:
    """Train round after round; None where Ctrl-C or the machine ended it before all arms had chosen."""
    runs = {run.id: replace(run, declaration=declaration.digest) for run in trials.runs()}
    asked: dict[str, int] = {}
    began = len(pool.results)
    again = {run for run, one in runs.items() if RunFolder(one.folder(pool.runs)).status().state is State.FAILED}
    if not pool.work("warm starts", starts_to_make(runs.values(), pool.runs)):
        return None
    while True:
        pool.ingest()
        with Evidence.open(database_of(pool.runs), pool.runs) as evidence:
            found = read_trials(evidence, trials.name, tune, again)
        if found.dead:
            raise LabError(
                f"{', '.join(found.dead)}: every candidate collapsed or died in its trials, so there is nothing to "
                f"choose; gspo-lab show {trials.name} says how, give it calmer values under [tune]"
            )
        if not found.open:
            del pool.results[began:]  # a trial that died is a result, and no failure of the study
            return found
        if silent := [run for run, steps in found.open if asked.get(run) == steps]:
            raise LabError(
                f"{silent[0]} came to step {asked[silent[0]]} and left no {tune.metric} there: its engine does not "
                "evaluate before it stops; give such a study fixed values"
            )
        asked |= dict(found.open)
        steps = found.open[0][1]
        waiting = [replace(runs[run], until=steps) for run, _ in found.open]
        for run in waiting:
            write_run(run, pool.runs)
        items = [run_item(run, pool.runs, stage="trials", row=f"trial {run.arm}") for run in waiting]
        number = 1 + len(found.rounds)
        before = len(pool.results)
        pool.work(f"trials, round {number} of {len(tune.rounds)}, to step {steps}", items)
        ended = pool.results[before:]
        if pool.interrupts.count or any(one.code not in SETTLED for one in ended):
            return None
        again -= {run for run, _ in found.open}
