"""JSON Lines, CSV and Parquet of any program: a row a step (wide), or a row a number (long: step, metric, value).

Columns `arm` and `seed`, or `run`, part a file into runs. Rows are read one by one, however long the file is; the
numbers of a long table wait in a temporary database until all are there.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import IO, Any

from gspo_lab.errors import LabError, MissingExtra
from gspo_lab.importers.log import Log, Row, Wish, a_file, logged, numbers, rising, whole_number
from gspo_lab.importers.spool import Spool
from gspo_lab.study.dotted import flat

STEPS = ("_step", "global_step", "Step", "iteration", "train/global_step", "trainer/global_step")
"""How a step's column is called where nobody says."""
METRIC, VALUE = "metric", "value"
LONGEST = 1 << 24
"""Characters of one line: what is longer is no log."""

Entry = tuple[str, Mapping[str, Any]]
"""Where an entry stands, for people, and the entry."""


def runs(path: Path, wish: Wish) -> list[str]:
    """`arm/s<seed>` of columns arm and seed, the values of a column run, else `[""]`."""
    found: dict[str, None] = {}
    for where, entry in entries(path):
        found.setdefault(run_of(unnested(entry, where), wish, where))
    if not found:
        raise LabError(f"{path}: it holds no row; nothing to import")
    return list(found)


def read(path: Path, run: str, wish: Wish) -> Log:
    """One run of the file."""
    program = wish.program or path.suffix.lstrip(".").replace("jsonl", "json") or "a table"
    notes: list[str] = []
    return Log(program, rows_of(path, run, wish, notes), (a_file(path, "a table"),), notes=notes)


def rows_of(path: Path, run: str, wish: Wish, notes: list[str]) -> Iterator[Row]:
    """The rows of one run of the file."""
    every_row = ((where, unnested(entry, where)) for where, entry in entries(path))
    own = ((where, entry) for where, entry in every_row if run_of(entry, wish, where) == run)
    first = next(own, None)
    if first is None:
        raise LabError(f"{path}: it holds no row of {run or 'a run'}; nothing to import")
    long = METRIC in first[1] and VALUE in first[1]
    every = chain([first], own)
    yield from rising(_long(every, wish, Spool(str(path), notes)) if long else _wide(every, wish), str(path))


def _wide(entries: Iterable[Entry], wish: Wish) -> Iterator[Row]:
    keys = {name for key in ("arm", "seed", "run") for name in wish.named(key)} | {*wish.named("step", *STEPS)}
    for where, entry in entries:
        yield _step(entry, wish, where), numbers(entry, keys)


def _long(entries: Iterable[Entry], wish: Wish, spool: Spool) -> Iterator[Row]:
    for where, entry in entries:
        if METRIC not in entry or VALUE not in entry:
            raise LabError(f"{where}: it has no '{METRIC}' and '{VALUE}', as the first row has")
        if (value := logged(entry[VALUE])) is not None:
            spool.add(str(entry[METRIC]), _step(entry, wish, where), value)
    return spool.rows()


def entries(path: Path) -> Iterator[Entry]:
    """The objects of a JSON Lines file, or the rows of a CSV or a Parquet file. LabError where it is none."""
    a_file(path, "JSON Lines, CSV or Parquet")
    reader = {".csv": _csv, ".tsv": _csv, ".parquet": _parquet}.get(path.suffix.lower(), _json_lines)
    try:
        yield from reader(path)
    except UnicodeDecodeError as error:
        raise LabError(f"{path}: it is no UTF-8 text ({error.reason} at byte {error.start})") from error


def unnested(entry: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The entry with the keys of nested objects as dotted ones, `data.reward`. LabError where two become one."""
    if not any(isinstance(value, dict) for value in entry.values()):
        return entry
    out: dict[str, Any] = {}
    for key, value in entry.items():
        parts = flat(value, key) if isinstance(value, dict) else {key: value}
        if twice := out.keys() & parts.keys():
            raise LabError(f"{where}: {min(twice)} is there twice, nested and with a dot; rename one of them")
        out |= parts
    return out


def _json_lines(path: Path) -> Iterator[Entry]:
    with path.open(encoding="utf-8-sig") as file:
        place = 0
        while line := file.readline(LONGEST):
            place += 1
            where = f"{path}, line {place}"
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError) as error:
                if not line.endswith("\n") and len(line) < LONGEST:
                    return  # the last line of a program that was killed, or that is still writing
                raise LabError(f"{where}: no JSON object; JSON Lines have one a line") from error
            if not isinstance(entry, dict):
                raise LabError(f"{where}: {type(entry).__name__}, no JSON object")
            yield where, entry


def _csv(path: Path) -> Iterator[Entry]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(_lines(file, path), delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        try:
            if len(set(reader.fieldnames or ())) != len(reader.fieldnames or ()):
                raise LabError(f"{path}: two of its columns have one name")
            for entry in reader:
                where = f"{path}, line {reader.line_num}"
                if None in entry:
                    raise LabError(f"{where}: it has more fields than the header")
                yield where, entry
        except csv.Error as error:
            raise LabError(f"{path}, line {reader.line_num}: no CSV ({error})") from error


def _lines(file: IO[str], path: Path) -> Iterator[str]:
    while line := file.readline(LONGEST):
        if len(line) == LONGEST:
            raise LabError(f"{path}: a line of {LONGEST >> 20} million characters and more; no CSV of a log has one")
        yield line


def _parquet(path: Path) -> Iterator[Entry]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ModuleNotFoundError as error:
        raise MissingExtra("pyarrow", "parquet", f"reading {path}") from error
    try:
        with ParquetFile(path) as file:
            rows = (row for batch in file.iter_batches(1000) for row in batch.to_pylist())
            yield from ((f"{path}, row {place}", row) for place, row in enumerate(rows, 1))
    except ArrowException as error:
        raise LabError(f"{path}: no Parquet file ({str(error).partition(chr(10))[0]})") from error


def run_of(entry: Mapping[str, Any], wish: Wish, where: str) -> str:
    """The name of the run that a row is of."""
    arm, seed, run = (_first(entry, wish.named(key)) for key in ("arm", "seed", "run"))
    if arm is not None and seed is not None:
        return f"{arm}/s{whole_number(seed, where, 'seed')}"
    return "" if run is None else str(run)


def _first(entry: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((entry[name] for name in names if name in entry and entry[name] not in (None, "")), None)


def _step(entry: Mapping[str, Any], wish: Wish, where: str) -> int:
    """The row's step; a file without any has one row a run, its end."""
    names = wish.named("step", *STEPS)
    found = _first(entry, names)
    if found is None and (wish.map.get("step") or any(name in entry for name in names)):
        raise LabError(f"{where}: it has no step (looked for {', '.join(names)}); name its column: --map step=NAME")
    return 1 if found is None else whole_number(found, where)
