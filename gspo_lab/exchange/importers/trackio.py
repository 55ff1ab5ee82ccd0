"""trackio's logs: one SQLite file a project, with one row per `log` call.

A row has `run_name`, `step` and a JSON object of metrics."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.exchange.importers.base import (
    Log,
    LoggedRow,
    RunSpec,
    check_file,
    json_value,
    parse_int,
)


def runs(path: Path, spec: RunSpec) -> list[str]:
    """The names of the project's runs."""
    with _open(path) as database:
        query = "SELECT run_name FROM metrics GROUP BY run_name ORDER BY MIN(rowid)"
        names = [str(name) for (name,) in database.execute(query)]
    if not names:
        raise LabError(f"{path}: trackio logged nothing into it; nothing to import")
    return names


def read(path: Path, run: str, spec: RunSpec) -> Log:
    """One run of the project."""
    with _open(path) as database:
        config = _config(database, run)
    return Log("trackio", _rows(path, run), (path,), settings=config)


def _config(database: sqlite3.Connection, run: str) -> JsonObject:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema")}
    config: JsonObject = {}
    if "configs" in tables:
        query = "SELECT config FROM configs WHERE run_name = ?"
        for (text,) in database.execute(query, (run,)):
            config |= _json_object(text)
    return {key: value for key, value in config.items() if not key.startswith("_")}


def _rows(path: Path, run: str) -> Iterator[LoggedRow]:
    with _open(path) as database:
        query = "SELECT step, metrics FROM metrics WHERE run_name = ? ORDER BY rowid"
        for step, text in database.execute(query, (run,)):
            yield parse_int(step, f"{path}, run {run}"), _json_object(text)


def _json_object(text: Any) -> JsonObject:
    content = json_value(text)
    return content if isinstance(content, dict) else {}


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file read-only. LabError if it is not a database."""
    check_file(path, "trackio's PROJECT.db")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            yield database
    except sqlite3.Error as error:
        raise LabError(f"{path}: not a database of trackio ({error})") from error
