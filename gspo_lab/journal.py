"""The append-only file in a run's folder: one JSON object a line, the only thing a worker leaves for the store.

A worker may die at any moment, or its disk be full. Then the last line may be torn: readers stop before it, and the
next write closes it with ` <torn>` and a newline, so that it stays behind as a line of which nothing is missed: what
it would have held is recorded again. Any other line that is no JSON object was damaged later; what it held is lost.
"""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from gspo_lab.layout import JOURNAL
from gspo_lab.records import Record, RunStatus, to_dict, voided
from gspo_lab.states import STARTED

TORN = b" <torn>"
"""What ends a line that was torn and closed; no JSON object ends so."""

FIRST_LOOK_BYTES = 1 << 16
"""How much of a journal's end is read at first, where only its end matters."""


class Journal:
    """Appends records to `folder/journal.jsonl`; every `write` is on the disk when it returns."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL
        self._file: Any = None
        self._torn = False

    def __enter__(self) -> "Journal":
        self._file = self.path.open("ab", buffering=0)
        self._torn = self._file.tell() > 0 and not _ends_with_newline(self.path)
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
        data = (TORN + b"\n" if self._torn else b"") + ("\n".join(lines) + "\n").encode()
        self._torn = True  # until all of it is there
        while data:
            data = data[self._file.write(data) :]
        os.fsync(self._file.fileno())
        self._torn = False


class Lines(NamedTuple):
    """Complete lines of a journal: their objects, the byte behind the last, and where damaged ones begin."""

    items: list[dict[str, Any]]
    end: int
    damaged: list[int]


def scan(path: Path, offset: int = 0) -> Lines:
    """All complete lines after byte `offset`."""
    if not path.exists():
        return Lines([], offset, [])
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read()
    items: list[dict[str, Any]] = []
    damaged = []
    at = offset
    for line in data[: data.rfind(b"\n") + 1].split(b"\n")[:-1]:
        item = _object(line)
        if item is not None:
            items.append(item)
        elif line.strip() and not line.endswith(TORN):
            damaged.append(at)
        at += len(line) + 1
    return Lines(items, at, damaged)


def from_end(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of all complete lines, the last first. Reads no more of the file than is asked for."""
    if not path.exists():
        return
    with path.open("rb") as file:
        start = file.seek(0, os.SEEK_END)
        look, rest, ended = FIRST_LOOK_BYTES, b"", False
        while start:
            end, start = start, max(0, start - look)
            look *= 8
            file.seek(start)
            data = file.read(end - start) + rest
            if not ended:  # what stands behind the last newline is torn
                data = data[: data.rfind(b"\n") + 1]
                ended = bool(data)
            rest, *lines = data.split(b"\n")  # the first piece may be the end of a line that began before
            for line in reversed(lines if start else [rest, *lines]):
                if (item := _object(line)) is not None:
                    yield item


def in_force(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records in their order, without those that a later start of the run has voided."""
    kept: list[dict[str, Any]] = []
    for item in items:
        if item.get("kind") == RunStatus.kind and item["state"] == STARTED:
            kept = [one for one in kept if not voided(one, item["step"])]
        kept.append(item)
    return kept


def line_number(path: Path, offset: int) -> int:
    """Which line begins at a byte, counted from 1."""
    with path.open("rb") as file:
        return file.read(offset).count(b"\n") + 1


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        item = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return item if isinstance(item, dict) else None


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
