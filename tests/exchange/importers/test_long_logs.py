"""Logs larger than the memory that an import should need.

They have 3 and 12 MB here; with `nox -s imports` as many as GSPO_LAB_LOG_MB says.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from logs import offline_run

NUMBERS = 100
SMALL = 3
LARGE = int(os.environ.get("GSPO_LAB_LOG_MB", "12"))
CALL = "import sys\nfrom gspo_lab.cli import main\nsys.argv[0] = 'gspo-lab'\nmain()\n"


def rows() -> Iterator[dict[str, float]]:
    return ({f"m{i}": i + step / 7 for i in range(NUMBERS)} for step in count())


def write_json_lines(path: Path, size: int) -> None:
    with path.open("w") as file:
        for step, row in enumerate(rows()):
            if file.tell() >= size:
                return
            file.write(json.dumps({"step": step, **row}) + "\n")


def write_csv(path: Path, size: int) -> None:
    with path.open("w") as file:
        file.write(",".join(["step", *next(rows())]) + "\n")
        for step, row in enumerate(rows()):
            if file.tell() >= size:
                return
            file.write(",".join(map(str, (step, *row.values()))) + "\n")


def write_offline_run(path: Path, size: int) -> None:
    def until_full() -> Iterator[dict[str, float]]:
        for step, row in enumerate(rows()):
            if path.stat().st_size >= size:
                return
            yield {"_step": step, **row}

    offline_run(path, until_full())


def write_events(path: Path, size: int) -> None:
    """A scalar an event, as programs log by name."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    with path.open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(file_version="brain.Event:2").SerializeToString())
        for step, row in enumerate(rows()):
            if file.tell() >= size:
                return
            for name, value in row.items():
                summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
                writer.write(Event(wall_time=step, step=step, summary=summary).SerializeToString())


WRITERS = {
    # source: the file's name, who writes it
    "jsonl": ("a.jsonl", write_json_lines),
    "csv": ("a.csv", write_csv),
    "wandb": ("run-a.wandb", write_offline_run),
    "tensorboard": ("events.out.tfevents.0", write_events),
}


OTHERS = [source for source in WRITERS if source != "jsonl"]


def taken_in(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "runs" / "lab.db")) as database:
        count: int = database.execute("SELECT COUNT(*) FROM updates").fetchone()[0]
    return count


def imported(folder: Path, source: str, megabytes: int) -> int:
    """A log of that size from file to database: kB of the process at most.

    What it leaves is deleted.
    """
    name, write = WRITERS[source]
    folder.mkdir()
    write(folder / name, megabytes << 20)
    words = (
        "import",
        source,
        folder / name,
        "--study",
        "x",
        "--arm",
        "a",
        "--seed",
        0,
        "--runs",
        folder / "runs",
    )
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", CALL, *map(str, words)], stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    cpu = used.ru_utime + used.ru_stime
    steps = taken_in(folder)
    print(
        f"{source}: {megabytes} MB, {steps:,} rows of {NUMBERS} numbers: {seconds:.0f} s by the"
        f" clock, {cpu:.0f} s of processor, {used.ru_maxrss // 1000} MB of memory"
    )
    shutil.rmtree(folder)
    return used.ru_maxrss


@pytest.mark.parametrize(
    "source", ["jsonl", *(pytest.param(one, marks=pytest.mark.slow) for one in OTHERS)]
)
def test_an_import_s_memory_does_not_grow_with_the_log(tmp_path: Path, source: str) -> None:
    """From the file to the database, of a log that is four times as long.

    Its size may also be GSPO_LAB_LOG_MB. Its values are noise.
    """
    if source == "tensorboard":
        pytest.importorskip("tensorboard")
    small = imported(tmp_path / str(SMALL), source, SMALL)
    large = imported(tmp_path / str(LARGE), source, LARGE)
    assert large - small < 8_000, f"{small} and {large} kB"
