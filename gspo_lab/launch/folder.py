"""Where a run stands, by the end of its journal; what a finished one no longer needs."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_lab.layout import CHECKPOINTS, JOURNAL, RESUME

FIRST_LOOK_BYTES = 1 << 16


@dataclass(frozen=True)
class Standing:
    """`state`: new (nothing recorded), interrupted (ended without a word), started, stopped, finished or failed."""

    state: str
    steps: int
    message: str | None = None

    @property
    def finished(self) -> bool:
        return self.state == "finished"


def standing(folder: Path) -> Standing:
    """Where the run in `folder` stands, whatever the journal's length. `started` or `interrupted` may be at work."""
    path = folder / JOURNAL
    size = path.stat().st_size if path.exists() else 0
    look = FIRST_LOOK_BYTES
    while size:
        found = _from_end(path, max(0, size - look))
        if found is not None:
            return found
        if look >= size:
            break
        look *= 8
    return Standing("new", 0)


def _from_end(path: Path, start: int) -> Standing | None:
    """What the lines behind byte `start` tell; None where they say too little."""
    with path.open("rb") as file:
        file.seek(start)
        lines = file.read().split(b"\n")
    # The first piece may be the end of a line that began before `start`.
    records = [record for line in lines[1 if start else 0 :] if (record := _parsed(line)) is not None]
    for back, record in enumerate(reversed(records)):
        if record["kind"] == "step":
            return Standing("interrupted", record["step"] + 1)
        if record["kind"] == "status":
            return Standing(record["state"] if back == 0 else "interrupted", record["step"], record.get("message"))
    return None


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and "kind" in record else None


def drop_resume(folder: Path) -> None:
    """Delete what a finished run would have gone on from: as large as the optimizer's state, and never read again."""
    for name in (RESUME, f".{RESUME}.partial"):
        (folder / CHECKPOINTS / name).unlink(missing_ok=True)
