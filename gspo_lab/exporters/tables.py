"""CSV and Parquet: the rows of all runs in one table, `log.csv`: arm, seed, step and a column per number."""

import csv
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from gspo_lab.exporters.logged import Logged
from gspo_lab.files import whole

KEYS = ("arm", "seed", "step")
ROWS_AT_ONCE = 20_000


def write_log(runs: Sequence[Logged], folder: Path, format: str) -> Path:
    """The file, whole; what was not measured is an empty field, or null."""
    names = list(dict.fromkeys(name for run in runs for _, row in run.rows() for name in row))
    path = folder / f"log.{format}"
    with whole(path) as beside:
        (_csv if format == "csv" else _parquet)(beside, names, _rows(runs, names))
    return path


def _rows(runs: Sequence[Logged], names: Sequence[str]) -> Iterator[list[Any]]:
    for run in runs:
        for step, row in run.rows():
            yield [run.arm, run.seed, step, *map(row.get, names)]


def _csv(path: Path, names: Sequence[str], rows: Iterator[list[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*KEYS, *names])
        writer.writerows(rows)


def _parquet(path: Path, names: Sequence[str], rows: Iterator[list[Any]]) -> None:
    import pyarrow
    import pyarrow.parquet

    types = [pyarrow.string(), pyarrow.int64(), pyarrow.int64(), *[pyarrow.float64()] * len(names)]
    schema = pyarrow.schema(list(zip([*KEYS, *names], types, strict=True)))
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while some := list(islice(rows, ROWS_AT_ONCE)):
            columns = [pyarrow.array(values, kind) for values, kind in zip(zip(*some, strict=True), types, strict=True)]
            writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))
