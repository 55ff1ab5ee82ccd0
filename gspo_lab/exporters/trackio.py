"""trackio: the study as a project, `<study>.db`, its runs `<arm>-s<seed>`.

trackio fixes its folder when it is imported, so a separate process writes. Each input line is a JSON array with a
method and its arguments; the process prints a line when the call is done.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from gspo_lab.errors import LabError
from gspo_lab.exporters import RunRows
from gspo_lab.importers.base import LoggedRow

NEEDS = ("trackio", "trackio", "writing for trackio")
PLACE = "TRACKIO_DIR"


@contextmanager
def writer(study: str, folder: Path) -> Iterator["Project"]:
    """The project's file, which `TRACKIO_DIR=<folder> trackio show` shows."""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "gspo_lab.exporters.trackio"],
            env={**os.environ, PLACE: str(folder.resolve())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # Ctrl-C must not reach it
        ) as process,
    ):
        yield Project(study, process, errors)


class Project:
    """Sends calls to the trackio process."""

    def __init__(self, study: str, process: "subprocess.Popen[str]", errors: IO[str]) -> None:
        self._study, self._process, self._errors = study, process, errors

    def begin(self, run: RunRows, rows: Sequence[LoggedRow]) -> int:
        """Delete the run from the project."""
        self._call("delete_run", run, {})
        return 0

    def add(self, run: RunRows, rows: Iterable[LoggedRow]) -> None:
        """Add one row per step to the project's table."""
        entries = list(rows)
        at = datetime.fromtimestamp(run.started_at, UTC).isoformat()
        values = {
            "metrics_list": [row for _, row in entries],
            "steps": [step for step, _ in entries],
            "timestamps": [at] * len(entries),
            "config": dict(run.settings),
        }
        self._call("bulk_log", run, values)

    def _call(self, method: str, run: RunRows, arguments: dict[str, Any]) -> None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(
                json.dumps([method, {"project": self._study, "run": f"{run.arm}-s{run.seed}", **arguments}]) + "\n"
            )
            stdin.flush()
        except BrokenPipeError:
            pass  # the error below has the reason
        if not stdout.readline():
            self._errors.seek(0)
            raise LabError(f"trackio wrote nothing: {self._errors.read().strip().rpartition(chr(10))[2]}")


def _serve() -> None:
    from trackio.sqlite_storage import SQLiteStorage

    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        method, arguments = json.loads(line)
        getattr(SQLiteStorage, method)(**arguments)
        print("done", file=answers, flush=True)


if __name__ == "__main__":
    _serve()
