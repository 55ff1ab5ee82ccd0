"""trackio: the study as a project, `<study>.db`, its runs `<arm>-s<seed>`.

trackio fixes where it writes when it is imported. So a process of its own does it: it is given a JSON object a line,
the words of a call, and says a line when that is done.
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
from gspo_lab.exporters.logged import Logged
from gspo_lab.importers.log import Row

NEEDS = ("trackio", "trackio", "writing for trackio")
PLACE = "TRACKIO_DIR"


@contextmanager
def writer(study: str, folder: Path) -> Iterator["Project"]:
    """The project's file, to be shown by `TRACKIO_DIR=<folder> trackio show`."""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as words,
        subprocess.Popen(
            [sys.executable, "-m", "gspo_lab.exporters.trackio"],
            env={**os.environ, PLACE: str(folder.resolve())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
            text=True,
            start_new_session=True,  # who types Ctrl-C does not mean it
        ) as process,
    ):
        yield Project(study, process, words)


class Project:
    """What the process beside is told."""

    def __init__(self, study: str, process: "subprocess.Popen[str]", words: IO[str]) -> None:
        self._study, self._process, self._words = study, process, words

    def begin(self, run: Logged, rows: Sequence[Row]) -> int:
        """Forget what the project holds under the run's name."""
        self._ask("delete_run", run, {})
        return 0

    def add(self, run: Logged, rows: Iterable[Row]) -> None:
        """A row of the project's table per step."""
        found = list(rows)
        at = datetime.fromtimestamp(run.started_at, UTC).isoformat()
        more = {
            "metrics_list": [row for _, row in found],
            "steps": [step for step, _ in found],
            "timestamps": [at] * len(found),
            "config": dict(run.settings),
        }
        self._ask("bulk_log", run, more)

    def _ask(self, what: str, run: Logged, words: dict[str, Any]) -> None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps([what, {"project": self._study, "run": f"{run.arm}-s{run.seed}", **words}]) + "\n")
            stdin.flush()
        except BrokenPipeError:
            pass  # it says below why
        if not stdout.readline():
            self._words.seek(0)
            raise LabError(f"trackio wrote nothing: {self._words.read().strip().rpartition(chr(10))[2]}")


def _serve() -> None:
    from trackio.sqlite_storage import SQLiteStorage

    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        what, words = json.loads(line)
        getattr(SQLiteStorage, what)(**words)
        print("done", file=answers, flush=True)


if __name__ == "__main__":
    _serve()
