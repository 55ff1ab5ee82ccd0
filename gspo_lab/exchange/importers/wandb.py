"""Weights & Biases: an offline run's folder or its `run-*.wandb`, and the CSV of a chart's page.

The file is a header of 7 bytes and a LevelDB log: blocks of 32 KiB with pieces of records
(checksum, length, kind). wandb no longer has a reader of it. Each record is one of wandb's protobuf
messages. E-mail, host and paths are ignored. A crashed run's file may end within a record, which is
left out and noted.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import IO, Any

from gspo_lab.common.errors import LabError, require_package
from gspo_lab.common.plain_data import Integers, JsonMapping, JsonObject, OptionalText
from gspo_lab.common.text import first_few
from gspo_lab.exchange.importers.base import (
    CALLS,
    STEPS,
    Log,
    LoggedRow,
    RunSpec,
    check_file,
    json_value,
    match_pattern,
    parse_int,
    parse_number,
    step_of,
)
from gspo_lab.exchange.importers.tables import column_names, entries
from gspo_lab.exchange.importers.tables import read as read_table

HEADER = b":W&B"
BLOCK = 32768
PIECE = 7
STARTS = (1, 2)
CONTINUES = (3, 4)
ENDS = (1, 4)
"""Kinds of pieces: 1 a whole record, 2 its first piece, 3 a middle one, 4 the last."""
DAMAGED = "{file}: cut off or damaged behind record {count}; what stood there is left out"
BETWEEN = " - "
BOUNDS = ("__MIN", "__MAX")


def runs(path: Path, spec: RunSpec) -> list[str]:
    """One run; for a page's CSV the names in its columns."""
    if path.suffix.lower() != ".csv" or _is_history(path):
        return [""]
    return list(dict.fromkeys(run for run, _ in _metric_columns(path, spec).values()))


def read(path: Path, run: str, spec: RunSpec) -> Log:
    """The offline run, the history of a run, or one run of a page's CSV."""
    if path.suffix.lower() == ".csv":
        if _is_history(path):
            return read_table(path, run, spec)
        log = Log("wandb", (), (path,))
        log.rows = _page(path, run, spec, log)
        return log
    file = _file(path)
    log = Log("wandb", (), (file,))
    log.rows = _scalars(file, log)
    return log


def _is_history(path: Path) -> bool:
    """Whether a CSV is the history of one run, and not that of a chart's page."""
    names = column_names(path)
    return CALLS in names or not any(BETWEEN in name for name in names)


def _file(path: Path) -> Path:
    files = (
        [path] if path.is_file() else sorted({file.resolve() for file in path.rglob("run-*.wandb")})
    )
    if len(files) != 1:
        raise LabError(
            f"{path}: it holds {len(files)} files run-*.wandb; give the path of one of them"
        )
    return check_file(files[0], "run-*.wandb")


def _scalars(file: Path, log: Log) -> Iterator[LoggedRow]:
    """All scalars by the step of their axis: of `define_metric`, else the trainer's, else wandb's.

    Fills the log's settings.
    """
    require_package("wandb", "wandb", f"reading {file.name}")
    from google.protobuf.message import DecodeError
    from wandb.proto.wandb_internal_pb2 import Record

    config: JsonObject = {}
    log.settings = config
    axes: dict[str, str] = {}
    axis_of = cache(partial(_axis, axes))
    for count, data in enumerate(_records(file, log.notes)):
        try:
            record = Record.FromString(data)
        except DecodeError:
            log.notes.append(DAMAGED.format(file=file.name, count=count))
            return
        kind = record.WhichOneof("record_type")
        if kind in ("run", "config"):
            update = record.run.config.update if kind == "run" else record.config.update
            config |= {
                name: value for name, value in map(_item, update) if name[:1] not in ("", "_")
            }
        elif kind == "metric":
            axes[record.metric.name or record.metric.glob_name] = record.metric.step_metric
            axis_of = cache(partial(_axis, axes))
        elif kind == "history":
            row = dict(map(_item, record.history.item))
            yield from _rows_by_axis(row, axis_of, file, log)


def _item(item: Any) -> tuple[str, Any]:
    """A HistoryItem or ConfigItem: its key (a nested one's parts with dots) and its value."""
    return item.key or ".".join(item.nested_key), json_value(item.value_json)


def _rows_by_axis(
    row: JsonMapping, axis_of: Callable[[str], OptionalText], file: Path, log: Log
) -> Iterator[LoggedRow]:
    """A row of the history, parted by the steps of its metrics."""
    step_name, usual = step_of(row, STEPS, log)
    by_step: dict[int, dict[str, float]] = {}
    left_out = False
    for name, value in row.items():
        number = parse_number(value)
        axis = axis_of(name)
        if number is None or axis is None:
            continue
        step = row.get(axis, usual)
        if step is not None:
            by_step.setdefault(parse_int(step, str(file)), {})[name] = number
        elif step_name:
            left_out = True
        else:
            raise LabError(f"{file}: a row of its history has no step")
    log.rows_by_calls += left_out
    yield from by_step.items()


def _axis(axes: Mapping[str, str], name: str) -> OptionalText:
    """The metric that is a metric's step, "" for the usual step; None for a step, or a metric of
    wandb itself.
    """
    if name.startswith("_") or name in STEPS or name in axes.values():
        return None
    for pattern, axis in axes.items():
        if pattern.endswith("*") and name.startswith(pattern[:-1]) and name not in axes:
            return axis
    return axes.get(name, "")


def _records(file: Path, notes: list[str]) -> Iterator[bytes]:
    """The records before the first damaged one, which is noted."""
    count = 0
    content = bytearray()
    expected: Integers = STARTS
    with file.open("rb") as stream:
        if stream.read(PIECE)[:4] != HEADER:
            raise LabError(f"{file}: not a file of an offline wandb run")
        while head := _next_head(stream):
            data = stream.read(int.from_bytes(head[4:6], "little"))
            checksum = zlib.crc32(head[6:] + data).to_bytes(4, "little")
            if len(head) < PIECE or checksum != head[:4] or head[6] not in expected:
                expected = ()
                break
            content += data
            expected = STARTS if head[6] in ENDS else CONTINUES
            if head[6] in ENDS:
                count += 1
                yield bytes(content)
                content.clear()
    if expected != STARTS:
        notes.append(DAMAGED.format(file=file.name, count=count))


def _next_head(stream: IO[bytes]) -> bytes:
    """The checksum, length and kind of the next piece; no head crosses a block's end."""
    room = BLOCK - stream.tell() % BLOCK
    stream.read(room if room < PIECE else 0)
    return stream.read(PIECE)


def _metric_columns(path: Path, spec: RunSpec) -> dict[str, tuple[str, str]]:
    """The columns of a page's CSV that are a run's metric: column -> (run, metric).

    Both names may hold " - ": a column is cut at the last one before which the run's pattern fits,
    else at the last one.
    """
    columns = {}
    for name in column_names(path):
        run = whole = name.rpartition(BETWEEN)[0]
        while run and not match_pattern(spec.run_pattern or "", run):
            run = run.rpartition(BETWEEN)[0]
        run = run or whole
        metric = name.removeprefix(run + BETWEEN)
        if run and not name.endswith(BOUNDS) and not metric.startswith("_"):
            columns[name] = (run, metric)
    return columns


def _page(path: Path, run: str, spec: RunSpec, log: Log) -> Iterator[LoggedRow]:
    """The rows of one run; the first column is the step."""
    columns = {
        name: metric
        for name, (owner, metric) in _metric_columns(path, spec).items()
        if owner == run
    }
    axis = spec.map.get("step") or column_names(path)[0]
    if "step" not in spec.map and axis not in STEPS and "step" not in axis.lower():
        raise LabError(
            f"{path}: its axis is '{axis}', not a step: choose Step as the chart's x axis and"
            " export it again, or name the column of steps: --map step=NAME"
        )
    log.step_name = axis
    names = [name for name in column_names(path) if not name.endswith(BOUNDS)]
    odd = [name for name in names if BETWEEN not in name and name != axis]
    if odd:
        log.notes.append(f"not imported: {first_few(odd)}; no column 'RUN - METRIC'")
    rows = 0
    means = 0
    for where, entry in entries(path):
        values = {metric: entry[name] for name, metric in columns.items() if entry.get(name)}
        if not values:
            continue
        rows += 1
        means += any(_spreads(entry, name) for name in columns)
        yield parse_int(entry[axis], where), values
    if 2 * means > rows:
        raise LabError(
            f"{path}: '{run}' is a mean over several runs (its __MIN and __MAX differ), and no"
            " run of one seed: switch off grouping in W&B and export the chart again"
        )
    if means:
        log.notes.append(
            f"{means} of {rows} rows are means over several steps (__MIN and __MAX differ)"
        )


def _spreads(entry: JsonMapping, name: str) -> bool:
    """Whether a number stands for several, by the columns of their least and largest."""
    least, largest = BOUNDS
    low = parse_number(entry.get(name + least))
    high = parse_number(entry.get(name + largest))
    return low is not None and high is not None and low < high
