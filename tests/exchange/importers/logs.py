"""Logs as programs write them, made by hand where their numbers matter."""

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from calling import Said, gspo_lab
from laboratory import rendered

from gspo_lab.common.plain_data import JsonMapping, JsonObject
from gspo_lab.recording.store import Evidence, ingest

EIGHT = (-0.010, 0.002, 0.008, -0.002, 0.004, 0.026, 0.006, 0.006)
"""Differences of eight paired seeds: mean .0050, sd .01032, t(7; .975) = 2.365, so .0050 +- .0086.
"""


def bring(folder: Path, *arguments: object) -> Said:
    """`gspo-lab import ARGUMENTS` into `folder`/runs."""
    return gspo_lab("import", *arguments, "--runs", folder / "runs")


def brought(folder: Path, *arguments: object) -> Said:
    """The same, of what can be imported."""
    said = bring(folder, *arguments)
    assert said.code == 0, said
    return said


def refused(folder: Path, *arguments: object) -> str:
    """The one line by which an import is refused, that left nothing behind and nothing half."""
    before = content(folder / "runs")
    said = bring(folder, *arguments)
    assert said.code == 2, said
    assert said.out == ""
    assert content(folder / "runs") == before
    lines = said.err.splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def content(folder: Path) -> dict[str, bytes]:
    """Every file in a folder but the database."""
    files = [
        path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("lab.db")
    ]
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(files)}


def report(folder: Path, study: str) -> JsonObject:
    """The sections of the study's report, by their ids."""
    ingest(folder / "runs")
    found = json.loads(rendered(folder / "runs" / "lab.db", study).json)
    return found["studies"][study]


@contextmanager
def opened(folder: Path) -> Iterator[Evidence]:
    """The evidence in a folder's runs."""
    ingest(folder / "runs")
    with Evidence.open(folder / "runs" / "lab.db") as evidence:
        yield evidence


def csv_of(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def json_lines(path: Path, rows: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def eight_seeds(path: Path) -> Path:
    rows = [
        f"{arm},{seed},{0.5 + (arm == 'gspo') * d:.3f}"
        for seed, d in enumerate(EIGHT)
        for arm in ("grpo", "gspo")
    ]
    return csv_of(path, "arm,seed,score", *rows)


def trainer_state(path: Path, rows: Sequence[JsonObject], summary: bool = False) -> Path:
    """What a trainer of transformers leaves; Python writes NaN as it does, bare."""
    path.parent.mkdir(parents=True, exist_ok=True)
    last = [{"step": rows[-1]["step"], "train_loss": 0.1, "train_runtime": 3.0}] if summary else []
    path.write_text(json.dumps({"global_step": rows[-1]["step"], "log_history": [*rows, *last]}))
    return path


def trl_rows(
    steps: range, reward: float = 0.0, clipped: float = 0.25, **more: Any
) -> list[JsonObject]:
    return [
        {
            "step": step,
            "loss": 0.5,
            "reward": reward + step / 100,
            "clip_ratio/region_mean": clipped,
            **more,
        }
        for step in steps
    ]


def offline_run(path: Path, rows: Iterable[JsonMapping], config: JsonMapping | None = None) -> Path:
    """A `run-*.wandb` with this config and these rows of history.

    The file is LevelDB's log of wandb's own messages.
    """
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import (
        ConfigItem,
        ConfigRecord,
        HistoryItem,
        HistoryRecord,
        Record,
    )

    def items(kind: Any, row: JsonMapping) -> list[Any]:
        return [kind(key=name, value_json=json.dumps(value)) for name, value in row.items()]

    settings = [Record(config=ConfigRecord(update=items(ConfigItem, config)))] if config else []
    history = (Record(history=HistoryRecord(item=items(HistoryItem, row))) for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(b":W&B\xe1\xbe\x00")
        left = 32768 - 7
        for record in chain(settings, history):
            data = record.SerializeToString()
            first = True
            while first or data:
                if left < 7:
                    file.write(bytes(left))
                    left = 32768
                piece = data[: left - 7]
                data = data[left - 7 :]
                kind = bytes([(4 if not data else 3) if not first else (2 if data else 1)])
                checksum = zlib.crc32(kind + piece).to_bytes(4, "little")
                file.write(checksum + len(piece).to_bytes(2, "little") + kind + piece)
                left = left - 7 - len(piece)
                first = False
    return path


def events(
    folder: Path, rows: Iterable[tuple[int, Mapping[str, float]]], began: float = 1e9
) -> Path:
    """An event file by TensorBoard's own writer, a scalar an event, a second a step."""
    pytest.importorskip("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    before = set(folder.glob("*"))
    writer = EventFileWriter(str(folder), filename_suffix=f".{len(before)}")
    for step, row in rows:
        for name, value in row.items():
            summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
            writer.add_event(Event(wall_time=began + step, step=step, summary=summary))
    writer.close()
    [path] = set(folder.glob("*")) - before
    return path


def project(path: Path, rows: Iterable[tuple[str, int, str]]) -> Path:
    """trackio's SQLite file with these calls of `log`: run, step, metrics."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE metrics (run_name TEXT, step INTEGER, metrics TEXT)")
        database.executemany("INSERT INTO metrics VALUES (?, ?, ?)", rows)
    return path
