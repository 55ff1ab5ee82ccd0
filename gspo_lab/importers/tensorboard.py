"""TensorBoard: a folder of event files, every scalar of every one kept; parsed by TensorBoard's own messages.

A START in a file's session log voids what it says of later steps before (a writer's `purge_step`), as in TensorBoard.
Several files are one run where a later one goes on (a resumed run: what it logs anew counts), or where they log other
tags (a writer for each, as in the sub-folders that `add_scalars` makes). A file that begins again is another run's.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from gspo_lab.errors import LabError, MissingExtra
from gspo_lab.importers.log import CHUNK, Columns, Log, Wish, logged, rising

EVENTS = "*tfevents*"
AROUND = 16
"""Bytes of a record beside its event: a length and two checksums."""
FLOAT, DOUBLE = 1, 2
"""Tensors' types that a scalar may have (`DT_FLOAT`, `DT_DOUBLE`)."""


@dataclass
class _Span:
    """What one file logs: its first and last step and moment, by its scalars alone."""

    file: Path
    columns: Columns = field(default_factory=Columns)
    first: int | None = None
    last: int = 0
    began: float = 0.0
    ended: float = 0.0


def runs(path: Path, wish: Wish) -> list[str]:
    """One run."""
    return [""]


def read(path: Path, run: str, wish: Wish) -> Log:
    """The folder's event files, or one of them."""
    files = [path] if path.is_file() else sorted(path.rglob(EVENTS)) if path.is_dir() else []
    if not files:
        raise LabError(f"{path}: no event file ({EVENTS}) is there")
    notes: list[str] = []
    spans = [span for file in files if (span := _read(file, path, notes)).first is not None]
    if not spans:
        raise LabError(f"{path}: its event files hold no scalar; nothing to import")
    joined = _joined(sorted(spans, key=lambda span: span.began), notes)
    program = wish.program or "tensorboard"
    return Log(program, rising(joined.rows(), str(path)), files, notes=notes)


def _joined(spans: list[_Span], notes: list[str]) -> Columns:
    """All files in the order of time. LabError where two log the same tags and neither goes on from the other."""
    whole = spans[0].columns
    for place, span in enumerate(spans[1:], 1):
        assert span.first is not None
        shared = [one for one in spans[:place] if one.columns.names & span.columns.names]
        for one in shared:
            assert one.first is not None
            if span.first <= one.first or span.began < one.ended:
                raise LabError(
                    f"{span.file}: its steps {span.first} to {span.last} are logged by {one.file} too, which it does "
                    "not go on from: event files of two runs in one folder; import each file by itself"
                )
        if shared:
            last = max(one.last for one in shared)
            if span.first <= last:
                notes.append(f"{span.file.name} goes on at step {span.first}, over steps up to {last} before")
        whole.take(span.columns)
    return whole


def _read(file: Path, root: Path, notes: list[str]) -> _Span:
    span, at = _Span(file), file.parent.relative_to(root).as_posix() if root.is_dir() else "."
    prefix = "" if at == "." else f"{at}/"
    add = span.columns.add
    for event in events(file, notes):
        kind = event.WhichOneof("what")
        if kind == "session_log" and voids(event):
            span.columns.drop(event.step)
        if kind != "summary":
            continue
        step, found = event.step, False
        for entry in event.summary.value:
            value = scalar(entry)
            if value is not None:
                add(prefix + entry.tag, step, value)
                found = True
        if not found:
            continue
        if step < 0:
            raise LabError(f"{file}: {entry.tag} has the step {step}")
        if span.first is None:
            span.first, span.began = step, event.wall_time
        span.first, span.last = min(span.first, step), max(span.last, step)
        span.ended = event.wall_time
    return span


def events(file: Path, notes: list[str]) -> Iterator[Any]:
    """The events of a file, up to the first that is torn or damaged, which is noted.

    A record is its length (8 bytes), a checksum (4), that many bytes of an Event, a checksum (4). Checksums are passed
    over: TensorBoard's reader makes them byte by byte in Python, which takes longer than all else here (1.5 times).
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
    except ModuleNotFoundError as error:
        raise MissingExtra("tensorboard", "import", "reading event files") from error
    from google.protobuf.message import DecodeError

    count = 0
    with file.open("rb") as stream:
        for data in _records(stream, file.stat().st_size):
            try:
                event = None if data is None else Event.FromString(data)
            except DecodeError:
                event = None
            if event is not None and (count or event.file_version):
                count += 1
                yield event
                continue
            if not count:
                raise LabError(f"{file}: no event file of TensorBoard")
            notes.append(f"{file.name}: cut off or damaged behind record {count}; what stood there is left out")
            return


def _records(stream: IO[bytes], left: int) -> Iterator[bytes | None]:
    """The events' bytes of a file of `left` bytes, read piece by piece; None at the end if a record is torn there."""
    data, at = b"", 0
    while left:
        if len(data) - at < AROUND:
            data, at = data[at:] + stream.read(CHUNK), 0
        length = AROUND + int.from_bytes(data[at : at + 8], "little")
        if length > left or len(data) < AROUND:
            yield None
            return
        if at + length > len(data):
            data, at = data[at:] + stream.read(max(CHUNK, length)), 0
        yield data[at + 12 : at + length - 4]
        at += length
        left -= length


def voids(event: Any) -> bool:
    """Whether what stood before it, of its step and later ones, is void."""
    return bool(event.HasField("session_log")) and event.session_log.status == event.session_log.START


def scalar(entry: Any) -> float | None:
    """A summary's number, of the older form or a tensor of one; None for pictures, texts and histograms."""
    kind = entry.WhichOneof("value")
    if kind == "simple_value":
        return logged(entry.simple_value)
    if kind != "tensor" or entry.tensor.tensor_shape.dim or entry.tensor.dtype not in (FLOAT, DOUBLE):
        return None
    values = entry.tensor.float_val or entry.tensor.double_val
    if values:
        return logged(values[0])
    from array import array

    content = array("f" if entry.tensor.dtype == FLOAT else "d", entry.tensor.tensor_content)
    return logged(content[0]) if len(content) == 1 else None
