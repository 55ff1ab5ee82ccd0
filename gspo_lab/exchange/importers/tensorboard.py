"""TensorBoard: all scalars of a folder of event files, read by TensorBoard's own loader.

Several files are one run, in the order of their times: a later file continues an earlier one, or
logs other tags (as in the sub-folders of `add_scalars`). The folder that holds all of them is no
part of a name: TRL writes to `OUTPUT/runs/DATE_HOST`. Two folders that log one tag are two runs,
unless they are named as parts of a run: after the tag, or `train` and `eval`.
"""

from collections.abc import Iterator
from contextlib import suppress
from os.path import commonpath
from pathlib import Path
from typing import Any

from gspo_lab.common.errors import LabError, require_package
from gspo_lab.common.plain_data import OptionalFloat
from gspo_lab.common.text import first_few
from gspo_lab.exchange.importers.base import Log, LoggedRow, RunSpec
from gspo_lab.exchange.importers.secrets import word_set

EVENTS = "*tfevents*"
PARTS = word_set("train training validation val eval test")
"""Names of folders that are parts of one run."""
FRAME_BYTES = 16
"""Bytes of a record around its event: a length and two checksums."""
FLOAT = 1
DOUBLE = 2
"""Tensor types of scalars (`DT_FLOAT`, `DT_DOUBLE`)."""


def read(path: Path, run: str, spec: RunSpec) -> Log:
    """The folder's event files, or one of them."""
    files = [path] if path.is_file() else sorted(path.rglob(EVENTS))
    if not files:
        raise LabError(f"{path}: no event file ({EVENTS}) in it")
    log = Log("tensorboard", (), files)
    root = Path(commonpath([file.parent for file in files]))
    log.rows = _rows(files, root, log.notes)
    return log


def _rows(files: list[Path], root: Path, notes: list[str]) -> Iterator[LoggedRow]:
    """The scalars of all files, the earliest file first. LabError for several runs."""
    homes: dict[str, Path] = {}
    for file in sorted(files, key=_begin):
        folder = file.parent.relative_to(root).as_posix()
        prefix = "" if folder == "." else f"{folder}/"
        for event in events(file, notes):
            values = ((prefix + entry.tag, scalar(entry)) for entry in event.summary.value)
            scalars = {tag: value for tag, value in values if value is not None}
            if scalars and event.step < 0:
                raise LabError(f"{file}: {min(scalars)} has the step {event.step}")
            for tag in scalars if file.parent.name not in PARTS else ():
                plain = tag.removeprefix(prefix)
                is_part = file.parent.name.startswith(plain.replace("/", "_"))
                if not is_part and homes.setdefault(plain, file.parent) != file.parent:
                    folders = {entry.parent.relative_to(root).as_posix() for entry in files}
                    raise LabError(
                        f"{root}: several runs, for more than one folder logs {plain}: name one of"
                        f" them, {first_few(sorted(folders), 8)}, or write {{arm}} and {{seed}} in"
                        " the path"
                    )
            if scalars:
                yield event.step, scalars


def _begin(file: Path) -> float:
    """The time of a file's first event with a scalar."""
    times = (event.wall_time for event in events(file, []) if event.summary.value)
    return next(times, 0.0)


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


def scalar(entry: Any) -> OptionalFloat:
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
    from tensorboard.util.tensor_util import make_ndarray

    values = make_ndarray(entry.tensor)
    return float(values) if values.size == 1 else None
