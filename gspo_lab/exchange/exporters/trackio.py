"""trackio: the study as a project, `<study>.db`, its runs `<arm>-s<seed>`."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path
from typing import Any

from gspo_lab.common.errors import LabError
from gspo_lab.common.registry import one_line_error
from gspo_lab.exchange.exporters import RunRows
from gspo_lab.exchange.importers.base import LoggedRow

NEEDS = ("trackio", "trackio", "writing for trackio")


@contextmanager
def writer(study: str, folder: Path) -> Iterator["Project"]:
    """The project's file, which `TRACKIO_DIR=<folder> trackio show` shows."""
    yield Project(study, folder.resolve())


class Project:
    """A study's project in one folder."""

    def __init__(self, study: str, folder: Path) -> None:
        self._study = study
        self._folder = folder

    def begin(self, run: RunRows, rows: Sequence[LoggedRow]) -> int:
        """Delete the run from the project."""
        self._call("delete_run", run)
        return 0

    def add(self, run: RunRows, rows: Iterable[LoggedRow]) -> None:
        """Add one row per step to the project's table."""
        entries = list(rows)
        started = datetime.fromtimestamp(run.started_at, UTC).isoformat()
        self._call(
            "bulk_log",
            run,
            metrics_list=[dict(row) for _, row in entries],
            steps=[step for step, _ in entries],
            timestamps=list(repeat(started, len(entries))),
            config=dict(run.settings),
        )

    def _call(self, method: str, run: RunRows, **arguments: Any) -> None:
        from trackio import sqlite_storage, utils

        for module in (sqlite_storage, utils):  # which read the folder once, when they are imported
            module.TRACKIO_DIR = self._folder
        try:
            getattr(sqlite_storage.SQLiteStorage, method)(
                self._study, f"{run.arm}-s{run.seed}", **arguments
            )
        except Exception as error:
            raise LabError(f"trackio wrote nothing: {one_line_error(error)}") from error
