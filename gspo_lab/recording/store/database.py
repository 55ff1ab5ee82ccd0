"""Opens lab.db for writing or for reading, and says what is wrong with it.

sqlite-utils makes tables, indexes, views and the rows of `metrics` and `about`. `PRAGMA
user_version` holds a digest of that description: a database of another one is refused, because
`gspo-lab records rebuild` makes it again from the journals.
"""

import hashlib
import re
import shutil
import sqlite3
import textwrap
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gspo_lab.common.atomic_files import atomic_file
from gspo_lab.common.errors import MAKE_ROOM, LabError
from gspo_lab.recording.store.schema import (
    ABOUT,
    INDEXES,
    METRICS,
    TABLES,
    VIEWS,
    TableSpec,
    metric_rows,
)

if TYPE_CHECKING:
    from sqlite_utils import Database

APPLICATION_ID = int.from_bytes(b"GSPO", "big")
"""Says to `file` and to us that an SQLite file is ours."""

BUSY_SECONDS = 5.0

LITTLE_ROOM = 1 << 20
"""Bytes; with fewer on the disk an input or output error of SQLite's counts as a full disk."""
DAMAGED = "is damaged; the journals are not: gspo-lab records rebuild"


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection in autocommit mode to a database, which is made if there is none.

    A new one gets its name once it has its tables, so that no reader finds it without them. The log
    of a deleted one goes first: it would be replayed into the new one.
    """
    _need_strict()
    if not path.exists():
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        with explained(path), atomic_file(path) as draft, closing(_connect(draft)) as connection:
            _create_if_empty(connection)
    with (
        explained(path),
        closing(_connect(path)) as connection,
    ):
        _refuse_foreign(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        # Offsets and rows commit together, and the journals can restore both.
        connection.execute("PRAGMA synchronous = NORMAL")
        _create_if_empty(connection)
        if missing := _missing_object(connection):
            raise LabError(
                f"{path} is not whole (no {missing}); the journals are: gspo-lab records rebuild"
            )
        yield connection


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)


@contextmanager
def nowhere() -> Iterator[sqlite3.Connection]:
    """A connection as of `writing` to an empty database that has no name, and of the disk what
    memory does not hold.
    """
    with closing(sqlite3.connect("", isolation_level=None)) as connection:
        _create_if_empty(connection)
        yield connection


def copied(path: Path, to: Path) -> Path:
    """A copy of a database with all that its log holds; the original is not touched."""
    for suffix in ("", "-wal"):
        if (part := path.with_name(path.name + suffix)).is_file():
            shutil.copyfile(part, to.with_name(to.name + suffix))
    with writing(to):
        return to


def reading(path: Path) -> sqlite3.Connection:
    """A connection that cannot write, and sees one moment until it is closed.

    Raises LabError where it cannot open.
    """
    _need_strict()
    if not path.is_file():
        raise LabError(
            f"no database {path}: run a study first, or make it from the run folders: gspo-lab"
            " records rebuild"
        )
    with explained(path):
        connection = _connect_read_only(path)
        try:
            _refuse_foreign(connection, path)
            if _is_empty(connection):
                raise LabError(f"{path} is empty: gspo-lab records rebuild")
            connection.execute("BEGIN")
            connection.execute(
                "SELECT COUNT(*) FROM about"
            ).fetchone()  # the read that fixes the moment
        except BaseException:
            connection.close()
            raise
        return connection


def beyond_reading(path: Path) -> bool:
    """Whether what lies at `path` is damaged, so that only `rebuild` helps. Looks, and changes
    nothing.

    LabError where it is another program's, or cannot be opened.
    """
    with explained(path):
        try:
            with closing(_connect_read_only(path)) as connection:
                _refuse_other_program(connection, path)
                return bool(connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",))
        except UnicodeDecodeError:  # the damage stands in SQLite's own words for it
            return True
        except sqlite3.DatabaseError as error:
            if _primary(error) in (
                sqlite3.SQLITE_BUSY,
                sqlite3.SQLITE_CANTOPEN,
                sqlite3.SQLITE_READONLY,
            ):
                raise
            return True


def _connect_read_only(path: Path) -> sqlite3.Connection:
    uri = path.resolve().as_uri()

    # Another thread may read ahead on it, while its owner waits for that or does something else.
    def connected(mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{uri}?{mode}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )

    connection = connected("mode=ro")
    try:
        connection.execute("PRAGMA application_id").fetchone()
    except sqlite3.DatabaseError as error:
        connection.close()
        log = path.with_name(path.name + "-wal")
        no_room = _primary(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if not no_room or (log.exists() and log.stat().st_size > 0):
            raise
        # A folder we may not write to cannot hold the shared index of WAL; without a log the file
        # is whole as it is.
        return connected("mode=ro&immutable=1")
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """SQLite's errors that a user can fix, as LabError; all others are bugs and pass."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = _primary(error)
        if code == sqlite3.SQLITE_IOERR and shutil.disk_usage(path.parent).free < LITTLE_ROOM:
            code = sqlite3.SQLITE_FULL
        line = {
            sqlite3.SQLITE_CORRUPT: DAMAGED,
            sqlite3.SQLITE_NOTADB: (
                "is damaged (no SQLite database); the journals are not: gspo-lab records rebuild"
            ),
            sqlite3.SQLITE_BUSY: "is held by another program: close that and try again",
            sqlite3.SQLITE_FULL: f"cannot grow: the disk is full; {MAKE_ROOM}",
            sqlite3.SQLITE_READONLY: "cannot be written: check who owns the file and its folder",
            sqlite3.SQLITE_CANTOPEN: (
                "cannot be opened: check that its folder exists and who owns it"
            ),
            sqlite3.SQLITE_IOERR: (
                f"cannot be read or written ({error}): it must lie on a local disk"
            ),
        }.get(code)
        if any(f"no such {thing}" in str(error) for thing in ("table", "view", "column")):
            line = f"is not whole ({error}); the journals are: gspo-lab records rebuild"
        elif any(words in str(error) for words in ("Could not decode to UTF-8", "malformed JSON")):
            line = DAMAGED
        if line is None:
            raise
        raise LabError(f"{path} {line}") from error
    except UnicodeDecodeError as error:  # the damage stands in SQLite's own words for it
        raise LabError(f"{path} {DAMAGED}") from error


def _primary(error: sqlite3.Error) -> int:
    """SQLite's error code without its details."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _need_strict() -> None:
    if sqlite3.sqlite_version_info < (3, 37):
        raise LabError(
            f"this Python carries SQLite {sqlite3.sqlite_version}; 3.37 (2021) or newer is needed"
        )


def _is_empty(connection: sqlite3.Connection) -> bool:
    return not connection.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()[0]


def _refuse_other_program(connection: sqlite3.Connection, path: Path) -> None:
    mark = connection.execute("PRAGMA application_id").fetchone()[0]
    if mark != APPLICATION_ID and not _is_empty(connection):
        raise LabError(f"{path} is an SQLite database, but not gspo-lab's: move it away")


def _refuse_foreign(connection: sqlite3.Connection, path: Path) -> None:
    _refuse_other_program(connection, path)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION and not _is_empty(connection):
        raise LabError(
            f"{path} was made by another version of gspo-lab: gspo-lab records rebuild makes it"
            " again from the journals"
        )


def _create_if_empty(connection: sqlite3.Connection) -> None:
    if not _is_empty(connection):
        return
    from sqlite_utils import Database  # imports pandas where installed: 0.3 s

    database = Database(connection, execute_plugins=False)
    with transaction(connection):
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        for table in TABLES:
            database.execute(_create(database, table))
        for index, (name, columns) in INDEXES.items():
            database.table(name).create_index(columns, index)
        for name, query in VIEWS.items():
            database.create_view(name, query)
        database.table("metrics").insert_all([METRICS.names, *metric_rows()])
        database.table("about").insert_all([ABOUT.names, *ABOUT_ROWS.items()])
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _missing_object(connection: sqlite3.Connection) -> str | None:
    """A table, column, index or view that somebody has taken out of a database."""
    present = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    query = (
        "SELECT entry.name, part.name FROM sqlite_schema AS entry, pragma_table_info(entry.name) AS"
        " part"
    )
    columns = set(connection.execute(query + " WHERE entry.type = 'table'"))
    entries = (*(table.name for table in TABLES), *INDEXES, *VIEWS)
    for name in entries:
        if name not in present:
            return name
    for table in TABLES:
        for column in table.columns:
            if (table.name, column.name) not in columns:
                return f"{table.name}.{column.name}"
    return None


def _create(database: "Database", table: TableSpec) -> str:
    """CREATE TABLE by sqlite-utils, and two things that it has no words for: meanings, and rows in
    their key's order.

    A meaning is a comment above its column.
    """
    sql = database.create_table_sql(
        table.name,
        {column.name: column.type for column in table.columns},
        pk=table.key,
        not_null=[column.name for column in table.columns if column.required],
        strict=True,
    )

    def explained(line: re.Match[str]) -> str:
        column = table.column(line[1])
        unit = "" if column.unit == "-" else f" [{column.unit}]"
        return _comment(column.meaning + unit) + line[0]

    sql = re.sub(r'^ +"(\w+)" ', explained, sql, flags=re.MULTILINE).replace(
        "(\n", f"(\n{_comment(table.meaning)}", 1
    )
    return sql.rstrip(" ;\n") + (", WITHOUT ROWID" if table.clustered else "")


@cache
def _comment(text: str) -> str:
    return (
        "\n".join(textwrap.wrap(text, 110, initial_indent="   -- ", subsequent_indent="   --   "))
        + "\n"
    )


ABOUT_ROWS = {
    "what": (
        "Evidence recorded by gspo-lab: matched training runs that compare objectives such as GRPO"
        " and GSPO."
    ),
    "start here": (
        "SELECT * FROM latest_scores; SELECT * FROM runs; SELECT * FROM metrics WHERE name LIKE"
        " 'clip%';"
    ),
    "made from": (
        "the journals in the run folders beside this file; `gspo-lab records rebuild` makes it"
        " again from them."
    ),
    "not measured": "is NULL, never 0.",
}

VERSION = int(
    hashlib.sha256(repr((TABLES, INDEXES, VIEWS, metric_rows())).encode()).hexdigest()[:7], 16
)
"""Identifies the description of tables, indexes, views and metrics."""
