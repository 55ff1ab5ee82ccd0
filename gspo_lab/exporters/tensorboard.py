"""TensorBoard: `<arm>/s<seed>/events.out.tfevents.0`, every number a scalar, at full precision.

TensorBoard's own writers round to float32; float64 is written here, by its own messages and record writer. Its pages
show it with `--load_fast=false` (seen with 2.21); its data server, which is the default, passes it over.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from gspo_lab.exporters.logged import Logged
from gspo_lab.importers.log import Row
from gspo_lab.importers.tensorboard import AROUND, events, voids

NEEDS = ("tensorboard", "import", "writing for TensorBoard")
EVENTS = "events.out.tfevents.0"
VERSION = "brain.Event:2"


@contextmanager
def writer(study: str, folder: Path) -> Iterator["Events"]:
    """A folder of events per run."""
    yield Events(folder)


class Events:
    """A file of events a run, appended to: a TensorBoard that shows it reads on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, run: Logged, rows: Sequence[Row]) -> int:
        """What is there of other rows is voided, as TensorBoard has it: by a START at the first of these steps."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        def start(step: int) -> Event:
            return Event(wall_time=run.started_at, step=step, session_log=SessionLog(status=SessionLog.START))

        file = self._file(run)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            _append(file, [Event(wall_time=run.started_at, file_version=VERSION), start(0)])
            return 0
        there = _rows(file)
        same = next((i for i, (one, other) in enumerate(zip(there, rows, strict=False)) if one != other), None)
        if same is None:
            same = min(len(there), len(rows))
        if same < len(there):
            _append(file, [start(min(one[same][0] for one in (there, rows) if same < len(one)))])
        return same

    def add(self, run: Logged, rows: Iterable[Row]) -> None:
        """An event per step."""
        import numpy as np
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.scalar.metadata import create_summary_metadata
        from tensorboard.util.tensor_util import make_tensor_proto

        kind = create_summary_metadata(display_name="", description="")

        def event(step: int, row: Mapping[str, float]) -> Event:
            values = [
                Summary.Value(tag=name, metadata=kind, tensor=make_tensor_proto(np.float64(value)))
                for name, value in row.items()
            ]
            return Event(wall_time=run.started_at, step=step, summary=Summary(value=values))

        _append(self._file(run), (event(step, row) for step, row in rows))

    def _file(self, run: Logged) -> Path:
        return self._folder / run.arm / f"s{run.seed}" / EVENTS


def _append(path: Path, events: Iterable[Any]) -> None:
    """In one write: a TensorBoard that reads a part of a record keeps that part."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    written = BytesIO()
    records = RecordWriter(written)
    for event in events:
        records.write(event.SerializeToString())
    data = written.getbuffer()
    with path.open("ab", buffering=0) as file:
        while data:
            data = data[file.write(data) :]


def _rows(file: Path) -> list[Row]:
    """What a file of this module's holds. A record at its end that is torn is taken away."""
    rows: list[Row] = []
    end = 0
    for event in events(file, []):
        end += AROUND + event.ByteSize()
        if voids(event):
            rows = [row for row in rows if row[0] < event.step]
        elif event.summary.value:
            rows.append((event.step, {one.tag: one.tensor.double_val[0] for one in event.summary.value}))
    os.truncate(file, end)
    return rows
