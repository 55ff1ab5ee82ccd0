"""Records as rows: how a journal's lines change the tables of one run.

Called by `ingest`, inside its transaction.
"""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.common.states import STARTED, State
from gspo_lab.recording.records import RECORDS
from gspo_lab.recording.store.run_files import RecordFile
from gspo_lab.recording.store.schema import RECORD_TABLES, STATUSES, TableSpec, quoted

TABLE_OF = {kind: RECORD_TABLES[record.table] for kind, record in RECORDS.items()}
JSON_OF = {
    table.name: tuple(c.name for c in table.columns if c.json) for table in RECORD_TABLES.values()
}
COUNTED = tuple(name for name, table in RECORD_TABLES.items() if "position" in table.key)
"""Tables whose rows are kept in the order of their journal."""
OF_THE_RUN = ("steps", "updates")
LOGGED = "logged_scores"
FILLS = {
    "run": (*OF_THE_RUN, "answers", LOGGED, "statuses"),
    "evaluation": ("answers", "statuses"),
    "grades": ("grades",),
}
"""The tables that a journal fills, by what it is the journal of."""

AT_ONCE = 1000
"""Rows of a table that are inserted together; no more are held, however long a journal is."""

UNFIT = (
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    KeyError,
    TypeError,
    ValueError,
    RecursionError,
)
"""The errors of inserting a value that does not fit its column."""


def add_records(
    connection: sqlite3.Connection, source: RecordFile, items: Iterable[JsonObject]
) -> None:
    """Add a journal's records in their order; a later record replaces an earlier one with the same
    key.

    `started` at step k voids what the journal held of later moments (`RunStatus`). Kinds this
    version does not know are left out, and so is what a journal of that part has no say in: steps
    and updates in an evaluation's.
    """
    run_id, evaluation, part = source
    positions = {}
    for name in COUNTED:
        query = (
            f"SELECT COALESCE(MAX(position) + 1, 0) FROM {name} WHERE run_id = ? AND evaluation = ?"
        )
        positions[name] = connection.execute(query, (run_id, evaluation)).fetchone()[0]
    identity = {"run_id": run_id, "evaluation": evaluation}
    waiting: dict[str, list[tuple[Any, ...]]] = {name: [] for name in RECORD_TABLES}
    for item in items:
        table = TABLE_OF.get(item.get("kind", ""))
        if table is None or table.name not in FILLS[part]:
            continue
        if table is STATUSES and item.get("state") == STARTED:
            _flush(connection, waiting)
            _void(connection, run_id, evaluation, item["step"])
        if table.name in positions:
            item["position"] = positions[table.name]
            positions[table.name] += 1
        item.update(identity)
        for name in JSON_OF[table.name]:
            if item.get(name) is not None:
                item[name] = as_json(item[name])
        rows = waiting[table.name]
        rows.append(tuple(map(item.get, table.names)))
        if len(rows) == AT_ONCE:
            _flush(connection, {table.name: rows})
    _flush(connection, waiting)


def insert(
    connection: sqlite3.Connection, table: TableSpec, values: Sequence[tuple[Any, ...]]
) -> None:
    """Insert or replace rows whose values stand in the order of the table's description."""
    if not values:
        return
    values_ = ", ".join("?" * len(table.names))
    statement = f"INSERT OR REPLACE INTO {table.name} ({quoted(table.names)}) VALUES ({values_})"
    try:
        connection.executemany(statement, values)
    except (
        UnicodeEncodeError
    ):  # half a surrogate pair in a model's text is no Unicode; '?' takes its place
        connection.executemany(statement, [tuple(map(_encodable, row)) for row in values])


def delete_rows(connection: sqlite3.Connection, source: RecordFile) -> None:
    """Remove every row that came from one journal."""
    for name in FILLS[source.part]:
        allowed = name in (*OF_THE_RUN, LOGGED)
        where, values = ("", ()) if allowed else (" AND evaluation = ?", (source.evaluation,))
        connection.execute(f"DELETE FROM {name} WHERE run_id = ?{where}", (source.run_id, *values))


def write_run_state(connection: sqlite3.Connection, run_id: str, alive: bool) -> None:
    """Write into the table `runs` where the run stands, from its statuses; `alive`: a worker holds
    its lock.
    """
    query = (
        "SELECT state, at, message, facts FROM statuses WHERE run_id = ? AND evaluation = '' ORDER"
        " BY position"
    )
    statuses = connection.execute(query, (run_id,)).fetchall()
    state, moment, message, _ = statuses[-1] if statuses else (State.PLANNED, None, None, None)
    under_way = state == STARTED
    if under_way:
        state = State.RUNNING if alive else State.INTERRUPTED
    connection.execute(
        "UPDATE runs SET state = ?, message = ?, started_at = ?, finished_at = ?, facts = ?,"
        " steps_done = (SELECT COALESCE(MAX(step) + 1, 0) FROM steps WHERE run_id = ?) WHERE"
        " run_id = ?",
        (
            state,
            message,
            next((begun for _, begun, _, _ in statuses if begun is not None), None),
            None if under_way else moment,
            next((facts for _, _, _, facts in reversed(statuses) if facts is not None), None),
            run_id,
            run_id,
        ),
    )


def as_json(value: Any) -> str:
    """JSON text that SQLite's functions accept: a number that is not finite becomes null."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(value), parse_constant=lambda name: None)
        return json.dumps(finite, separators=(",", ":"))


def _void(connection: sqlite3.Connection, run_id: str, evaluation: str, step: int) -> None:
    if not evaluation:
        for name in OF_THE_RUN:
            connection.execute(f"DELETE FROM {name} WHERE run_id = ? AND step >= ?", (run_id, step))
        connection.execute(f"DELETE FROM {LOGGED} WHERE run_id = ? AND step > ?", (run_id, step))
    connection.execute(
        "DELETE FROM answers WHERE run_id = ? AND evaluation = ? AND (step > ? OR (step = ? AND"
        " bench = 'rollout'))",
        (run_id, evaluation, step, step),
    )


def _flush(connection: sqlite3.Connection, waiting: dict[str, list[tuple[Any, ...]]]) -> None:
    for name, values in waiting.items():
        insert(connection, RECORD_TABLES[name], values)
        values.clear()


def _encodable(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
