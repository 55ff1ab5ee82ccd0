"""What must be ready before workers start: errands for the warm starts that are missing, a run.json for each run."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gspo_lab.conduct.watch import StartWatch
from gspo_lab.conduct.work import Errand
from gspo_lab.errors import LabError
from gspo_lab.plan.starts import distinct_starts, needs_start, start_folder, wish
from gspo_lab.runfolder import RunFolder
from gspo_lab.study import Run


def starts_to_make(wanted: Iterable[Run], runs: Path) -> list[Errand]:
    """An errand for each warm start that does not exist yet."""
    errands = []
    for folder, run in distinct_starts(wanted, runs).items():
        if folder.made() is None:
            folder.ask(wish(run, runs))
            seed = f" seed {run.seed}" if run.settings.warm_start.per_seed else ""
            errands.append(Errand(f"warm start {run.settings.model}{seed}", folder, StartWatch(folder)))
    return errands


def write_run(run: Run, runs: Path) -> RunFolder:
    """Write run.json, with the model's folder that the run starts from; the run's folder."""
    folder = RunFolder(run.folder(runs))
    if needs_start(run.settings.model):
        start = start_folder(run, runs).made()
        if start is None:
            raise LabError(f"{run.id}: its warm start has gone; start the study again to remake it")
        run = replace(run, warm_start=str(start))
    folder.specify(run.to_json())
    return folder
