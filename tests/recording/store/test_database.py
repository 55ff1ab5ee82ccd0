"""The database's shape: fields are columns, and files of another version are refused."""

import sqlite3
from dataclasses import fields
from typing import Any

import pytest
from calling import lab_error
from run_folders import Lab

from gspo_lab.recording.records import RECORDS
from gspo_lab.recording.store import Evidence, database, ingest, rebuild
from gspo_lab.recording.store.database import APPLICATION_ID, writing
from gspo_lab.recording.store.schema import RECORD_TABLES, TABLES, metric_rows


@pytest.fixture
def filled(lab: Lab) -> Lab:
    for run in lab.declare("adding"):
        lab.train(run)
    ingest(lab.runs)
    return lab


def test_a_new_database_has_its_tables_before_it_has_its_name(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader at any moment of its creation finds none, and not an empty one."""
    create = database._create

    def watched(*arguments: Any) -> str:
        with lab_error("no database"):
            database.reading(lab.db)
        return create(*arguments)

    monkeypatch.setattr(database, "_create", watched)
    ingest(lab.runs)
    database.reading(lab.db).close()
    assert not list(lab.runs.glob("*.partial*"))


def test_the_log_of_a_deleted_database_is_not_replayed(filled: Lab) -> None:
    """A killed writer leaves one beside it."""
    with database.writing(filled.db) as connection:
        connection.execute("UPDATE studies SET question = 'of the deleted one'")
        log = filled.db.with_name(f"{filled.db.name}-wal")
        content = log.read_bytes()
    filled.db.unlink()
    log.write_bytes(content)
    with database.writing(filled.db) as connection:
        assert connection.execute("SELECT COUNT(*) FROM studies").fetchone() == (0,)


@pytest.mark.parametrize("kind", sorted(RECORDS))
def test_the_fields_of_a_record_are_the_columns_of_its_table(filled: Lab, kind: str) -> None:
    record = RECORDS[kind]
    columns = {
        name: type for _, name, type, *_ in filled.query(f"PRAGMA table_info({record.table})")
    }
    field_names = {entry.name for entry in fields(record)}
    assert field_names <= set(columns)
    assert set(columns) - field_names == set(RECORD_TABLES[record.table].key) - field_names
    described = {name for table, name, *_ in metric_rows() if table == record.table}
    assert described == field_names


def test_every_table_is_strict_and_lies_as_described(filled: Lab) -> None:
    listed = {
        name: (strict, without)
        for _, name, _, _, without, strict in filled.query("PRAGMA table_list")
    }
    assert {table.name: listed[table.name] for table in TABLES} == {
        t.name: (1, int(t.clustered)) for t in TABLES
    }
    with (
        writing(filled.db) as connection,
        pytest.raises(sqlite3.IntegrityError, match="cannot store TEXT"),
    ):
        connection.execute("INSERT INTO steps (run_id, step) VALUES ('r', 'one')")


def test_the_file_explains_itself(filled: Lab) -> None:
    assert filled.query("PRAGMA application_id") == [(APPLICATION_ID,)]
    assert filled.query("PRAGMA journal_mode") == [("wal",)]
    (schema,) = filled.query("SELECT sql FROM sqlite_schema WHERE name = 'updates'")[0]
    assert "-- the headline: sum m * binds / sum m [share of response tokens]\n" in schema
    meaning = filled.query("SELECT unit, meaning FROM metrics WHERE name = 'clip_fraction_tokens'")
    assert meaning == [("share of response tokens", "the headline: sum m * binds / sum m")]
    assert sorted(
        filled.query("SELECT table_name, name, type, unit, meaning FROM metrics")
    ) == sorted(metric_rows())
    assert filled.query("SELECT COUNT(*) FROM latest_scores") == [(4,)]
    about = dict(filled.query("SELECT key, value FROM about"))
    for statement in about["start here"].rstrip(";").split(";"):
        assert filled.query(statement)


def test_a_database_of_another_version_is_made_again_by_rebuild(
    filled: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = filled.dump()
    monkeypatch.setattr(database, "VERSION", database.VERSION + 1)
    stored = filled.db.read_bytes()
    for refused in (lambda: ingest(filled.runs), lambda: Evidence.open(filled.db)):
        with lab_error(r"another version of gspo-lab: gspo-lab records rebuild"):
            refused()
    assert filled.db.read_bytes() == stored
    assert rebuild(filled.runs).replaced is None
    assert filled.query("PRAGMA user_version") == [(database.VERSION,)]
    assert filled.dump() == content


def test_somebody_elses_database_is_left_alone(lab: Lab) -> None:
    connection = sqlite3.connect(lab.db)
    connection.execute("CREATE TABLE mine (x)")
    connection.commit()
    connection.close()
    for refused in (
        lambda: ingest(lab.runs),
        lambda: Evidence.open(lab.db),
        lambda: rebuild(lab.runs),
    ):
        with lab_error("not gspo-lab's: move it away"):
            refused()
    assert lab.query("SELECT name FROM sqlite_schema") == [("mine",)]
