"""Weights & Biases: an offline run's folder or its `run-*.wandb`, and the CSV of a chart's page.

The file is a header of 7 bytes and a LevelDB log: blocks of 32 KiB with pieces of records
(checksum, length, kind). wandb no longer has a reader of it. Each record is one of wandb's protobuf
messages. E-mail, host and paths are ignored. A crashed run's file may end within a record, which is
left out and noted.
"""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import IO, Any

from gspo_lab.common.errors import LabError, require_package
from gspo_lab.exchange.importers.base import (
    Log,
    LoggedRow,
    MetricBuffer,
    RunSpec,
    check_file,
    merge_rows,
    parse_finite,
    parse_int,
    parse_number,
)
from gspo_lab.exchange.importers.tables import entries

HEADER = b":W&B"
BLOCK = 32768
PIECE = 7
FULL = 1
FIRST = 2
MIDDLE = 3
LAST = 4
DAMAGED = "{file}: cut off or damaged behind record {count}; what stood there is left out"
STEP = "_step"
AXES = ("train/global_step", "trainer/global_step", "global_step")
"""Usual names of a row's step if no metric has its own axis."""
BETWEEN = " - "


def runs(path: Path, spec: RunSpec) -> list[str]:
    """One run; for a page's CSV the names in its columns."""
    if path.suffix.lower() != ".csv":
        return [""]
    return list(dict.fromkeys(run for run, _ in _named(path).values()))


def read(path: Path, run: str, spec: RunSpec) -> Log:
    """The offline run, or one run of a page's CSV."""
    if path.suffix.lower() == ".csv":
        return Log(spec.program or "wandb", merge_rows(_page(path, run), str(path)), (path,))
    file = _file(path)
    notes: list[str] = []
    facts: dict[str, Any] = {}
    rows = merge_rows(_scalars(file, notes, facts).rows(), str(file))
    return Log(spec.program or "wandb", rows, (file,), facts.get("version"), facts["config"], notes)


def _file(path: Path) -> Path:
    files = (
        [path] if path.is_file() else sorted({file.resolve() for file in path.rglob("run-*.wandb")})
    )
    if len(files) != 1:
        raise LabError(
            f"{path}: it holds {len(files)} files run-*.wandb; give the path of one of them"
        )
    return check_file(files[0], "run-*.wandb")


def _scalars(file: Path, notes: list[str], facts: dict[str, Any]) -> MetricBuffer:
    """All scalars by the step of their axis: of `define_metric`, else the trainer's, else wandb's.

    Fills `facts`.
    """
    require_package("wandb", "wandb", f"reading {file.name}")
    from google.protobuf.message import DecodeError
    from wandb.proto.wandb_internal_pb2 import Record

    buffer = MetricBuffer(str(file), notes)
    facts["config"] = {}
    axes: dict[str, str] = {}
    axis_of = cache(partial(_axis, axes))
    for count, data in enumerate(_records(file, notes)):
        try:
            record = Record.FromString(data)
        except DecodeError:
            notes.append(DAMAGED.format(file=file.name, count=count))
            break
        kind = record.WhichOneof("record_type")
        if kind in ("run", "config"):
            config = record.run.config if kind == "run" else record.config
            facts["config"] |= {
                name: value
                for name, value in map(_item, config.update)
                if name[:1] not in ("", "_")
            }
        elif kind == "header":
            facts["version"] = record.header.version_info.producer.partition("+")[0] or None
        elif kind == "metric":
            axes[record.metric.name or record.metric.glob_name] = record.metric.step_metric
            axis_of = cache(partial(_axis, axes))
        elif kind == "history":
            _add_row(buffer, dict(map(_item, record.history.item)), axis_of, str(file))
    return buffer


def _item(item: Any) -> tuple[str, Any]:
    """A HistoryItem or ConfigItem: its key (a nested one's parts with dots) and its value."""
    try:
        value = json.loads(item.value_json)
    except (ValueError, RecursionError):
        value = None
    return item.key or ".".join(item.nested_key), value


def _add_row(
    buffer: MetricBuffer, row: Mapping[str, Any], axis_of: Callable[[str], str | None], where: str
) -> None:
    usual = next(
        (row[name] for name in (*AXES, STEP) if parse_finite(row.get(name)) is not None), None
    )
    for name, value in row.items():
        scalar = parse_number(value)
        axis = axis_of(name)
        if scalar is None or axis is None:
            continue
        step = row.get(axis, usual)
        if step is None:
            raise LabError(f"{where}: a row of its history has no step")
        buffer.add(name, parse_int(step, where), scalar)


def _axis(axes: Mapping[str, str], name: str) -> str | None:
    """The metric that is a metric's step, "" for the usual step; None for a step, or a metric of
    wandb itself.
    """
    if name.startswith("_") or name in AXES or name in axes.values():
        return None
    globs = (
        axis for glob, axis in axes.items() if glob.endswith("*") and name.startswith(glob[:-1])
    )
    return axes.get(name) or next(globs, "")


def _records(file: Path, notes: list[str]) -> Iterator[bytes]:
    """The records before the first damaged one, which is noted."""
    count = 0
    with file.open("rb") as stream:
        if stream.read(PIECE)[:4] != HEADER:
            raise LabError(f"{file}: not a file of an offline wandb run")
        whole = bytearray()
        begun = False  # a record's first piece may be empty, at the very end of a block
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
        notes.append(DAMAGED.format(file=file.name, count=count))


def _pieces(stream: IO[bytes]) -> Iterator[tuple[int | None, bytes]]:
    """Kind and bytes of each piece; the kind is None for an incomplete piece or a wrong
    checksum.
    """
    left = BLOCK - PIECE  # the header lies in the first block
    while True:
        if left < PIECE:
            stream.read(left)
            left = BLOCK
        head = stream.read(PIECE)
        if not head:
            return
        length = int.from_bytes(head[4:6], "little")
        kind = head[6] if len(head) == PIECE else 0
        data = stream.read(length)
        sound = (
            kind in (FULL, FIRST, MIDDLE, LAST) and len(data) == length and length <= left - PIECE
        )
        if not sound or zlib.crc32(head[6:7] + data) != int.from_bytes(head[:4], "little"):
            yield None, b""
            return
        yield kind, data
        left -= PIECE + length


def _named(path: Path) -> dict[str, tuple[str, str]]:
    """The columns of a page's CSV that are a run's metric: column -> (run, metric)."""
    _, first = next(entries(path), ("", {}))
    parts = {name: name.partition(BETWEEN) for name in first}
    columns = {
        name: (run, metric)
        for name, (run, between, metric) in parts.items()
        if between and not metric.endswith(("__MIN", "__MAX"))
    }
    if not columns:
        history = (
            f"; for a run's history use: gspo-lab import csv {path} ..." if STEP in first else ""
        )
        raise LabError(
            f"{path}: no row with a column 'RUN - METRIC', as in the CSV of a chart's page{history}"
        )
    return {name: entry for name, entry in columns.items() if not entry[1].startswith("_")}


def _page(path: Path, run: str) -> Iterator[LoggedRow]:
    """The rows of one run; the first column is the step."""
    columns = {name: metric for name, (of, metric) in _named(path).items() if of == run}
    for where, entry in entries(path):
        values = {
            metric: value
            for name, metric in columns.items()
            if (value := parse_number(entry[name])) is not None
        }
        if values:
            yield parse_int(next(iter(entry.values())), where), values
