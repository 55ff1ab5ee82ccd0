"""The evidence as files for other tools: one CSV or Parquet file per table."""

import csv
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from gspo_lab.common.atomic_files import atomic_file
from gspo_lab.common.errors import LabError, require_package
from gspo_lab.common.plain_data import Strings
from gspo_lab.common.registry import unlisted
from gspo_lab.recording.store.database import explained, reading
from gspo_lab.recording.store.schema import (
    EVALUATIONS,
    METRICS,
    RECORD_TABLES,
    RUNS,
    STUDIES,
    SUBJECT_ROWS,
)

Format = Literal["csv", "parquet"]
FORMATS: tuple[Format, ...] = ("csv", "parquet")

OF_A_STUDY = "WHERE study = ?"
OF_ITS_RUNS = "WHERE run_id IN (SELECT run_id FROM runs WHERE study = ?)"
PARTS: dict[str, tuple[str, Strings]] = {
    # table or view: how it is restricted to a study, and what it is sorted by
    "studies": (OF_A_STUDY, STUDIES.key),
    "runs": (OF_A_STUDY, RUNS.key),
    "subjects": (OF_ITS_RUNS, SUBJECT_ROWS.key),
    "evaluations": (OF_ITS_RUNS, EVALUATIONS.key),
    **{table.name: (OF_ITS_RUNS, table.key) for table in RECORD_TABLES.values()},
    "scores": (OF_ITS_RUNS, ("run_id", "evaluation", "bench", "step")),
    "metrics": ("", METRICS.key),
}
VIEW_TYPES = {
    "score": "REAL",
    "problems": "INTEGER",
    "answers": "INTEGER",
    "errors": "INTEGER",
    "truncated": "INTEGER",
}
ROWS_AT_ONCE = 20_000


def export(db: Path, study: str | None, folder: Path, format: Format) -> list[Path]:
    """Write every table, of one study or of all, to `folder`; the paths of the files in the order
    of `PARTS`.

    NULL is an empty CSV field and a Parquet null; JSON columns stay text. A file is complete or
    absent, never partial.
    """
    if format not in FORMATS:
        raise LabError(f"unknown format {unlisted(format, FORMATS)}")
    if format == "parquet":
        require_package("pyarrow", "parquet", "export to Parquet")
    out = []
    with explained(db), closing(reading(db)) as connection:
        if study is not None:
            studies = [
                name
                for (name,) in connection.execute("SELECT DISTINCT study FROM runs ORDER BY study")
            ]
            if study not in studies:
                raise LabError(f"{db}: no study {unlisted(study, studies, 'it has')}")
        folder.mkdir(parents=True, exist_ok=True)
        for name, (restriction, order) in PARTS.items():
            where, values = (
                (restriction, (study,)) if study is not None and restriction else ("", ())
            )
            cursor = connection.execute(
                f"SELECT * FROM {name} {where} ORDER BY {', '.join(order)}", values
            )
            path = folder / f"{name}.{format}"
            write_table(path, _types(connection, name), cursor)
            out.append(path)
    return out


def _types(connection: sqlite3.Connection, name: str) -> dict[str, str]:
    """Column -> SQLite type, in order; a view's computed columns have none of their own."""
    entries = connection.execute(f"PRAGMA table_info({name})").fetchall()
    return {column: type or VIEW_TYPES[column] for _, column, type, *_ in entries}


def write_table(path: Path, types: Mapping[str, str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows as CSV or Parquet, by the path's suffix: a file that is whole or absent.

    `types`: column -> SQLite type.
    """
    with atomic_file(path) as temporary:
        (_write_csv if path.suffix == ".csv" else _write_parquet)(temporary, types, rows)


def _write_csv(path: Path, types: Mapping[str, str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(types)
        writer.writerows(rows)


def _write_parquet(path: Path, types: Mapping[str, str], rows: Iterable[Sequence[Any]]) -> None:
    import pyarrow
    import pyarrow.parquet

    arrow = {"INTEGER": pyarrow.int64(), "REAL": pyarrow.float64(), "TEXT": pyarrow.string()}
    schema = pyarrow.schema([(column, arrow[type]) for column, type in types.items()])
    remaining_rows = iter(rows)
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while some := list(islice(remaining_rows, ROWS_AT_ONCE)):
            by_column = zip(*some, strict=True)
            columns = [
                pyarrow.array(values, field.type)
                for values, field in zip(by_column, schema, strict=True)
            ]
            writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))
