"""The command `gspo-lab`, and the processes of engines in environments of their own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


def lab(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gspo_lab.cli", *words]
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
        timeout=3000,
    )


def processes_of(folder: Path) -> Iterator[int]:
    """Those whose environment names an attempt below the folder."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(folder).encode() in path.read_bytes():
                yield int(path.parent.name)
        except OSError:
            continue
