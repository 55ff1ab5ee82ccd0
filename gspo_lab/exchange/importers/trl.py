"""TRL, and any trainer of transformers: `trainer_state.json`, in a checkpoint or an output folder.

Each checkpoint holds the complete history up to it, so only the last checkpoint is read. If a run
resumed in another folder, its rows replace earlier rows of the same steps. Rows are means over
`logging_steps` updates.
"""

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from gspo_lab.common.errors import LabError
from gspo_lab.exchange.importers.base import (
    Log,
    RunSpec,
    check_file,
    merge_rows,
    numbers,
    parse_int,
)
from gspo_lab.exchange.importers.config import ARGUMENTS, read_config, training_arguments

STATE = "trainer_state.json"
SUMMARY = "train_runtime"
"""A key of the last row of a finished run, which holds totals instead of a step's numbers."""
NOT_METRICS = ("step", "epoch")
MOST_BYTES = 1 << 30
"""Largest size of a history: a JSON file must fit into memory."""


def read(path: Path, run: str, spec: RunSpec) -> Log:
    """The history in the file, or in the last checkpoint of the folder and of its sub-folders."""
    files = _files(path)
    histories = [_history(file) for file in files]
    joined: list[Mapping[str, Any]] = []
    notes = []
    for file, history in zip(files, histories, strict=True):
        first = history[0]["step"] if history else joined[-1]["step"] + 1 if joined else 0
        earlier = [row for row in joined if row["step"] < first]
        if joined and not earlier and history[0] != joined[0]:
            raise LabError(
                f"{file}: it begins anew at step {first}, with other numbers than {files[0]}:"
                " another run"
            )
        if earlier:
            replaced = len(joined) - len(earlier)
            notes.append(
                f"{file.parent.name}/{file.name} goes on at step {first}, over {replaced} rows"
            )
        joined = [*earlier, *history]
    if any(SUMMARY in row for row in joined):
        notes.append("the summary of the whole run, its last row, is left out")
        joined = [row for row in joined if SUMMARY not in row]
    steps = sorted({row["step"] for row in joined if "loss" in row})
    gaps = {later - earlier for earlier, later in pairwise(steps)}
    if gaps and max(gaps) > 1:
        notes.append(
            f"rows are means over {'up to ' * (len(gaps) > 1)}{max(gaps)} updates (logging_steps)"
        )
    config, more = _config(files[-1].parent)
    rows = ((row["step"], numbers(row, NOT_METRICS)) for row in joined)
    return Log("trl", merge_rows(rows, str(path)), [*files, *more], settings=config, notes=notes)


def _config(folder: Path) -> tuple[dict[str, Any], list[Path]]:
    """The trainer's arguments and the model's name in a checkpoint, and the files that hold
    them.
    """
    read = []
    config = dict[str, Any]()
    arguments = training_arguments(folder / ARGUMENTS)
    if arguments is not None:
        read.append(folder / ARGUMENTS)
        config |= arguments
    for name in ("config.json", "adapter_config.json"):
        if (folder / name).is_file():
            model = read_config(folder / name)
            config |= {
                key: model[key]
                for key in ("_name_or_path", "base_model_name_or_path")
                if model.get(key)
            }
            read.append(folder / name)
    return config, read


def _files(path: Path) -> list[Path]:
    """The state files to join: the last checkpoint of each output folder, by step."""
    if path.is_file() or not path.is_dir():
        return [check_file(path, f"a {STATE}, a checkpoint or an output folder")]
    if (path / STATE).is_file():
        return [path / STATE]
    last = _last_checkpoint(path)
    if last is not None:
        return [last]
    folders = [folder for folder in sorted(path.iterdir()) if folder.is_dir()]
    resumed = [state for folder in folders if (state := _last_checkpoint(folder))]
    if not resumed:
        raise LabError(f"{path}: neither it nor a checkpoint-N in it holds a {STATE}")
    return sorted(resumed, key=lambda file: _checkpoint(file.parent))


def _last_checkpoint(folder: Path) -> Path | None:
    states = [
        file for file in folder.glob(f"checkpoint-*/{STATE}") if _checkpoint(file.parent) >= 0
    ]
    return max(states, key=lambda file: _checkpoint(file.parent), default=None)


def _checkpoint(folder: Path) -> int:
    match = re.fullmatch(r"checkpoint-(\d+)", folder.name)
    return int(match[1]) if match else -1


def _history(file: Path) -> list[dict[str, Any]]:
    """The rows, each with a step. LabError if another program wrote the file."""
    check_file(file, f"a {STATE}")
    if file.stat().st_size > MOST_BYTES:
        raise LabError(f"{file}: larger than {MOST_BYTES >> 30} GiB, which no {STATE} is")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))  # Python reads a bare NaN
    except (ValueError, RecursionError) as error:
        raise LabError(f"{file}: not JSON ({error})") from error
    history = content.get("log_history") if isinstance(content, dict) else None
    if not isinstance(history, list) or not all(isinstance(row, dict) for row in history):
        raise LabError(
            f"{file}: it has no 'log_history', so it is not a {STATE} of a transformers trainer"
        )
    for row in history:
        row["step"] = parse_int(row.get("step"), str(file))
    return history
