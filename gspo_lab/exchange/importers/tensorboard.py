"""TensorBoard: all scalars of a folder of event files, read by TensorBoard's own loader.

Several files are one run if a later file continues an earlier one (its numbers replace older ones),
or if they log different tags (as in the sub-folders of `add_scalars`). A file that begins again
belongs to another run.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gspo_lab.common.errors import LabError, require_package
from gspo_lab.exchange.importers.base import Log, LoggedRow, RunSpec

EVENTS = "*tfevents*"
FRAME_BYTES = 16
"""Bytes of a record around its event: a length and two checksums."""
FLOAT = 1
DOUBLE = 2
"""Tensor types of scalars (`DT_FLOAT`, `DT_DOUBLE`)."""


@dataclass
class _Span:
    """One file: the tags of its scalars, with their first and last step and time."""

    file: Path
    tags: set[str] = field(default_factory=set)
    first: int | None = None
    last: int = 0
    began: float = 0.0
    ended: float = 0.0

    def extend(self, step: int, time: float) -> None:
        """Take in an event with scalars."""
        if self.first is None:
            self.began = time
        self.first = step if self.first is None else min(self.first, step)
        self.last = max(self.last, step)
        self.ended = time


def read(path: Path, run: str, spec: RunSpec) -> Log:
    """The folder's event files, or one of them."""
    files = [path] if path.is_file() else sorted(path.rglob(EVENTS))
    if not files:
        raise LabError(f"{path}: no event file ({EVENTS}) in it")
    log = Log(spec.program or "tensorboard", (), files)
    log.rows = _rows(files, path, log.notes)
    return log


def _rows(files: list[Path], root: Path, notes: list[str]) -> Iterator[LoggedRow]:
    """The scalars of all files, the earliest file first."""
    spans: list[_Span] = []
    for file in sorted(files, key=_begin):
        span = _Span(file)
        yield from _scalars(span, root, notes)
        if span.first is not None:
            _check_continues(span, spans, notes)
            spans.append(span)
    if not spans:
        raise LabError(f"{root}: its event files hold no scalar; nothing to import")


def _begin(file: Path) -> float:
    """The time of a file's first event with a scalar."""
    with_scalars = (event for event in events(file, []) if event.WhichOneof("what") == "summary")
    return next((event.wall_time for event in with_scalars), 0.0)


def _check_continues(span: _Span, earlier_spans: list[_Span], notes: list[str]) -> None:
    """LabError if a file logs the tags of an earlier one and does not continue it."""
    shared = [earlier for earlier in earlier_spans if earlier.tags & span.tags]
    assert span.first is not None
    for earlier in shared:
        assert earlier.first is not None
        if span.first <= earlier.first or span.began < earlier.ended:
            raise LabError(
                f"{span.file}: its steps {span.first} to {span.last} are logged by"
                f" {earlier.file} too, which it does not go on from: event files of two runs in"
                " one folder; import each file by itself"
            )
    last = max((earlier.last for earlier in shared), default=-1)
    if span.first <= last:
        notes.append(
            f"{span.file.name} goes on at step {span.first}, over steps up to {last} before"
        )


def _scalars(span: _Span, root: Path, notes: list[str]) -> Iterator[LoggedRow]:
    folder = span.file.parent.relative_to(root).as_posix() if root.is_dir() else "."
    prefix = "" if folder == "." else f"{folder}/"
    for event in events(span.file, notes):
        if event.WhichOneof("what") != "summary":
            continue
        values = ((prefix + entry.tag, scalar(entry)) for entry in event.summary.value)
        scalars = {tag: value for tag, value in values if value is not None}
        if not scalars:
            continue
        if event.step < 0:
            raise LabError(f"{span.file}: {min(scalars)} has the step {event.step}")
        span.tags |= scalars.keys()
        span.extend(event.step, event.wall_time)
        yield event.step, scalars


def events(file: Path, notes: list[str]) -> Iterator[Any]:
    """The events of a file before the first damaged one, which is noted."""
    require_package("tensorboard", "import", "reading event files")
    from google.protobuf.message import DecodeError
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    count = 0
    end = 0
    unreadable = (DecodeError, MemoryError, OverflowError)  # the last two: an impossible length
    with suppress(*unreadable):
        # the loader ends before a record with a wrong checksum
        for data in RawEventFileLoader(str(file)).Load():
            event = Event.FromString(data)
            if not count and not event.file_version:
                break
            count += 1
            end += FRAME_BYTES + len(data)
            yield event
    if end == file.stat().st_size:
        return
    if not count:
        raise LabError(f"{file}: no event file of TensorBoard")
    notes.append(
        f"{file.name}: cut off or damaged behind record {count}; what stood there is left out"
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
