"""trackio: a project's SQLite file. A call of `log` is a row, `run_name`, `step` and a JSON object of metrics."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.importers.log import Log, Wish, a_file, numbers, rising, whole_number
from gspo_lab.importers.spool import Spool


def runs(path: Path, wish: Wish) -> list[str]:
    """The names of the project's runs."""
    with _open(path) as database:
        query = "SELECT run_name FROM metrics GROUP BY run_name ORDER BY MIN(rowid)"
        found = [str(name) for (name,) in database.execute(query)]
    if not found:
        raise LabError(f"{path}: trackio logged nothing into it; nothing to import")
    return found


def read(path: Path, run: str, wish: Wish) -> Log:
    """One run of the project. LabError where two have its name."""
    where, notes = f"{path}, run {run}", list[str]()
    spool = Spool(where, notes)
    with _open(path) as database:
        known = {name for _, name, *_ in database.execute("PRAGMA table_info(metrics)")}
        if "run_id" in known:
            query = "SELECT run_id FROM metrics WHERE run_name = ? GROUP BY run_id ORDER BY MIN(rowid)"
            ids = [found for (found,) in database.execute(query, (run,))]
            if len(ids) > 1:
                raise LabError(f"{path}: {len(ids)} runs in it are named '{run}'; rename or delete all but one")
        for step, text in database.execute(
            "SELECT step, metrics FROM metrics WHERE run_name = ? ORDER BY rowid", (run,)
        ):
            at = whole_number(step, where)
            for name, value in numbers(_object(text)).items():
                spool.add(name, at, value)
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema")}
        config: dict[str, Any] = {}
        if "configs" in tables:
            for (text,) in database.execute("SELECT config FROM configs WHERE run_name = ?", (run,)):
                config |= {key: value for key, value in _object(text).items() if not key.startswith("_")}
    return Log(wish.program or "trackio", rising(spool.rows(), where), (path,), None, config, notes)


def _object(text: Any) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    """The file, read-only. LabError where it is none of trackio's."""
    a_file(path, "trackio's PROJECT.db")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            yield database
    except sqlite3.Error as error:
        raise LabError(f"{path}: no database of trackio ({error})") from error
