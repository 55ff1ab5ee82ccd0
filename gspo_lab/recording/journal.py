"""The append-only file in a run's folder: one record a line, as JSON under its fields' names, the
only thing a worker leaves for the store.

A worker may die at any moment, or its disk be full. Then the last line may be torn. Readers stop
before it. The next write closes it with ` <torn>` and a newline, and records its content again. Any
other line that is not a JSON object, or a record without its step, was damaged later, and its
content is lost.

Every line ends in `"chain"`: the digest of the line before, and its own, which is over that digest
and the object.

    {"kind":"step", ..., "chain":"5f0c11d2a94be077"}
                                  |before ||own   |

So a changed line contradicts its own digest, and a deleted, inserted or moved line that of the next
one. Lines lost at the very end look like a kill. The chain detects accidents, not forgery.

The last status of a finished run holds the sha256 of all lines before it, and one of each
evaluation's answers (`seal`). By these the database's copy of the answers can be checked without
the journal.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import IO, Any, NamedTuple

from gspo_lab.common.atomic_files import sole_writer
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import JOURNAL
from gspo_lab.common.plain_data import JsonMapping, JsonObject
from gspo_lab.common.states import STARTED
from gspo_lab.recording.records import (
    RECORDS,
    ROLLOUT,
    AnswerRecord,
    Record,
    RunStatus,
    ScoreRecord,
    StepRecord,
    UpdateRecord,
)

TORN = b" <torn>"
"""What ends a line that was torn and closed; no JSON object ends so."""

SEAL = re.compile(rb',"chain":"[0-9a-f]{16}"}')
"""How a line ends: with the digest of the line before and its own."""
SEAL_BYTES = 28
PREVIOUS_DIGEST = slice(-18, -10)
OWN_DIGEST = slice(-10, -2)

WORDS = {RunStatus.kind: ("state",), AnswerRecord.kind: ("bench",)}
"""The fields that decide what a record voids, and what voids it."""

OBJECTS = ("facts", "answers")
"""What of a status is read by names, where it is there."""

ANSWERED = (
    "problem",
    "sample",
    "sample_seed",
    "prompt",
    "reference",
    "text",
    "truncated",
    "correct",
    "grader",
    "reward",
)
"""The fields of an answer that its evaluation's digest is of."""

FIELDS = {cls: tuple(entry.name for entry in fields(cls)) for cls in RECORDS.values()}
"""The names of each record's fields."""

ENCODE = json.JSONEncoder(separators=(",", ":")).encode

START = b"0" * 8
"""Stands for the line before the first."""

FIRST_LOOK_BYTES = 1 << 16
"""How much of a journal's end is read at first, where only its end matters."""


def to_dict(record: Record) -> JsonObject:
    """A JSON-able dictionary with the record's kind; None fields are left out, non-finite floats
    are None too.
    """
    out: JsonObject = {"kind": record.kind}
    for name in FIELDS[type(record)]:
        value = getattr(record, name)
        if value is not None and not (isinstance(value, float) and not math.isfinite(value)):
            out[name] = value
    return out


def from_dict(data: JsonObject) -> Record:
    """The record of `to_dict`; unknown fields are ignored."""
    cls = RECORDS[data["kind"]]
    names = FIELDS[cls]
    return cls(**{name: value for name, value in data.items() if name in names})


class Journal:
    """Appends records to `folder/journal.jsonl`; every `write` is on the disk when it returns."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL
        self._file: Any = None
        self._close: Callable[[], None]
        self._torn = False
        self._last = START

    def __enter__(self) -> "Journal":
        with ExitStack() as stack:
            self._file = stack.enter_context(self.path.open("ab", buffering=0))
            if not stack.enter_context(sole_writer(self._file)):
                raise LabError(
                    f"another process writes to {self.path}: wait until it has ended, or end it (a"
                    " lock file is gone?)"
                )
            self._close = stack.pop_all().close
        with self.path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            self._torn = file.read() not in (b"", b"\n")
        self._last = digest_before(self.path, size).encode()
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def is_in_place(self) -> bool:
        """Whether the open file is still the one at its path."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self.path.stat())
        except OSError:
            return False

    @property
    def has_records(self) -> bool:
        """Whether it had a complete line when it was opened, or has been written to since."""
        return self._last != START

    def write(self, records: Iterable[Record]) -> None:
        """Append the records in one write, then wait for the disk: all lines or, at worst, a torn
        last one.
        """
        if self._torn:  # by the worker before or by a write that failed: what it left whole counts
            self._last = digest_before(self.path, self.path.stat().st_size).encode()
        lines = []
        last = self._last
        for record in records:
            body = ENCODE(to_dict(record)).encode()
            previous = last
            last = _digest(last + body)
            lines.append(b'%b,"chain":"%b%b"}\n' % (body[:-1], previous, last))
        if not lines:
            return
        data = (TORN + b"\n" if self._torn else b"") + b"".join(lines)
        self._torn = True  # until all of it is there
        try:
            while data:
                data = data[self._file.write(data) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        self._torn = False
        self._last = last


class Damage(NamedTuple):
    """A line that is damaged and left out, or, with `gap`, a whole one that does not follow from
    the line before it.
    """

    at: int
    """The byte at which it begins."""
    gap: bool = False


class JournalLines(NamedTuple):
    """Complete lines of a journal: their objects, the byte behind the last, and what is wrong with
    any.
    """

    items: list[JsonObject]
    end: int
    damaged: list[Damage]


class JournalReader:
    """The complete lines after byte `offset`, where one begins: their objects, one by one, however
    long the file is.

    What `end` (the byte behind the last), `count` and `damaged` say is complete once it is through.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self.end = offset
        self.count = 0
        self.damaged: list[Damage] = []

    def __iter__(self) -> Iterator[JsonObject]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            last: bytes | None = _line_digest(_line_before(file, self.end))
            size = os.fstat(
                file.fileno()
            ).st_size  # what is written meanwhile is read the next time
            file.seek(self.end)
            while self.end < size and (line := file.readline()).endswith(b"\n"):
                start = self.end
                line = line[:-1]
                self.end += len(line) + 1
                if _is_blank_or_torn(line):
                    continue
                item = _object(line)
                if item is None:
                    self.damaged.append(Damage(start))
                    last = None  # what the next one follows is unknown
                    continue
                if last is not None and line[PREVIOUS_DIGEST] != last:
                    self.damaged.append(Damage(start, gap=True))
                last = line[OWN_DIGEST]
                self.count += 1
                yield item


def scan(path: Path, offset: int = 0) -> JournalLines:
    """All complete lines after byte `offset`, where a line begins."""
    reading = JournalReader(path, offset)
    items = list(reading)
    return JournalLines(items, reading.end, reading.damaged)


def _lines_of(path: Path) -> Iterator[bytes]:
    """All complete lines but torn ones, damaged ones included."""
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n") and not _is_blank_or_torn(line[:-1]):
                    yield line


def digest_of_answers(answers: Iterable[Iterable[Any]]) -> str:
    """sha256 of one evaluation's answers, each by its ANSWERED fields, whatever their order."""
    # As they come back from the database: a reward is a float, half a surrogate pair a '?'.
    rows = [[*row, reward if reward is None else float(reward)] for *row, reward in answers]
    rows.sort(key=lambda row: row[:2])
    return hashlib.sha256(
        json.dumps(rows, ensure_ascii=False).encode("utf-8", "replace")
    ).hexdigest()


def seal(path: Path) -> JsonObject:
    """The digests in the last status of a finished run: `journal` and `answers` of a RunStatus."""
    evaluations: dict[str, dict[tuple[Any, Any], list[Any]]] = {}
    for item in in_force(scan(path).items):
        if item.get("kind") == AnswerRecord.kind and item["bench"] != ROLLOUT:
            rows = evaluations.setdefault(evaluation_key(item["bench"], item["step"]), {})
            rows[item.get("problem"), item.get("sample")] = [item.get(name) for name in ANSWERED]
    answers = {key: digest_of_answers(rows.values()) for key, rows in evaluations.items()}
    journal_digest = hashlib.sha256()
    for line in _lines_of(path):
        journal_digest.update(line)
    return {"journal": journal_digest.hexdigest(), "answers": answers}


def sealed(path: Path) -> bool | None:
    """Whether a journal matches the seal in its last line. None: it has no seal."""
    journal_digest = hashlib.sha256()
    matches = None
    for line in _lines_of(path):
        if matches is not None:
            return False
        item = _object(line[:-1]) if b'"journal":' in line else None
        if item is not None and item.get("kind") == RunStatus.kind and "journal" in item:
            matches = item["journal"] == journal_digest.hexdigest()
        journal_digest.update(line)
    return matches


def evaluation_key(bench: str, step: int) -> str:
    """How `RunStatus.answers` names an evaluation."""
    return f"{bench}@{step}"


def from_end(path: Path) -> Iterator[JsonObject]:
    """The objects of all complete lines, the last first.

    Reads no more of the file than is asked for.
    """
    if path.exists():
        with path.open("rb") as file:
            for line in _lines_reversed(file, file.seek(0, os.SEEK_END)):
                if (item := _object(line)) is not None:
                    yield item


def _lines_reversed(file: IO[bytes], start: int) -> Iterator[bytes]:
    look = FIRST_LOOK_BYTES
    head = b""
    ended = False
    while start:
        end = start
        start = max(0, start - look)
        look *= 8
        file.seek(start)
        data = file.read(end - start) + head
        if not ended:  # what stands behind the last newline is torn
            data = data[: data.rfind(b"\n") + 1]
            ended = bool(data)
        head, *lines = data.split(
            b"\n"
        )  # the first piece may be the end of a line that began before
        yield from reversed(lines if start else [head, *lines])


def _line_before(file: IO[bytes], offset: int) -> bytes | None:
    """The last complete line before a byte, torn ones passed over."""
    return next(
        (line for line in _lines_reversed(file, offset) if not _is_blank_or_torn(line)), None
    )


def _is_blank_or_torn(line: bytes) -> bool:
    """Whether nothing is missed of a line that is no object."""
    return not line.strip() or line.endswith(TORN)


def digest_before(path: Path, offset: int) -> str:
    """The digest of the last complete line before a byte: where the chain stands there."""
    with path.open("rb") as file:
        line = _line_before(file, offset)
    return _line_digest(line).decode()


def voided(record: JsonMapping, step: int) -> bool:
    """Whether `started` at `step` voids a record of an earlier worker, by the rule of `RunStatus`.

    An evaluation after `step` steps stays, because it came before; all other records of `step` are
    made again.
    """
    kind = record.get("kind")
    if kind == ScoreRecord.kind or (kind == AnswerRecord.kind and record["bench"] != ROLLOUT):
        return bool(record["step"] > step)
    return kind in (StepRecord.kind, UpdateRecord.kind, AnswerRecord.kind) and bool(
        record["step"] >= step
    )


def in_force(items: Iterable[JsonObject]) -> list[JsonObject]:
    """Records in their order, without those that a later start of the run replaced."""
    valid: list[JsonObject] = []
    for item in items:
        if item.get("kind") == RunStatus.kind and item["state"] == STARTED:
            valid = [earlier for earlier in valid if not voided(earlier, item["step"])]
        valid.append(item)
    return valid


def line_number(path: Path, offset: int) -> int:
    """Which line begins at a byte, counted from 1."""
    count = 1
    with path.open("rb") as file:
        while offset and (data := file.read(min(offset, FIRST_LOOK_BYTES))):
            count += data.count(b"\n")
            offset -= len(data)
    return count


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=4).hexdigest().encode()


def _line_digest(line: bytes | None) -> bytes:
    """The digest that a line carries; of a damaged line without one that of its bytes; before the
    first line START.
    """
    if line is None:
        return START
    return line[OWN_DIGEST] if SEAL.fullmatch(line[-SEAL_BYTES:]) else _digest(line)


def _object(line: bytes) -> JsonObject | None:
    """The object of a line; None where it is damaged: no object, or another than its digest is
    of.
    """
    body = line[:-SEAL_BYTES] + b"}"
    has_seal = SEAL.fullmatch(line[-SEAL_BYTES:]) is not None
    if not has_seal or _digest(line[PREVIOUS_DIGEST] + body) != line[OWN_DIGEST]:
        return None
    try:
        item = json.loads(body.decode())
    except (ValueError, RecursionError):
        return None
    return item if isinstance(item, dict) and _is_record(item) else None


def _is_record(item: JsonObject) -> bool:
    """Whether it can be told of what moment a record is, and of a status what it says, by names."""
    kind = item.get("kind", "")
    if not isinstance(kind, str) or kind not in RECORDS:
        return isinstance(kind, str)
    complete = type(item.get("step")) is int and all(
        type(item.get(word)) is str for word in WORDS.get(kind, ())
    )
    if kind != RunStatus.kind:
        return complete
    return complete and all(isinstance(item.get(name), dict | None) for name in OBJECTS)
