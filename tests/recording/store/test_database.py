"""The database's shape: fields are columns, older files are brought up to date without loss, newer
ones are refused.
"""

import sqlite3
from contextlib import closing
from dataclasses import fields
from pathlib import Path

import pytest
from run_folders import Lab
from sqlite_utils import Database

from gspo_lab.common.errors import LabError
from gspo_lab.recording.records import RECORDS, StepRecord
from gspo_lab.recording.store import Evidence, database, ingest, rebuild
from gspo_lab.recording.store.database import APPLICATION_ID, writing
from gspo_lab.recording.store.schema import RECORD_TABLES, TABLES, metric_rows


@pytest.fixture
def filled(lab: Lab) -> Lab:
    for run in lab.declare("adding"):
        lab.train(run)
    ingest(lab.runs)
    return lab


@pytest.mark.parametrize("kind", sorted(RECORDS))
def test_the_fields_of_a_record_are_the_columns_of_its_table(filled: Lab, kind: str) -> None:
    record = RECORDS[kind]
    columns = {
        name: type for _, name, type, *_ in filled.query(f"PRAGMA table_info({record.table})")
    }
    own = {entry.name for entry in fields(record)}
    assert own <= set(columns)
    assert set(columns) - own == set(RECORD_TABLES[record.table].key) - own
    described = {name for table, name, *_ in metric_rows() if table == record.table}
    assert described == own


def test_sqlite_utils_knows_the_tables_as_described(filled: Lab) -> None:
    with closing(sqlite3.connect(filled.db)) as connection:
        found = Database(connection)
        assert set(found.table_names()) == {table.name for table in TABLES}
        assert set(found.view_names()) == {
            "latest_grades",
            "scores",
            "reward_scores",
            "latest_scores",
        }
        for table in TABLES:
            known = found.table(table.name)
            assert tuple(known.pks) == table.key
            described = [
                (column.name, column.type, int(column.required)) for column in table.columns
            ]
            assert [
                (column.name, column.type, column.notnull) for column in known.columns
            ] == described
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


def test_an_older_shape_gains_its_columns_and_loses_nothing(filled: Lab) -> None:
    whole = filled.dump()
    with writing(filled.db) as connection:
        for table, column in (
            ("steps", "entropy"),
            ("updates", "band_counts"),
            ("answers", "advantage"),
        ):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute("DROP VIEW latest_scores")
        connection.execute("DROP INDEX answers_scored")
        connection.execute("DROP TABLE metrics")
        connection.execute("UPDATE about SET value = 'another' WHERE key = 'schema'")
    assert ingest(filled.runs).changed == ()
    for described in RECORD_TABLES.values():
        present = {name for _, name, *_ in filled.query(f"PRAGMA table_info({described.name})")}
        assert present == set(described.names)
    assert filled.query(
        "SELECT COUNT(*) FROM steps WHERE entropy IS NULL AND reward_mean IS NOT NULL"
    ) == [(16,)]
    assert filled.query("SELECT COUNT(*) FROM metrics") == [(len(metric_rows()),)]
    rows = [line for line in filled.dump() if line.startswith('INSERT INTO "runs"')]
    assert rows == [line for line in whole if line.startswith('INSERT INTO "runs"')]
    assert filled.query("PRAGMA integrity_check") == [("ok",)]
    # A column added later still takes what is recorded.
    filled.write("adding/grpo/s0", StepRecord(step=9, prompts=1, responses=2, entropy=1.5))
    ingest(filled.runs)
    assert filled.query("SELECT step, entropy FROM steps WHERE entropy IS NOT NULL") == [(9, 1.5)]


def test_every_table_can_be_extended_where_its_last_column_stands(tmp_path: Path) -> None:
    """ALTER TABLE writes into the text of CREATE TABLE: the comments in there must not swallow what
    it adds.
    """
    with writing(tmp_path / "lab.db") as connection:
        for table in TABLES:
            connection.execute(f'ALTER TABLE "{table.name}" ADD COLUMN "later" REAL')
    with writing(tmp_path / "lab.db") as connection:
        for table in TABLES:
            names = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table.name})")]
            assert names == [*table.names, "later"]


def test_numbered_migrations_run_once_and_in_order(
    filled: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shout(database: Database) -> None:
        database.execute("UPDATE runs SET message = COALESCE(message, '') || '!'")

    monkeypatch.setattr(database, "MIGRATIONS", (*database.MIGRATIONS, shout))
    with pytest.raises(LabError, match="older gspo-lab"):
        Evidence.open(filled.db)
    for _ in range(2):
        ingest(filled.runs)
        assert filled.query("PRAGMA user_version") == [(2,)]
        assert filled.query("SELECT DISTINCT message FROM runs") == [("!",)]
    monkeypatch.undo()
    kept = filled.db.read_bytes()
    for refused in (
        lambda: ingest(filled.runs),
        lambda: Evidence.open(filled.db),
        lambda: rebuild(filled.runs),
    ):
        with pytest.raises(
            LabError, match=r"newer gspo-lab \(database version 2, this one knows 1\)"
        ):
            refused()
    assert filled.db.read_bytes() == kept


def test_a_migration_that_fails_changes_nothing(
    filled: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(database: Database) -> None:
        database.table("steps").delete_where()
        raise RuntimeError("no")

    whole = filled.dump()
    monkeypatch.setattr(database, "MIGRATIONS", (*database.MIGRATIONS, fail))
    with pytest.raises(RuntimeError):
        ingest(filled.runs)
    assert filled.dump() == whole


def test_a_migration_is_written_with_sqlite_utils(
    filled: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table transformed keeps its rows and what explains it; a column that the description lacks
    stays.
    """

    def widen(database: Database) -> None:
        database.table("answers").transform(rename={"reason": "why"}, defaults={"truncated": 0})

    monkeypatch.setattr(database, "MIGRATIONS", (*database.MIGRATIONS, widen))
    before = filled.query("SELECT text, correct FROM answers ORDER BY 1, 2")
    ingest(filled.runs)
    assert filled.query("SELECT text, correct FROM answers ORDER BY 1, 2") == before
    with closing(sqlite3.connect(filled.db)) as connection:
        table = Database(connection).table("answers")
        assert (
            "-- 1 if the answer counts as correct; NULL if the grader failed [0 or 1]\n"
            in table.schema
        )
        assert table.strict
        assert table.default_values == {"truncated": 0}
        assert {"why", "reason"} <= set(table.columns_dict), "renamed, and added again as described"
        assert [index.name for index in table.indexes if index.origin == "c"] == ["answers_scored"]


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
        with pytest.raises(LabError, match="not gspo-lab's: move it away"):
            refused()
    assert lab.query("SELECT name FROM sqlite_schema") == [("mine",)]
