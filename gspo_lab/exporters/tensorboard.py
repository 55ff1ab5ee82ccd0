"""TensorBoard: `<arm>/s<seed>/events.out.tfevents.0`, every number a scalar, at full precision.

TensorBoard's own writers round to float32; float64 is written here, by its own messages and record writer. Its pages
show it with `--load_fast=false` (seen with 2.21); its data server, which is the default, passes it over.
"""

from collections.abc import Sequence
from pathlib import Path

from gspo_lab.errors import MissingExtra
from gspo_lab.exporters.logged import Logged

EVENTS = "events.out.tfevents.0"
VERSION = "brain.Event:2"


def write(study: str, runs: Sequence[Logged], folder: Path) -> None:
    """A folder of events per run."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.scalar.metadata import create_summary_metadata
        from tensorboard.summary.writer.record_writer import RecordWriter
        from tensorboard.util.tensor_util import make_tensor_proto
    except ModuleNotFoundError as error:
        raise MissingExtra("tensorboard", "import", "export to TensorBoard") from error
    import numpy as np

    kind = create_summary_metadata(display_name="", description="")
    for run in runs:
        place = folder / run.arm / f"s{run.seed}"
        place.mkdir(parents=True)
        with (place / EVENTS).open("wb") as file:
            events = RecordWriter(file)
            events.write(Event(wall_time=run.started_at, file_version=VERSION).SerializeToString())
            for step, row in run.rows():
                values = [
                    Summary.Value(tag=name, metadata=kind, tensor=make_tensor_proto(np.float64(value)))
                    for name, value in row.items()
                ]
                event = Event(wall_time=run.started_at, step=step, summary=Summary(value=values))
                events.write(event.SerializeToString())
            events.flush()
