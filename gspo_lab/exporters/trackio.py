"""trackio: the study as a project, `<study>.db`, its runs `<arm>-s<seed>`.

trackio fixes where it writes when it is imported. So a process of its own does it, which is given a JSON object a run.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from gspo_lab.errors import LabError, MissingExtra
from gspo_lab.exporters.logged import Logged

PLACE = "TRACKIO_DIR"


def write(study: str, runs: Sequence[Logged], folder: Path) -> None:
    """The project's file, to be shown by `TRACKIO_DIR=<folder> trackio show`."""
    if find_spec("trackio") is None:
        raise MissingExtra("trackio", "trackio", "export to trackio")
    told = []
    for run in runs:
        rows = list(run.rows())
        at = datetime.fromtimestamp(run.started_at, UTC).isoformat()
        told.append(
            {
                "project": study,
                "run": f"{run.arm}-s{run.seed}",
                "metrics_list": [row for _, row in rows],
                "steps": [step for step, _ in rows],
                "timestamps": [at] * len(rows),
                "config": dict(run.settings),
            }
        )
    done = subprocess.run(
        [sys.executable, "-m", "gspo_lab.exporters.trackio"],
        input="".join(json.dumps(one) + "\n" for one in told),
        env={**os.environ, PLACE: str(folder.resolve())},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise LabError(f"trackio wrote nothing: {done.stderr.strip().rpartition(chr(10))[2]}")


def _take() -> None:
    from trackio.sqlite_storage import SQLiteStorage

    for line in sys.stdin:
        SQLiteStorage.bulk_log(**json.loads(line))


if __name__ == "__main__":
    _take()
