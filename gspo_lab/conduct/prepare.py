"""What must be ready before workers start: work items for the warm starts that are missing, a run.json for each run."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gspo_lab.conduct.scheduler import WorkItem
from gspo_lab.conduct.watch import RunWatch, StartWatch
from gspo_lab.errors import LabError
from gspo_lab.plan.starts import distinct_starts, needs_start, start_folder, wish
from gspo_lab.progress import WARM_STARTS, Cell
from gspo_lab.runfolder import RunFolder
from gspo_lab.study import Run

TRAINING = "training"


def starts_to_make(wanted: Iterable[Run], runs: Path) -> list[WorkItem]:
    """A work item for each warm start that does not exist yet."""
    items = []
    for folder, run in distinct_starts(wanted, runs).items():
        if folder.made() is None:
            folder.ask(wish(run, runs))
            watch, seed = StartWatch(folder), f"s{run.seed}" if run.settings.warm_start.per_seed else ""
            cell = Cell(WARM_STARTS, f"warm start {run.settings.model}", seed, watch.progress)
            items.append(WorkItem(cell, folder, watch))
    return items


def run_item(
    run: Run, runs: Path, *, stage: str = TRAINING, row: str | None = None, column: str | None = None
) -> WorkItem:
    """The work item of a run, up to where it is to wait; its run.json is written by `write_run`."""
    folder = RunFolder(run.folder(runs))
    watch = RunWatch(folder, run, run.until)
    cell = Cell(stage, run.arm if row is None else row, f"s{run.seed}" if column is None else column, watch.progress)
    return WorkItem(cell, folder, watch)


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
