"""TensorBoard: a folder of event files, every scalar of every one kept; parsed by TensorBoard's own messages.

A START in a file's session log voids what it says of later steps before (a writer's `purge_step`), as in TensorBoard.
Several files are one run where a later one goes on (a resumed run: what it logs anew counts), or where they log other
tags (a writer for each, as in the sub-folders that `add_scalars` makes). A file that begins again is another run's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from gspo_lab.errors import LabError, MissingExtra
from gspo_lab.importers.log import CHUNK, Log, Wish, rising
from gspo_lab.importers.spool import Spool

EVENTS = "*tfevents*"
AROUND = 16
"""Bytes of a record beside its event: a length and two checksums."""
LONG = 4096
"""Bytes that an event of scalars has at most, unless it has hundreds of them."""
FLOAT, DOUBLE = 1, 2
"""Tensors' types that a scalar may have (`DT_FLOAT`, `DT_DOUBLE`)."""


@dataclass
class _Span:
    """What one file logs: its first and last step and moment, by its scalars alone."""

    file: Path
    numbers: Spool
    first: int | None = None
    last: int = 0
    began: float = 0.0
    ended: float = 0.0


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


def _joined(spans: list[_Span], notes: list[str]) -> Spool:
    """All files in the order of time. LabError where two log the same tags and neither goes on from the other."""
    names = [span.numbers.names for span in spans]
    for place, span in enumerate(spans[1:], 1):
        assert span.first is not None
        shared = [one for one, known in zip(spans[:place], names, strict=False) if known & names[place]]
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
        spans[0].numbers.take(span.numbers)
    return spans[0].numbers


def _read(file: Path, root: Path, notes: list[str]) -> _Span:
    span, at = _Span(file, Spool(str(file), notes)), file.parent.relative_to(root).as_posix() if root.is_dir() else "."
    prefix = "" if at == "." else f"{at}/"
    add = span.numbers.add
    for event in events(file, notes):
        kind = event.WhichOneof("what")
        if kind == "session_log" and voids(event):
            span.numbers.drop(event.step)
        if kind != "summary":
            continue
        step = event.step
        told = [(entry.tag, value) for entry in event.summary.value if (value := scalar(entry)) is not None]
        if not told:
            continue
        if step < 0:
            raise LabError(f"{file}: {told[0][0]} has the step {step}")
        for tag, value in told:
            add(prefix + tag, step, value)
        if span.first is None:
            span.first, span.began = step, event.wall_time
        span.first, span.last = min(span.first, step), max(span.last, step)
        span.ended = event.wall_time
    return span


def events(file: Path, notes: list[str]) -> Iterator[Any]:
    """The events of a file, up to the first that is torn or damaged, which is noted.

    A record is its length (8 bytes), a checksum of these (4), that many bytes of an Event, a checksum of them (4).
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
    """The events' bytes of a file of `left` bytes, read piece by piece; None at the end where one is damaged."""
    data = b""
    while left:
        piece = stream.read(CHUNK)
        data += piece
        ends, torn = [0], not piece
        while not torn and len(data) - ends[-1] >= AROUND:
            start = ends[-1]
            end = start + AROUND + int.from_bytes(data[start : start + 8], "little")
            torn = end > left or (end - start > CHUNK and not _sound(data, [start], [8]))
            if torn or end > len(data):
                break
            ends.append(end)
        events = [(start + 12, end - 4) for start, end in pairwise(ends)]
        sound = _sound(data, [start for start, _ in events], [end - start for start, end in events])
        yield from (data[start:end] for start, end in events[:sound])
        if torn or sound < len(events):
            yield None
            return
        data, left = data[ends[-1] :], left - ends[-1]


def _sound(data: bytes, starts: Sequence[int], sizes: Sequence[int]) -> int:
    """How many of these parts, from the first on, have the checksum that follows them (CRC-32C, masked).

    TensorBoard's reader makes these byte by byte in Python, which takes longer than all else here. They are made of all
    parts at once, place by place; a part that is longer than any scalar's is believed.
    """
    import numpy as np
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import CRC_TABLE

    table, content = np.array(CRC_TABLE, np.uint32), np.frombuffer(data, np.uint8)
    size = np.array(sizes, np.int64)
    order = np.argsort(-size, kind="stable")
    at, size = np.array(starts, np.int64)[order], size[order]
    told = content[(at + size)[:, None] + np.arange(4)].view("<u4")[:, 0]
    first = int(np.searchsorted(-size, -LONG))
    crc = np.full(len(at), 0xFFFFFFFF, np.uint32)
    for place in range(int(size[first]) if first < len(size) else 0):
        some = slice(first, int(np.searchsorted(-size, -place)))
        crc[some] = table[(crc[some] ^ content[at[some] + place]) & 0xFF] ^ (crc[some] >> 8)
    crc = ~crc
    bad = ((crc >> 15 | crc << 17) + np.uint32(0xA282EAD8)) != told
    bad[:first] = False
    return int(order[bad].min()) if bad.any() else len(order)


def voids(event: Any) -> bool:
    """Whether what stood before it, of its step and later ones, is void."""
    return bool(event.HasField("session_log")) and event.session_log.status == event.session_log.START


def scalar(entry: Any) -> float | None:
    """A summary's number, of the older form or a tensor of one; None for pictures, texts and histograms."""
    kind = entry.WhichOneof("value")
    if kind == "simple_value":
        found: float = entry.simple_value
        return found
    if kind != "tensor" or entry.tensor.tensor_shape.dim or entry.tensor.dtype not in (FLOAT, DOUBLE):
        return None
    values = entry.tensor.float_val or entry.tensor.double_val
    if values:
        return float(values[0])
    from array import array

    content = array("f" if entry.tensor.dtype == FLOAT else "d", entry.tensor.tensor_content)
    return content[0] if len(content) == 1 else None
