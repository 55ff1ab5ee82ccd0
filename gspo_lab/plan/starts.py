"""The warm starts that runs need: equal needs, one start, made once and shared by all studies."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gspo_lab.layout import STARTS
from gspo_lab.models.check import EMBEDDED
from gspo_lab.runfolder import StartFolder
from gspo_lab.study import Run, digest
from gspo_lab.tasks import task_key


def needs_start(model: str) -> bool:
    """Embedded models are made, even with 0 steps; all others start from their checkpoint as it is."""
    return model in EMBEDDED


def start_folder(run: Run, runs: Path) -> StartFolder:
    """The folder in which the warm start that `run` needs is asked for: equal needs, equal folder."""
    wished = wish(run, runs)
    del wished["base"]  # where the task's files lie; what is in them is part of the task's key
    return StartFolder(Path(wished["cache"]) / "jobs" / digest(wished)[:16])


def distinct_starts(wanted: Iterable[Run], runs: Path) -> dict[StartFolder, Run]:
    """Each warm start's folder, with a run that needs it."""
    return {start_folder(run, runs): run for run in wanted if needs_start(run.settings.model)}


def wish(run: Run, runs: Path) -> dict[str, Any]:
    """What a worker is told to make."""
    settings = run.settings
    start = settings.warm_start
    return {
        "model": settings.model,
        "task": {"name": settings.task.name, "options": settings.task.options},
        "task_key": task_key(settings.task.name, settings.task.options, Path(run.base)),
        "warm_start": start.model_dump(mode="json", exclude={"seed"}),
        "seed": run.seed if start.per_seed else start.seed,
        "base": run.base,
        "cache": str(Path(os.environ.get("GSPO_LAB_CACHE") or runs / STARTS).expanduser().resolve()),
    }
