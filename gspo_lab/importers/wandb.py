"""Weights & Biases: an offline run's folder or its `run-*.wandb`, and the CSV of a chart's page.

The file is a header of 7 bytes and LevelDB's log: blocks of 32 KiB of pieces of records (checksum, length, kind), each
record a protobuf message. wandb itself no longer has a reader of it, so these few fields are read here. Of what
else the file holds, such as e-mail, host and paths, nothing is kept. A crashed run's file ends within a record: what is
whole is read, and the rest is told.
"""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import IO, Any

from gspo_lab.errors import LabError
from gspo_lab.importers.log import Log, Row, Wish, a_file, logged, number, rising, whole_number
from gspo_lab.importers.spool import Spool
from gspo_lab.importers.tables import entries

HEADER, BLOCK, PIECE = b":W&B", 32768, 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
HISTORY, CONFIG, DEFINED, RUN, HEAD = 2, 5, 12, 17, 21
"""Fields of a Record, by wandb's own numbers; a RunRecord holds a config too."""
CONFIG_OF_RUN, UPDATE, NAME, GLOB, AXIS = 4, 1, 1, 2, 4
STEP = "_step"
AXES = ("train/global_step", "trainer/global_step", "global_step")
"""What trainers log as the step of a row, where no metric is defined over another."""
BETWEEN = " - "


def runs(path: Path, wish: Wish) -> list[str]:
    """One run; of a page's CSV the names in its columns."""
    if path.suffix.lower() != ".csv":
        return [""]
    return list(dict.fromkeys(run for run, _ in _named(path).values()))


def read(path: Path, run: str, wish: Wish) -> Log:
    """The offline run, or one run of a page's CSV."""
    if path.suffix.lower() == ".csv":
        return Log(wish.program or "wandb", rising(_page(path, run), str(path)), (path,))
    file = _file(path)
    notes: list[str] = []
    told: dict[str, Any] = {}
    rows = rising(_spool(file, notes, told).rows(), str(file))
    return Log(wish.program or "wandb", rows, (file,), told.get("version"), told["config"], notes)


def _file(path: Path) -> Path:
    found = [path] if path.is_file() else sorted({one.resolve() for one in path.rglob("run-*.wandb")})
    if len(found) != 1:
        many = f"holds {len(found)} of them; name one" if found else "none is there"
        raise LabError(f"{path}: run-*.wandb is wanted, and {many}")
    return a_file(found[0], "run-*.wandb")


def _spool(file: Path, notes: list[str], told: dict[str, Any]) -> Spool:
    """All scalars, each at the step of its own axis: that of `define_metric`, else the trainer's, else wandb's."""
    spool, told["config"] = Spool(str(file), notes), {}
    axes: dict[str, str] = {}
    axis_of = cache(partial(_axis, axes))
    for record in _records(file, notes):
        for field, data in _fields(record):
            if not isinstance(data, bytes):
                continue
            if field in (RUN, CONFIG):
                inner = [part for key, part in _fields(data) if key == CONFIG_OF_RUN] if field == RUN else [data]
                told["config"] |= _config(inner)
            elif field == HEAD:
                told["version"] = _text(_first(_first(data, 1), 1)).partition("+")[0] or None
            elif field == DEFINED:
                name, glob, axis = (_text(dict(_fields(data)).get(key)) for key in (NAME, GLOB, AXIS))
                axes[name or glob] = axis
                axis_of = cache(partial(_axis, axes))
            elif field == HISTORY:
                _take(spool, _row(data), axis_of, str(file))
    return spool


def _first(message: Any, field: int) -> Any:
    return dict(_fields(message)).get(field, b"") if isinstance(message, bytes) else b""


def _config(messages: list[Any]) -> dict[str, Any]:
    found = [
        item
        for one in messages
        if isinstance(one, bytes)
        for key, item in _fields(one)
        if key == UPDATE and isinstance(item, bytes)
    ]
    return {name: value for name, value in map(_item, found) if name and not name.startswith("_")}


def _row(data: bytes) -> dict[str, Any]:
    return dict(_item(item) for key, item in _fields(data) if key == 1 and isinstance(item, bytes))


def _item(data: bytes) -> tuple[str, Any]:
    """A HistoryItem or ConfigItem: its key (a nested one's parts with dots) and its value."""
    key, nested, value = "", [], None
    for field, content in _fields(data):
        if field == 1:
            key = _text(content)
        elif field == 2:
            nested.append(_text(content))
        elif field == 16:
            try:
                value = json.loads(_text(content))
            except (ValueError, RecursionError):
                value = None
    return key or ".".join(nested), value


def _take(spool: Spool, row: Mapping[str, Any], axis_of: Callable[[str], str | None], where: str) -> None:
    usual = next((row[name] for name in (*AXES, STEP) if number(row.get(name)) is not None), None)
    for name, value in row.items():
        found, axis = logged(value), axis_of(name)
        if found is None or axis is None:
            continue
        step = row.get(axis, usual)
        if step is None:
            raise LabError(f"{where}: a row of its history has no step")
        spool.add(name, whole_number(step, where), found)


def _axis(axes: Mapping[str, str], name: str) -> str | None:
    """The metric that is a metric's step, "" for the usual one; None for one that is a step, or wandb's own."""
    if name.startswith("_") or name in AXES or name in axes.values():
        return None
    globs = (axis for glob, axis in axes.items() if glob.endswith("*") and name.startswith(glob[:-1]))
    return axes.get(name) or next(globs, "")


def _records(file: Path, notes: list[str]) -> Iterator[bytes]:
    """The whole records, block by block; where one is torn or damaged, what follows is left out and told."""
    count = 0
    with file.open("rb") as stream:
        if stream.read(PIECE)[:4] != HEADER:
            raise LabError(f"{file}: no file of an offline wandb run")
        whole, begun = bytearray(), False  # a record's first piece may be empty, at the very end of a block
        for kind, data in _pieces(stream):
            if kind is None or (kind in (MIDDLE, LAST)) != begun:
                begun = True
                break
            whole += data
            begun = kind in (FIRST, MIDDLE)
            if not begun:
                count += 1
                yield bytes(whole)
                whole.clear()
    if begun:
        notes.append(f"{file.name}: cut off or damaged behind record {count}; what stood there is left out")


def _pieces(stream: IO[bytes]) -> Iterator[tuple[int | None, bytes]]:
    """Kind and bytes of each piece; the kind is None where the file ends within it or its checksum is another."""
    left = BLOCK - PIECE  # the header lies in the first block
    while True:
        if left < PIECE:
            stream.read(left)
            left = BLOCK
        head = stream.read(PIECE)
        if not head:
            return
        length, kind = int.from_bytes(head[4:6], "little"), head[6] if len(head) == PIECE else 0
        data = stream.read(length)
        sound = kind in (FULL, FIRST, MIDDLE, LAST) and len(data) == length and length <= left - PIECE
        if not sound or zlib.crc32(head[6:7] + data) != int.from_bytes(head[:4], "little"):
            yield None, b""
            return
        yield kind, data
        left -= PIECE + length


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """A protobuf message's fields: the number, and a varint's value or the bytes. What is no message ends it."""
    at, end = 0, len(message)
    try:
        while at < end:
            key, at = _varint(message, at)
            kind = key & 7
            if kind == 0:
                value, at = _varint(message, at)
                yield key >> 3, value
                continue
            size, at = _varint(message, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            yield key >> 3, message[at : at + size]
            at += size
    except (IndexError, KeyError):
        return


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number at a place, seven bits a byte, and the place behind it."""
    value, shift = message[at], 7
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    while True:
        at += 1
        value |= (message[at] & 0x7F) << shift
        if message[at] < 0x80:
            return value, at + 1
        shift += 7


def _text(data: Any) -> str:
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else ""


def _named(path: Path) -> dict[str, tuple[str, str]]:
    """Of a page's CSV each column that is a run's metric: (run, metric)."""
    _, first = next(entries(path), ("", {}))
    parts = {name: name.partition(BETWEEN) for name in first}
    found = {
        name: (run, metric)
        for name, (run, between, metric) in parts.items()
        if between and not metric.endswith(("__MIN", "__MAX"))
    }
    if not found:
        raise LabError(f"{path}: no row with a column 'RUN - METRIC', as in the CSV of a chart's page")
    return {name: entry for name, entry in found.items() if not entry[1].startswith("_")}


def _page(path: Path, run: str) -> Iterator[Row]:
    """The rows of one run; the first column is the step."""
    own = {name: metric for name, (of, metric) in _named(path).items() if of == run}
    for where, entry in entries(path):
        values = {metric: value for name, metric in own.items() if (value := logged(entry[name])) is not None}
        if values:
            yield whole_number(next(iter(entry.values())), where), values
