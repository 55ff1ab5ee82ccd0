"""Weights & Biases: an offline run's folder or its `run-*.wandb`, and the CSV of a chart's page.

The file is a header of 7 bytes and LevelDB's log: blocks of 32 KiB of pieces of records (checksum, length, kind), each
record a protobuf message. wandb itself no longer has a reader of it, so these few fields are read here. Of what
else the file holds, such as e-mail, host and paths, nothing is kept. A crashed run's file ends within a record: what is
whole is read, and the rest is told.
"""

import csv
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from gspo_lab.errors import LabError
from gspo_lab.importers.log import Columns, Log, Row, Wish, a_file, logged, number, rising, whole_number

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
        return Log(wish.program or "wandb", rising(_page(path, run, wish), str(path)), (path,))
    file = _file(path)
    notes: list[str] = []
    told: dict[str, Any] = {}
    columns = _columns(file, notes, told)
    if not columns.names:
        raise LabError(f"{file}: it holds no step with a number; nothing to import")
    return Log(
        wish.program or "wandb", rising(columns.rows(), str(file)), (file,), told.get("version"), told["config"], notes
    )


def _file(path: Path) -> Path:
    found = [path] if path.is_file() else sorted({one.resolve() for one in path.rglob("run-*.wandb")})
    if len(found) != 1:
        many = f"holds {len(found)} of them; name one" if found else "none is there"
        raise LabError(f"{path}: run-*.wandb is wanted, and {many}")
    return a_file(found[0], "run-*.wandb")


def _columns(file: Path, notes: list[str], told: dict[str, Any]) -> Columns:
    """All scalars, each at the step of its own axis: that of `define_metric`, else the trainer's, else wandb's."""
    columns, told["config"] = Columns(), {}
    axes: dict[str, str] = {}
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
            elif field == HISTORY:
                _take(columns, _row(data), axes, str(file))
    return columns


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
            except ValueError:
                value = None
    return key or ".".join(nested), value


def _take(columns: Columns, row: Mapping[str, Any], axes: Mapping[str, str], where: str) -> None:
    usual = next((row[name] for name in (*AXES, STEP) if number(row.get(name)) is not None), None)
    for name, value in row.items():
        found = logged(value)
        if found is None or name.startswith("_") or name in AXES or name in axes.values():
            continue
        axis = axes.get(name) or next(
            (axis for glob, axis in axes.items() if glob.endswith("*") and name.startswith(glob[:-1])), ""
        )
        step = row.get(axis, usual)
        if step is None:
            raise LabError(f"{where}: a row of its history has no step")
        columns.add(name, whole_number(step, where), found)


def _records(file: Path, notes: list[str]) -> Iterator[bytes]:
    """The whole records, block by block; where one is torn or damaged, what follows is left out and told."""
    count = 0
    with file.open("rb") as stream:
        if stream.read(PIECE)[:4] != HEADER:
            raise LabError(f"{file}: no file of an offline wandb run")
        whole, torn = bytearray(), False
        for kind, data in _pieces(stream):
            if kind is None or (kind in (MIDDLE, LAST)) != bool(whole):
                torn = True
                break
            whole += data
            if kind in (FULL, LAST):
                count += 1
                yield bytes(whole)
                whole.clear()
    if torn or whole:
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

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    try:
        while at < end:
            key = varint()
            kind = key & 7
            if kind == 0:
                yield key >> 3, varint()
                continue
            size = varint() if kind == 2 else {1: 8, 5: 4}[kind]
            yield key >> 3, message[at : at + size]
            at += size
    except (IndexError, KeyError):
        return


def _text(data: Any) -> str:
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else ""


def _named(path: Path) -> dict[int, tuple[str, str]]:
    """By its place each column of a page's CSV that is a run's metric: (run, metric)."""
    a_file(path, "a chart's CSV")
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = next(csv.reader(file), [])
    parts = {place: name.partition(BETWEEN) for place, name in enumerate(header)}
    found = {
        place: (run, metric)
        for place, (run, between, metric) in parts.items()
        if between and not metric.endswith(("__MIN", "__MAX"))
    }
    if not found:
        raise LabError(f"{path}: no column is named 'RUN - METRIC', as in the CSV of a chart's page")
    return {place: entry for place, entry in found.items() if not entry[1].startswith("_")}


def _page(path: Path, run: str, wish: Wish) -> Iterator[Row]:
    """The rows of one run; the first column is the step."""
    own = {place: metric for place, (name, metric) in _named(path).items() if name == run}
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        next(reader)
        for line in reader:
            values = {metric: value for place, metric in own.items() if (value := logged(line[place])) is not None}
            if values:
                yield whole_number(line[0], f"{path}, line {reader.line_num}"), values
