"""TRL, and any trainer of transformers: `trainer_state.json`, in a checkpoint or an output folder.

Each checkpoint holds the complete history up to it, so only the last checkpoint is read. If a run
resumed in another folder, both are read. Rows are means over
`logging_steps` updates.
"""

import json
from pathlib import Path

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping, JsonObject
from gspo_lab.exchange.importers.base import (
    MOST_STEPS,
    Log,
    RunSpec,
    check_file,
    encoding_of,
    parse_int,
    parse_number,
)
from gspo_lab.exchange.importers.config import ARGUMENTS, read_config, training_arguments

STATE = "trainer_state.json"
MODEL_KEYS = ("_name_or_path", "base_model_name_or_path", "r", "lora_alpha")
"""The keys of a model's name, and of its adapters' rank and scale."""
RANKS = {"config.json": 0, "adapter_config.json": None}
"""File of a whole model or of adapters -> their rank, where the file does not tell it."""
MOST_BYTES = 1 << 30
"""Largest size of a history: a JSON file must fit into memory."""
NOT_METRICS = ("step", "epoch")


def read(path: Path, run: str, spec: RunSpec) -> Log:
    """The history in the file, or in the last checkpoint of the folder and of its sub-folders."""
    files = _files(path)
    notes: list[str] = []
    states = [_state(file) for file in files]
    joined: list[JsonMapping] = []
    for state in states:
        history = state["log_history"]
        # The state of a run that resumed holds the complete history, or only its own part.
        if joined and history and history[0] == joined[0]:
            joined.clear()
        joined += history
    config, more_files = _config(files[-1].parent, notes)
    rows = [
        (row["step"], {name: row[name] for name in row if name not in NOT_METRICS})
        for row in joined
    ]
    return Log(
        "trl",
        rows,
        [*files, *more_files],
        settings=config,
        notes=notes,
        planned=_count(states[-1], "max_steps"),
        reached=_count(states[-1], "global_step") or 0,
    )


def _config(folder: Path, notes: list[str]) -> tuple[JsonObject, list[Path]]:
    """The trainer's arguments in a checkpoint, the model's name, the adapters' rank, and the files
    that hold them.
    """
    files: list[Path] = []
    config: JsonObject = {}
    if (folder / ARGUMENTS).exists():
        arguments = training_arguments(folder / ARGUMENTS)
        if arguments is None:
            notes.append(f"{ARGUMENTS} cannot be read; its settings are not known")
        else:
            files.append(folder / ARGUMENTS)
            config |= arguments
    for name, rank in RANKS.items():
        if (folder / name).is_file():
            model = read_config(folder / name)
            config["r"] = rank
            config |= {key: model[key] for key in MODEL_KEYS if model.get(key)}
            files.append(folder / name)
    return config, files


def _files(path: Path) -> list[Path]:
    """The state files to join: the last checkpoint of each output folder, by step."""
    if not path.is_dir():
        return [check_file(path, f"a {STATE}, a checkpoint or an output folder")]
    if (path / STATE).is_file():
        return [path / STATE]
    folders = (path, *sorted(folder for folder in path.iterdir() if folder.is_dir()))
    resumed = [max(states, key=_number) for folder in folders if (states := _checkpoints(folder))]
    if not resumed:
        raise LabError(f"{path}: neither it nor a checkpoint-N in it holds a {STATE}")
    return resumed[:1] if resumed[0].parent.parent == path else sorted(resumed, key=_number)


def _checkpoints(folder: Path) -> list[Path]:
    return [file for file in folder.glob(f"checkpoint-*/{STATE}") if _number(file) >= 0]


def _number(file: Path) -> int:
    """The number of a file's checkpoint; -1 in a folder of another name."""
    number = file.parent.name.removeprefix("checkpoint-")
    return int(number) if number.isdigit() else -1


def _state(file: Path) -> JsonObject:
    """The content of a state file, or a list of its rows, each with a step. LabError if another
    program wrote it.
    """
    check_file(file, f"a {STATE}")
    if file.stat().st_size > MOST_BYTES:
        raise LabError(f"{file}: larger than {MOST_BYTES >> 30} GiB, which no {STATE} is")
    try:
        content = json.loads(file.read_text(encoding_of(file)))  # Python reads a bare NaN
    except (ValueError, RecursionError) as error:
        raise LabError(f"{file}: not JSON ({error})") from error
    if isinstance(content, list):
        content = {"log_history": content}
    history = content.get("log_history") if isinstance(content, dict) else None
    if not isinstance(history, list) or not all(isinstance(row, dict) for row in history):
        raise LabError(
            f"{file}: it has no 'log_history', so it is not a {STATE} of a transformers trainer"
        )
    for row in history:
        row["step"] = parse_int(row.get("step"), str(file))
    return dict(content)


def _count(state: JsonMapping, key: str) -> int | None:
    """A number of steps, also one that is text; None where none is stated."""
    count = parse_number(state.get(key)) or 0
    return int(count) if 0 < count < MOST_STEPS else None
