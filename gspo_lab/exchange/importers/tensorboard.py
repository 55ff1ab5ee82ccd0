"""TensorBoard: all scalars of a folder of event files, read by TensorBoard's own loader.

A START in a file's session log voids earlier entries of later steps (a writer's `purge_step`), as
in TensorBoard. Several files are one run if a later file continues an earlier one (its numbers
replace older ones), or if they log different tags (as in the sub-folders of `add_scalars`). A file
that begins again belongs to another run.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_lab.common.errors import LabError, require_package
from gspo_lab.exchange.importers.base import Log, MetricBuffer, RunSpec, merge_rows

EVENTS = "*tfevents*"
AROUND = 16
"""Bytes of a record around its event: a length and two checksums."""
FLOAT = 1
DOUBLE = 2
"""Tensor types of scalars (`DT_FLOAT`, `DT_DOUBLE`)."""


@dataclass
class _Span:
    """The scalars of one file, with their first and last step and time."""

    file: Path
    numbers: MetricBuffer
    first: int | None = None
    last: int = 0
    began: float = 0.0
    ended: float = 0.0


def read(path: Path, run: str, spec: RunSpec) -> Log:
    """The folder's event files, or one of them."""
    files = [path] if path.is_file() else sorted(path.rglob(EVENTS)) if path.is_dir() else []
    if not files:
        raise LabError(f"{path}: no event file ({EVENTS}) in it")
    notes: list[str] = []
    spans = [span for file in files if (span := _read(file, path, notes)).first is not None]
    if not spans:
        raise LabError(f"{path}: its event files hold no scalar; nothing to import")
    joined = _join(sorted(spans, key=lambda span: span.began), notes)
    program = spec.program or "tensorboard"
    return Log(program, merge_rows(joined.rows(), str(path)), files, notes=notes)


def _join(spans: list[_Span], notes: list[str]) -> MetricBuffer:
    """All files by time. LabError if two log the same tags and neither continues the other."""
    names = [span.numbers.names for span in spans]
    for index, span in enumerate(spans[1:], 1):
        assert span.first is not None
        shared = [
            earlier
            for earlier, known in zip(spans[:index], names, strict=False)
            if known & names[index]
        ]
        for earlier in shared:
            assert earlier.first is not None
            if span.first <= earlier.first or span.began < earlier.ended:
                raise LabError(
                    f"{span.file}: its steps {span.first} to {span.last} are logged by"
                    f" {earlier.file} too, which it does not go on from: event files of two runs in"
                    " one folder; import each file by itself"
                )
        if shared:
            last = max(earlier.last for earlier in shared)
            if span.first <= last:
                notes.append(
                    f"{span.file.name} goes on at step {span.first}, over steps up to {last} before"
                )
        spans[0].numbers.take(span.numbers)
    return spans[0].numbers


def _read(file: Path, root: Path, notes: list[str]) -> _Span:
    span = _Span(file, MetricBuffer(str(file), notes))
    at = file.parent.relative_to(root).as_posix() if root.is_dir() else "."
    prefix = "" if at == "." else f"{at}/"
    add = span.numbers.add
    for event in events(file, notes):
        kind = event.WhichOneof("what")
        if kind == "session_log" and voids(event):
            span.numbers.drop(event.step)
        if kind != "summary":
            continue
        step = event.step
        scalars = [
            (entry.tag, value)
            for entry in event.summary.value
            if (value := scalar(entry)) is not None
        ]
        if not scalars:
            continue
        if step < 0:
            raise LabError(f"{file}: {scalars[0][0]} has the step {step}")
        for tag, value in scalars:
            add(prefix + tag, step, value)
        if span.first is None:
            span.first, span.began = step, event.wall_time
        span.first, span.last = min(span.first, step), max(span.last, step)
        span.ended = event.wall_time
    return span


def events(file: Path, notes: list[str]) -> Iterator[Any]:
    """The events of a file before the first damaged one, which is noted."""
    require_package("tensorboard", "import", "reading event files")
    from google.protobuf.message import DecodeError
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    count = end = 0
    with suppress(
        DecodeError, MemoryError, OverflowError
    ):  # the last two: a length that no file has
        for data in RawEventFileLoader(
            str(file)
        ).Load():  # it ends before a record with a wrong checksum
            event = Event.FromString(data)
            if not count and not event.file_version:
                break
            count = count + 1
            end = end + AROUND + len(data)
            yield event
    if end == file.stat().st_size:
        return
    if not count:
        raise LabError(f"{file}: no event file of TensorBoard")
    notes.append(
        f"{file.name}: cut off or damaged behind record {count}; what stood there is left out"
    )


def voids(event: Any) -> bool:
    """Whether the event voids earlier entries of its step and later steps."""
    return (
        bool(event.HasField("session_log")) and event.session_log.status == event.session_log.START
    )


def scalar(entry: Any) -> float | None:
    """A summary's number, from the older format or a tensor; None for images, texts and
    histograms.
    """
    kind = entry.WhichOneof("value")
    if kind == "simple_value":
        return float(entry.simple_value)
    if (
        kind != "tensor"
        or entry.tensor.tensor_shape.dim
        or entry.tensor.dtype not in (FLOAT, DOUBLE)
    ):
        return None
    values = entry.tensor.float_val or entry.tensor.double_val
    if values:
        return float(values[0])
    from array import array

    content = array("f" if entry.tensor.dtype == FLOAT else "d", entry.tensor.tensor_content)
    return content[0] if len(content) == 1 else None
