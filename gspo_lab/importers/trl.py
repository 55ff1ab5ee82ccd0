"""TRL, and any trainer of transformers: `trainer_state.json`, in a checkpoint or an output folder.

Each checkpoint holds the whole history up to it, so of several the last one counts; what a run that went on elsewhere
logged anew replaces what was logged of these steps before. Rows are means over `logging_steps` updates.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.importers.config import ARGUMENTS, read_config, training_arguments
from gspo_lab.importers.log import Log, Row, Wish, a_file, numbers, rising, whole_number

STATE = "trainer_state.json"
SUMMARY = "train_runtime"
"""What only the last row of a finished run has: totals, and no step's numbers."""
OTHER = ("step", "epoch")
MOST_BYTES = 1 << 30
"""A JSON file is read whole; one that is larger is no history of rows."""


def read(path: Path, run: str, wish: Wish) -> Log:
    """The history of the file, or of the last checkpoint in the folder, over that of earlier folders."""
    files = _files(path)
    histories = [_history(file) for file in files]
    joined: list[Mapping[str, Any]] = []
    notes = []
    for file, history in zip(files, histories, strict=True):
        first = history[0]["step"] if history else joined[-1]["step"] + 1 if joined else 0
        kept = [one for one in joined if one["step"] < first]
        if joined and not kept and history[0] != joined[0]:
            raise LabError(f"{file}: it begins anew at step {first}, with other numbers than {files[0]}: another run")
        if kept:
            notes.append(f"{file.parent.name}/{file.name} goes on at step {first}, over {len(joined) - len(kept)} rows")
        joined = [*kept, *history]
    if any(SUMMARY in one for one in joined):
        notes.append("the summary of the whole run, its last row, is left out")
        joined = [one for one in joined if SUMMARY not in one]
    steps = sorted({one["step"] for one in joined if "loss" in one})
    gaps = {later - earlier for earlier, later in pairwise(steps)}
    if gaps and max(gaps) > 1:
        notes.append(f"rows are means over {'up to ' * (len(gaps) > 1)}{max(gaps)} updates (logging_steps)")
    config, more = _config(files[-1].parent)
    return Log("trl", rising(_rows(joined), str(path)), [*files, *more], settings=config, notes=notes)


def _config(folder: Path) -> tuple[dict[str, Any], list[Path]]:
    """What the checkpoint holds of the trainer's arguments and the model's name, and the files that were read."""
    read, config = [], dict[str, Any]()
    arguments = training_arguments(folder / ARGUMENTS)
    if arguments is not None:
        read.append(folder / ARGUMENTS)
        config |= arguments
    for name in ("config.json", "adapter_config.json"):
        if (folder / name).is_file():
            found = read_config(folder / name)
            config |= {key: found[key] for key in ("_name_or_path", "base_model_name_or_path") if found.get(key)}
            read.append(folder / name)
    return config, read


def _rows(history: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    for one in history:
        yield one["step"], numbers(one, OTHER)


def _files(path: Path) -> list[Path]:
    """The states to join: of each output folder that of its last checkpoint, in the order of their steps."""
    if path.is_file() or not path.is_dir():
        return [a_file(path, f"a {STATE}, a checkpoint or an output folder")]
    if (path / STATE).is_file():
        return [path / STATE]
    last = _last_checkpoint(path)
    if last is not None:
        return [last]
    resumed = [found for one in sorted(path.iterdir()) if one.is_dir() and (found := _last_checkpoint(one))]
    if not resumed:
        raise LabError(f"{path}: neither it nor a checkpoint-N in it holds a {STATE}")
    return sorted(resumed, key=lambda file: _checkpoint(file.parent))


def _last_checkpoint(folder: Path) -> Path | None:
    states = [file for file in folder.glob(f"checkpoint-*/{STATE}") if _checkpoint(file.parent) >= 0]
    return max(states, key=lambda file: _checkpoint(file.parent), default=None)


def _checkpoint(folder: Path) -> int:
    found = re.fullmatch(r"checkpoint-(\d+)", folder.name)
    return int(found[1]) if found else -1


def _history(file: Path) -> list[dict[str, Any]]:
    """Its rows, each with a step. LabError where the file is another program's."""
    a_file(file, f"a {STATE}")
    if file.stat().st_size > MOST_BYTES:
        raise LabError(f"{file}: larger than {MOST_BYTES >> 30} GiB, which no {STATE} is")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))  # Python reads a bare NaN
    except (ValueError, RecursionError) as error:
        raise LabError(f"{file}: no JSON ({error})") from error
    history = content.get("log_history") if isinstance(content, dict) else None
    if not isinstance(history, list) or not all(isinstance(one, dict) for one in history):
        raise LabError(f"{file}: it has no 'log_history', so it is no {STATE} of a trainer of transformers")
    for one in history:
        one["step"] = whole_number(one.get("step"), str(file))
    return history
