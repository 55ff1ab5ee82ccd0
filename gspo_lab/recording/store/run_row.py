"""A run's row in the table `runs`: what its run.json specifies, and where its statuses say that it
stands.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.common.states import STARTED, State
from gspo_lab.recording.store.run_files import json_file
from gspo_lab.study import Settings

NO_SPECIFICATION = "no run specification"
RUN_AGAIN = "delete its folder and run it again"
STATE_COLUMNS = ("state", "at", "message", "facts")
"""What of a status `run_state` asks for."""


def run_row(path: Path, run_id: str) -> JsonObject:
    """A run's row by its run.json; study and arm come from its folder, so that a copied study has
    its own.
    """
    content = json_file(path)
    try:
        settings = content["settings"]
        if not isinstance(content["declared"], list):
            raise TypeError("a list of declared settings")
        if unknown := _unknown_setting(settings):
            raise TypeError(f"a known key in place of settings.{unknown}")
        return content | {
            "run_id": run_id,
            "study": path.parts[-4],
            "arm": path.parts[-3],
            "seed": content["seed"],
            **run_state([], -1),
            "steps_planned": settings.get("steps") if content.get("origin") else settings["steps"],
            **{
                name: as_json(content[name]) for name in ("declared", "reference_bands", "settings")
            },
        }
    except (KeyError, TypeError) as error:
        raise LabError(f"{path} is {NO_SPECIFICATION} ({error} is missing): {RUN_AGAIN}") from error


def _unknown_setting(settings: JsonObject) -> str | None:
    """The first key that no run has, dotted; None where every key is known.

    Values are not judged: an import knows a part of them.
    """
    try:
        Settings.model_validate(settings)
    except ValidationError as error:
        for mistake in error.errors():
            if mistake["type"] == "extra_forbidden":
                return ".".join(map(str, mistake["loc"]))
    return None


def run_state(
    statuses: Sequence[tuple[Any, ...]], last_step: int, *, alive: bool = False
) -> JsonObject:
    """Where a run stands, as columns of its row, by the STATE_COLUMNS of each of its statuses.

    `last_step` is -1 before the first; `alive`: a worker holds its lock.
    """
    state, moment, message, _ = statuses[-1] if statuses else (State.PLANNED, None, None, None)
    under_way = state == STARTED
    if under_way:
        state = State.RUNNING if alive else State.INTERRUPTED
    return {
        "state": state,
        "message": message,
        "started_at": next((begun for _, begun, _, _ in statuses if begun is not None), None),
        "finished_at": None if under_way else moment,
        "facts": next((facts for _, _, _, facts in reversed(statuses) if facts is not None), None),
        "steps_done": last_step + 1,
    }


def as_json(value: Any) -> str:
    """JSON text that SQLite's functions accept: a number that is not finite becomes null."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(value), parse_constant=lambda name: None)
        return json.dumps(finite, separators=(",", ":"))
