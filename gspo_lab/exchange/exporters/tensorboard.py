"""TensorBoard: `<arm>/s<seed>/events.out.tfevents.0`, every number a scalar, at full precision.

TensorBoard's writers round to float32. This module writes float64 with TensorBoard's messages and
record writer. Its pages show float64 only with `--load_fast=false` (tried with 2.21), because its
default data server skips it.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import starmap
from pathlib import Path
from typing import Any

from gspo_lab.exchange.exporters import RunRows
from gspo_lab.exchange.importers.base import LoggedRow
from gspo_lab.exchange.importers.tensorboard import FRAME_BYTES, events

NEEDS = ("tensorboard", "import", "writing for TensorBoard")
EVENTS = "events.out.tfevents.0"
VERSION = "brain.Event:2"


@contextmanager
def writer(study: str, folder: Path) -> Iterator["Events"]:
    """One folder of events per run."""
    yield Events(folder)


class Events:
    """One event file per run. It is appended to, so that an open TensorBoard reads on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, run: RunRows, rows: Sequence[LoggedRow]) -> int:
        """Void stored rows that differ by a START at the first such step, which TensorBoard
        obeys.
        """
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        def start(step: int) -> Event:
            return Event(
                wall_time=run.started_at, step=step, session_log=SessionLog(status=SessionLog.START)
            )

        file = self._file(run)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            _append(file, [Event(wall_time=run.started_at, file_version=VERSION), start(0)])
            return 0
        stored = _rows(file)
        changed = (i for i, (old, new) in enumerate(zip(stored, rows, strict=False)) if old != new)
        same = next(changed, min(len(stored), len(rows)))
        if same < len(stored):
            _append(
                file, [start(min(table[same][0] for table in (stored, rows) if same < len(table)))]
            )
        return same

    def add(self, run: RunRows, rows: Iterable[LoggedRow]) -> None:
        """Write one event per step."""
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

        _append(self._file(run), starmap(event, rows))

    def _file(self, run: RunRows) -> Path:
        return self._folder / run.arm / f"s{run.seed}" / EVENTS


def _append(path: Path, events: Iterable[Any]) -> None:
    """Append events in one write: TensorBoard keeps a part of a record if it reads one."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    written = BytesIO()
    records = RecordWriter(written)
    for event in events:
        records.write(event.SerializeToString())
    data = written.getbuffer()
    with path.open("ab", buffering=0) as file:
        while data:
            data = data[file.write(data) :]


def _rows(file: Path) -> list[LoggedRow]:
    """The rows in a file of this module. An incomplete record at its end is cut off."""
    rows: list[LoggedRow] = []
    end = 0
    for event in events(file, []):
        end += FRAME_BYTES + event.ByteSize()
        if event.HasField("session_log") and event.session_log.status == event.session_log.START:
            rows = [row for row in rows if row[0] < event.step]
        elif event.summary.value:
            rows.append(
                (
                    event.step,
                    {entry.tag: entry.tensor.double_val[0] for entry in event.summary.value},
                )
            )
    os.truncate(file, end)
    return rows
