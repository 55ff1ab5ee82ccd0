"""JSON Lines, CSV and Parquet of any program: a row per step (wide), or per number (long: step,
metric, value).

Columns `arm` and `seed`, or `run`, split a file into runs. Rows are read one by one, so that a file
may be large; a temporary database sorts the numbers of a long table.

The source "items" has a row per answer: the columns `problem` and `correct`; `bench`, `sample` and
`step` are optional. Its rows become answers to a benchmark, which give its score and allow
intervals over seeds and problems.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import IO, Any

from gspo_lab.common.errors import LabError, require_package
from gspo_lab.exchange.importers.base import (
    Log,
    LoggedAnswer,
    LoggedRow,
    MetricBuffer,
    RunSpec,
    check_file,
    merge_rows,
    numbers,
    parse_finite,
    parse_int,
    parse_number,
)
from gspo_lab.study.dotted_keys import flat

STEPS = ("_step", "global_step", "Step", "iteration", "train/global_step", "trainer/global_step")
"""Usual names of the step's column."""
METRIC = "metric"
VALUE = "value"
ITEMS = "items"
CORRECT = {"true": 1, "yes": 1, "false": 0, "no": 0}
LONGEST = 1 << 24
"""Longest line of a log, in characters."""

Entry = tuple[str, Mapping[str, Any]]
"""The position of an entry as text, and the entry."""


def runs(path: Path, spec: RunSpec) -> list[str]:
    """`arm/s<seed>` of columns arm and seed, the values of a column run, else `[""]`."""
    names = dict.fromkeys(
        run_of(unnested(entry, where), spec, where) for where, entry in entries(path)
    )
    if not names:
        raise LabError(f"{path}: it holds no row; nothing to import")
    return list(names)


def read(path: Path, run: str, spec: RunSpec) -> Log:
    """One run of the file."""
    if spec.source == ITEMS:
        files = (check_file(path, "item results"),)
        return Log(spec.program or ITEMS, (), files, answers=_answers(path, run, spec))
    program = spec.program or path.suffix.lstrip(".").replace("jsonl", "json") or "a table"
    notes: list[str] = []
    return Log(
        program, rows_of(path, run, spec, notes), (check_file(path, "a table"),), notes=notes
    )


def rows_of(path: Path, run: str, spec: RunSpec, notes: list[str]) -> Iterator[LoggedRow]:
    """The rows of one run of the file."""
    plain = ((where, unnested(entry, where)) for where, entry in entries(path))
    rows: Iterator[Entry] = (
        (where, entry) for where, entry in plain if run_of(entry, spec, where) == run
    )
    first = next(rows, None)
    if first is None:
        raise LabError(f"{path}: it holds no row of {run or 'a run'}; nothing to import")
    long = METRIC in first[1] and VALUE in first[1]
    rows = chain([first], rows)
    yield from merge_rows(
        _long(rows, spec, MetricBuffer(str(path), notes)) if long else _wide(rows, spec), str(path)
    )


def _wide(entries: Iterable[Entry], spec: RunSpec) -> Iterator[LoggedRow]:
    keys = {name for key in ("arm", "seed", "run") for name in spec.named(key)} | {
        *spec.named("step", *STEPS)
    }
    for where, entry in entries:
        yield _step(entry, spec, where), numbers(entry, keys)


def _long(entries: Iterable[Entry], spec: RunSpec, buffer: MetricBuffer) -> Iterator[LoggedRow]:
    for where, entry in entries:
        if METRIC not in entry or VALUE not in entry:
            raise LabError(f"{where}: it has no '{METRIC}' and '{VALUE}', as the first row has")
        if (value := parse_number(entry[VALUE])) is not None:
            buffer.add(str(entry[METRIC]), _step(entry, spec, where), value)
    return buffer.rows()


def _answers(path: Path, run: str, spec: RunSpec) -> Iterator[LoggedAnswer]:
    keys: set[tuple[Any, ...]] = set()
    for where, nested in entries(path):
        entry = unnested(nested, where)
        if run_of(entry, spec, where) != run:
            continue
        problem = next(
            (entry[name] for name in spec.named("problem") if entry.get(name) not in (None, "")),
            None,
        )
        correct = next(
            (entry[name] for name in spec.named("correct") if entry.get(name) not in (None, "")),
            None,
        )
        sample = next(
            (entry[name] for name in spec.named("sample") if entry.get(name) not in (None, "")),
            None,
        )
        step = next(
            (entry[name] for name in spec.named("step") if entry.get(name) not in (None, "")), None
        )
        bench = next(
            (entry[name] for name in spec.named("bench") if entry.get(name) not in (None, "")), None
        )
        if problem is None or correct is None:
            raise LabError(
                f"{where}: it has no 'problem' and 'correct'; name their columns: --map"
                " correct=NAME"
            )
        grade = CORRECT.get(str(correct).lower(), parse_finite(correct))
        if grade not in (0, 1):
            raise LabError(f"{where}: correct is {correct!r}, not 0 or 1")
        answer = LoggedAnswer(
            str(problem),
            int(grade),
            0 if sample is None else parse_int(sample, where, "sample"),
            None if step is None else parse_int(step, where),
            None if bench is None else str(bench),
        )
        key = (answer.bench, answer.step, answer.problem, answer.sample)
        if key in keys:
            raise LabError(
                f"{where}: problem {problem!r}, sample {answer.sample} is there twice; number"
                " samples"
            )
        keys.add(key)
        yield answer
    if not keys:
        raise LabError(f"{path}: it holds no row; nothing to import")


def entries(path: Path) -> Iterator[Entry]:
    """The objects of a JSON Lines file, or the rows of a CSV or Parquet file.

    LabError for another file.
    """
    check_file(path, "JSON Lines, CSV or Parquet")
    reader = {".csv": _csv, ".tsv": _csv, ".parquet": _parquet}.get(
        path.suffix.lower(), _json_lines
    )
    try:
        yield from reader(path)
    except UnicodeDecodeError as error:
        raise LabError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error


def unnested(entry: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The entry with nested objects as dotted keys, `data.reward`.

    LabError if two keys become equal.
    """
    if not any(isinstance(value, dict) for value in entry.values()):
        return entry
    out: dict[str, Any] = {}
    for key, value in entry.items():
        parts = flat(value, key) if isinstance(value, dict) else {key: value}
        if twice := out.keys() & parts.keys():
            raise LabError(
                f"{where}: {min(twice)} is there twice, nested and with a dot; rename one of them"
            )
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
                    return  # the program was killed, or is still writing its last line
                raise LabError(f"{where}: no JSON object; JSON Lines have one a line") from error
            if not isinstance(entry, dict):
                raise LabError(f"{where}: {type(entry).__name__}, no JSON object")
            yield where, entry


def _csv(path: Path) -> Iterator[Entry]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(
            _lines(file, path), delimiter="\t" if path.suffix.lower() == ".tsv" else ","
        )
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
            raise LabError(
                f"{path}: a line of {LONGEST >> 20} million characters and more; no CSV of a log"
                " has one"
            )
        yield line


def _parquet(path: Path) -> Iterator[Entry]:
    require_package("pyarrow", "parquet", f"reading {path}")
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            rows = (row for batch in file.iter_batches(1000) for row in batch.to_pylist())
            yield from ((f"{path}, row {place}", row) for place, row in enumerate(rows, 1))
    except ArrowException as error:
        raise LabError(f"{path}: no Parquet file ({str(error).partition(chr(10))[0]})") from error


def run_of(entry: Mapping[str, Any], spec: RunSpec, where: str) -> str:
    """The name of the run that a row belongs to."""
    arm = _first(entry, spec.named("arm"))
    seed = _first(entry, spec.named("seed"))
    run = _first(entry, spec.named("run"))
    if arm is not None and seed is not None:
        return f"{arm}/s{parse_int(seed, where, 'seed')}"
    return "" if run is None else str(run)


def _first(entry: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next(
        (entry[name] for name in names if name in entry and entry[name] not in (None, "")), None
    )


def _step(entry: Mapping[str, Any], spec: RunSpec, where: str) -> int:
    """The row's step. A file without steps has one row per run, at its end: step 1."""
    names = spec.named("step", *STEPS)
    step = _first(entry, names)
    if step is None and (spec.map.get("step") or any(name in entry for name in names)):
        raise LabError(
            f"{where}: it has no step (looked for {', '.join(names)}); name its column: --map"
            " step=NAME"
        )
    return 1 if step is None else parse_int(step, where)
