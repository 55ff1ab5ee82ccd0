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
    return _folder(wish(run, runs))


def distinct_starts(wanted: Iterable[Run], runs: Path) -> dict[StartFolder, Run]:
    """Each warm start's folder, with a run that needs it."""
    of_settings: dict[int, dict[str, Any]] = {}  # runs of one arm share theirs, and wish the same but for the seed
    found: dict[StartFolder, Run] = {}
    for run in wanted:
        if needs_start(run.settings.model):
            if id(run.settings) not in of_settings:
                of_settings[id(run.settings)] = wish(run, runs)
            found[_folder({**of_settings[id(run.settings)], "seed": _seed(run)})] = run
    return found


def wish(run: Run, runs: Path) -> dict[str, Any]:
    """What a worker is told to make."""
    settings = run.settings
    start = settings.warm_start
    return {
        "model": settings.model,
        "task": {"name": settings.task.name, "options": settings.task.options},
        "task_key": task_key(settings.task.name, settings.task.options, Path(run.base)),
        "warm_start": start.model_dump(mode="json", exclude={"seed"}),
        "seed": _seed(run),
        "base": run.base,
        "cache": str(Path(os.environ.get("GSPO_LAB_CACHE") or runs / STARTS).expanduser().resolve()),
    }


def _seed(run: Run) -> int:
    start = run.settings.warm_start
    return run.seed if start.per_seed else start.seed


def _folder(wished: dict[str, Any]) -> StartFolder:
    needs = {key: value for key, value in wished.items() if key != "base"}  # the files' content is in the task's key
    return StartFolder(Path(wished["cache"]) / "jobs" / digest(needs)[:16])
