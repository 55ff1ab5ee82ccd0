"""The append-only file in a run's folder: one JSON object a line, the only thing a worker leaves for the store.

A worker may die at any moment. Then the last line may be torn: readers stop before it, and the next writer closes it
with a newline so that it stays behind as a line nobody can parse, which readers skip.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from gspo_lab.layout import JOURNAL
from gspo_lab.records import Record, to_dict


class Journal:
    """Appends records to `folder/journal.jsonl`; every `write` is on the disk when it returns."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL
        self._file: Any = None

    def __enter__(self) -> "Journal":
        self._file = self.path.open("ab")
        if self._file.tell() and not _ends_with_newline(self.path):
            self._file.write(b"\n")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, records: Iterable[Record]) -> None:
        """Append the records in one write, then wait for the disk: all lines or, at worst, a torn last one."""
        lines = [json.dumps(to_dict(record), separators=(",", ":"), ensure_ascii=True) for record in records]
        if not lines:
            return
        self._file.write(("\n".join(lines) + "\n").encode())
        self._file.flush()
        os.fsync(self._file.fileno())


def read(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """The objects of all complete lines after byte `offset`, and the offset behind the last of them."""
    if not path.exists():
        return [], offset
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read()
    end = data.rfind(b"\n") + 1
    out = []
    for line in data[:end].splitlines():
        try:
            item = json.loads(line)
        except ValueError:
            continue
        if isinstance(item, dict):
            out.append(item)
    return out, offset + end


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
