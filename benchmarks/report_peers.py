"""The same series in TensorBoard, trackio and MLflow: seconds until all of them are in a reader's
memory.

`report.py --peers PYTHON` starts it with an interpreter that has them. The project depends on none:

    python -m venv peers && peers/bin/pip install tensorboard trackio mlflow

Each peer writes the workload by its own bulk interface, untimed. Then it serves every metric of
every run by the interface of its own front end. Peers do more than this (live servers, media); only
this is compared.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MLFLOW_RUNS = 2
"""MLflow takes minutes for all runs, so this many are measured and scaled."""


def tensorboard_events(runs: int, steps: int, metrics: int, folder: Path) -> None:
    import numpy as np
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    values = _values(np, steps, metrics)
    for run in range(runs):
        writer = EventFileWriter(str(folder / f"run{run:02d}"), max_queue_size=1000)
        for step, row in enumerate(values):
            told = [
                Summary.Value(tag=f"metric_{i:02d}", simple_value=value)
                for i, value in enumerate(row)
            ]
            writer.add_event(Event(step=step, wall_time=float(step), summary=Summary(value=told)))
        writer.close()


def event_accumulator(runs: int, steps: int, metrics: int, folder: Path) -> float:
    """TensorBoard's Python reader without limits."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    begun = time.perf_counter()
    for home in sorted(folder.iterdir()):
        read = EventAccumulator(str(home), size_guidance={"scalars": 0, "tensors": 0}).Reload()
        for tag in read.Tags()["scalars"]:
            assert len(read.Scalars(tag)) == steps
    return time.perf_counter() - begun


def fast_loader(runs: int, steps: int, metrics: int, folder: Path) -> float:
    """TensorBoard's data server, from its start until it has served every point of every metric."""
    from tensorboard.context import RequestContext
    from tensorboard.data.server_ingester import SubprocessServerDataIngester, get_server_binary
    from tensorboard.util import grpc_util

    begun = time.perf_counter()
    server = SubprocessServerDataIngester(
        get_server_binary(),
        str(folder),
        reload_interval=0,
        samples_per_plugin={"scalars": 0},
        channel_creds_type=grpc_util.ChannelCredsType.LOCAL,
    )
    server.start()
    context = RequestContext()
    found = 0
    while found < runs * metrics * steps and time.perf_counter() - begun < 300:
        series = server.data_provider.read_scalars(
            context, experiment_id="", plugin_name="scalars", downsample=steps
        )
        found = sum(len(points) for tags in series.values() for points in tags.values())
    seconds = time.perf_counter() - begun
    assert found == runs * metrics * steps, f"{found} points after {seconds:.0f} s"
    return seconds


def trackio_rows(runs: int, steps: int, metrics: int, folder: Path) -> None:
    import numpy as np
    from trackio.sqlite_storage import SQLiteStorage

    rows = [
        {f"metric_{i:02d}": value for i, value in enumerate(row)}
        for row in _values(np, steps, metrics)
    ]
    for run in range(runs):
        for first in range(0, steps, 500):
            chosen = range(first, min(first + 500, steps))
            SQLiteStorage.bulk_log(
                "bench", f"run{run:02d}", rows[chosen.start : chosen.stop], steps=list(chosen)
            )


def trackio_logs(runs: int, steps: int, metrics: int, folder: Path) -> float:
    """trackio's `get_logs`, run by run."""
    from trackio.sqlite_storage import SQLiteStorage

    begun = time.perf_counter()
    for run in range(runs):
        assert len(SQLiteStorage.get_logs("bench", f"run{run:02d}")) == steps
    return time.perf_counter() - begun


def mlflow_rows(runs: int, steps: int, metrics: int, folder: Path) -> None:
    import numpy as np
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.create_experiment("bench", artifact_location=str(folder / "artifacts"))
    values = _values(np, steps, metrics)
    for _ in range(min(runs, MLFLOW_RUNS)):
        run = client.create_run(experiment).info.run_id
        each = max(1, 1000 // metrics)
        for first in range(0, steps, each):
            batch = [
                Metric(f"metric_{i:02d}", value, 0, first + offset)
                for offset, row in enumerate(values[first : first + each])
                for i, value in enumerate(row)
            ]
            client.log_batch(run, metrics=batch)


def mlflow_history(runs: int, steps: int, metrics: int, folder: Path) -> float:
    """MLflow's `get_metric_history`, metric by metric; scaled from MLFLOW_RUNS runs."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("bench")
    assert experiment is not None
    found = [run.info.run_id for run in client.search_runs([experiment.experiment_id])]
    begun = time.perf_counter()
    for run in found:
        for i in range(metrics):
            assert len(client.get_metric_history(run, f"metric_{i:02d}")) == steps
    return (time.perf_counter() - begun) * runs / len(found)


def _values(np: Any, steps: int, metrics: int) -> list[list[float]]:
    values: list[list[float]] = (
        np.random.default_rng(0).standard_normal((steps, metrics)).round(6).tolist()
    )
    return values


Timed = Callable[[int, int, int, Path], float]
PEERS: dict[str, tuple[Callable[[int, int, int, Path], None], dict[str, Timed]]] = {
    "tensorboard": (
        tensorboard_events,
        {"EventAccumulator": event_accumulator, "fast loader": fast_loader},
    ),
    "trackio": (trackio_rows, {"get_logs": trackio_logs}),
    "mlflow": (
        mlflow_rows,
        {f"get_metric_history, scaled from {MLFLOW_RUNS} runs": mlflow_history},
    ),
}


def measured(runs: int, steps: int, metrics: int, folder: Path) -> dict[str, Any]:
    """Seconds per peer and reader, or the package to install."""
    out: dict[str, Any] = {}
    for name, (write, readers) in PEERS.items():
        home = folder / name
        home.mkdir(parents=True)
        if name == "trackio":
            os.environ["TRACKIO_DIR"] = str(home)
        try:
            write(runs, steps, metrics, home)
            out[name] = {
                reader: round(read(runs, steps, metrics, home), 2)
                for reader, read in readers.items()
            }
        except ImportError as error:
            out[name] = f"not measured: pip install {name} ({error.name} is missing)"
    return out


if __name__ == "__main__":
    *sizes, to = sys.argv[1:]
    print(json.dumps(measured(*map(int, sizes), Path(to))))
