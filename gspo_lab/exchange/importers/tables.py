"""JSON Lines, CSV and Parquet of any program: a row per step (wide), or per number (long: step,
metric, value).

Columns `arm` and `seed`, or `run`, split a file into runs. Rows are read one by one, so that a file
may be large.

The source "items" has a row per answer: the columns `problem` and `correct`; `bench`, `sample` and
`step` are optional. Its rows become answers to a benchmark, which give its score and allow
intervals over seeds and problems.
"""

import csv
import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any

from gspo_lab.common.errors import LabError, require_package
from gspo_lab.common.plain_data import JsonMapping, JsonObject, OptionalText
from gspo_lab.common.text import first_few
from gspo_lab.exchange.importers.base import (
    AT_END,
    Log,
    LoggedRow,
    RunSpec,
    check_file,
    encoding_of,
    first_entry,
    parse_int,
    parse_number,
    planned_steps,
    step_of,
)
from gspo_lab.recording.records import AnswerRecord
from gspo_lab.study.dotted_keys import flat

METRIC = "metric"
VALUE = "value"
ITEMS = "items"
CORRECT = {"true": 1, "yes": 1, "false": 0, "no": 0}
LONGEST = 1 << 24
"""Longest line of a log, in characters."""
MOST_COLUMNS = 5_000
UNNAMED = ("_", "Unnamed: ")
"""Beginnings of columns that are no metrics: W&B's own, and the index that pandas writes."""
DELIMITERS = (",", ";", "\t", "|")
THOUSANDS = re.compile(r"\.(?=\d{3}(?!\d))")
NUMBER = re.compile(
    r"\s*(?:(?P<unsure>-?[1-9]\d{0,2}[.,]\d{3})"
    r"|(?P<comma>-?[\d.]+,\d+(?:[eE][+-]?\d+)?|-?[1-9]\d{0,2}(?:\.\d{3}){2,})"
    r"|(?P<point>-?\d*\.\d+(?:[eE][+-]?\d+)?))\s*"
)
"""A number by its mark: one that may part thousands or be decimal, a decimal comma (or points that
part thousands), a decimal point.
"""

Entry = tuple[str, JsonMapping]
"""The position of an entry as text, and the entry."""


def runs(path: Path, spec: RunSpec) -> list[str]:
    """`arm/s<seed>` of columns arm and seed, the values of a column run, else `[""]`."""
    names = dict.fromkeys(
        run_of(unnested(entry, where), spec, where) for where, entry in entries(path)
    )
    if not names:
        raise LabError(f"{path}: it holds no row; nothing to import")
    return list(names)


def column_names(path: Path) -> list[str]:
    """The names in the first row."""
    where, entry = next(entries(path), ("", {}))
    return list(unnested(entry, where))


def read(path: Path, run: str, spec: RunSpec) -> Log:
    """One run of the file."""
    files = (check_file(path, "item results or a table"),)
    if spec.source == ITEMS:
        return Log(ITEMS, (), files, answers=_answers(path, run, spec))
    suffix = path.suffix.lstrip(".").replace("jsonl", "json")
    log = Log(suffix or "a table", (), files)
    if suffix.lower() in ("csv", "tsv") and (marks := _marks(path)).keys() == {"unsure"}:
        log.notes.append(
            f"{marks['unsure']} is read as a decimal, not as thousands: no number of the table"
            " tells which; write one with another number of decimals"
        )
    log.rows = _rows(path, run, spec, log)
    return log


def _entries_of(path: Path, run: str, spec: RunSpec) -> Iterator[Entry]:
    """The entries of one run, nested objects as dotted keys."""
    for where, nested in entries(path):
        entry = unnested(nested, where)
        if run_of(entry, spec, where) == run:
            yield where, entry


def _rows(path: Path, run: str, spec: RunSpec, log: Log) -> Iterator[LoggedRow]:
    """The rows of one run. A file without steps has one row a run, at its end: step 1."""
    run_entries = _entries_of(path, run, spec)
    head = next(run_entries, None)
    if head is None:
        raise LabError(f"{path}: it holds no row of {run or 'a run'}; nothing to import")
    long = METRIC in head[1] and VALUE in head[1]
    step_names = spec.step_names()
    keys = {*spec.names_of("arm"), *spec.names_of("seed"), *spec.names_of("run"), *step_names, ""}
    rows_without_step = 0
    for where, entry in chain([head], run_entries):
        name, value = step_of(entry, step_names, log)
        if name and value is None:
            log.rows_by_calls += 1
            continue
        if not name:
            rows_without_step += not long
            _check_step(entry, spec, where, rows_without_step)
        log.planned = planned_steps(value) or log.planned
        step = parse_int(value, where) if name else 1
        if long:
            if not {METRIC, VALUE} <= entry.keys():
                raise LabError(f"{where}: it has no '{METRIC}' and '{VALUE}', as the first row has")
            yield step, {str(entry[METRIC]): entry[VALUE]}
        else:
            names = [key for key in entry if key not in keys and not key.startswith(UNNAMED)]
            yield step, {name: entry[name] for name in names}


def _check_step(entry: JsonMapping, spec: RunSpec, where: str, count: int) -> None:
    """LabError where a row needs a step: its file has a column of steps, or its run another row
    without a step.
    """
    names = spec.step_names()
    if count < 2 and "step" not in spec.map and entry.keys().isdisjoint(names):
        return
    raise LabError(
        f"{where}: it has no step (looked for {', '.join(names)}); name its column: --map"
        f" step=NAME; it has {first_few(entry, 12)}"
    )


def _answers(path: Path, run: str, spec: RunSpec) -> Iterator[AnswerRecord]:
    keys: set[tuple[Any, ...]] = set()
    for where, entry in _entries_of(path, run, spec):
        answer = _answer(entry, spec, where)
        key = (answer.bench, answer.step, answer.problem, answer.sample)
        if key in keys:
            raise LabError(
                f"{where}: problem {answer.problem!r}, sample {answer.sample} is there twice;"
                " number samples"
            )
        keys.add(key)
        yield answer
    if not keys:
        raise LabError(f"{path}: it holds no row; nothing to import")


def _answer(entry: JsonMapping, spec: RunSpec, where: str) -> AnswerRecord:
    value = partial(_value, entry, spec)
    problem = value("problem")
    correct = value("correct")
    if problem is None or correct is None:
        raise LabError(
            f"{where}: it has no 'problem' and 'correct'; name their columns: --map correct=NAME;"
            f" it has {first_few(entry, 12)}"
        )
    grade = CORRECT.get(str(correct).lower(), parse_number(correct))
    if grade not in (0, 1):
        raise LabError(f"{where}: correct is {correct!r}, not 0 or 1")
    sample = value("sample")
    step = value("step")
    bench = value("bench")
    return AnswerRecord(
        step=AT_END if step is None else parse_int(step, where),
        bench=str(bench or ""),
        problem=str(problem),
        sample=parse_int(sample or 0, where, "sample"),
        correct=int(grade),
    )


def entries(path: Path) -> Iterator[Entry]:
    """The objects of JSON Lines or of a JSON list, or the rows of a CSV or Parquet file.

    LabError for another file.
    """
    check_file(path, "JSON Lines, CSV or Parquet")
    reader = {".csv": _csv, ".tsv": _csv, ".parquet": _parquet}.get(
        path.suffix.lower(), _json_lines
    )
    try:
        yield from reader(path)
    except UnicodeDecodeError as error:
        raise LabError(
            f"{path}: not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8"
        ) from error


def unnested(entry: JsonMapping, where: str) -> JsonMapping:
    """The entry with nested objects as dotted keys, `data.reward`.

    LabError if two keys become equal.
    """
    if not any(isinstance(value, dict) for value in entry.values()):
        return entry
    dotted: JsonObject = {}
    for key, value in entry.items():
        entries_below = flat(value, key) if isinstance(value, dict) else {key: value}
        if twice := dotted.keys() & entries_below.keys():
            raise LabError(
                f"{where}: {min(twice)} is there twice, nested and with a dot; rename one of them"
            )
        dotted |= entries_below
    return dotted


def _json_lines(path: Path) -> Iterator[Entry]:
    """The object of each line, or those of a list, as json.dump writes a history."""
    with path.open(encoding=encoding_of(path)) as file:
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
                raise LabError(
                    f"{where}: no JSON object; JSON Lines have one a line, a"
                    " list has no indent, nor has a table of columns"
                ) from error
            for table in entry if isinstance(entry, list) else (entry,):
                if not isinstance(table, dict):
                    raise LabError(f"{where}: {type(table).__name__}, no JSON object")
                for row in _rows_of(table):
                    yield where, row


def _rows_of(entry: JsonMapping) -> list[JsonMapping]:
    """The rows of a dict of columns, as json.dump and pandas write a table; else the entry itself.

    A column is a list, or a dict by numbers of rows from "0" on. All have one length.
    """
    columns = [
        [*column.values()] if isinstance(column, dict) and "0" in column else column
        for column in entry.values()
    ]
    lengths = {len(column) if isinstance(column, list) else -1 for column in columns}
    if len(lengths) != 1 or -1 in lengths:
        return [entry]
    return [dict(zip(entry, row, strict=True)) for row in zip(*columns, strict=True)]


def _csv(path: Path) -> Iterator[Entry]:
    marks = _marks(path)
    for where, entry, _ in _fields(path):
        yield where, {name: _with_point(value, marks) for name, value in entry.items()}


def _marks(path: Path) -> dict[str, str]:
    """The first number of the whole table with each kind of mark.

    A table whose fields are parted by commas has decimal points.
    """
    marks: dict[str, str] = {}
    for _, entry, delimiter in _fields(path):
        if delimiter == ",":
            return {"point": ""}
        for name, value in entry.items():
            if match := NUMBER.fullmatch(value or ""):
                marks.setdefault(str(match.lastgroup), f"{name}: {value}")
    return marks


def _with_point(text: OptionalText, marks: Mapping[str, str]) -> OptionalText:
    """A number with a decimal point. Beside decimal points "1,234" stays as it is."""
    if not text or not ("," in text or "comma" in marks):
        return text
    match = NUMBER.fullmatch(text)
    if not match or match["point"] or (match["unsure"] and "point" in marks):
        return text
    return THOUSANDS.sub("", text).replace(",", ".")


def _fields(path: Path) -> Iterator[tuple[str, JsonMapping, str]]:
    """The rows of a table as they are written, with what parts their fields."""
    with path.open(encoding=encoding_of(path), newline="") as file:
        lines = _lines(file, path)
        header = next(lines, "")
        if header.startswith("sep="):  # Excel's own line
            header = next(lines, "")
        delimiter = max(DELIMITERS, key=header.count)
        reader = csv.DictReader(chain([header], lines), delimiter=delimiter, skipinitialspace=True)
        try:
            names = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = names
            if len(set(names)) != len(names):
                raise LabError(f"{path}: two of its columns have one name")
            if len(names) > MOST_COLUMNS:
                raise LabError(
                    f"{path}: {len(names):,} columns; give a file of at most {MOST_COLUMNS:,}, or"
                    " one with columns step, metric and value"
                )
            for entry in reader:
                where = f"{path}, line {reader.line_num}"
                if None in entry:
                    raise LabError(f"{where}: it has more fields than the header")
                yield where, entry, delimiter
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
            rows = chain.from_iterable(batch.to_pylist() for batch in file.iter_batches(1000))
            yield from ((f"{path}, row {place}", row) for place, row in enumerate(rows, 1))
    except ArrowException as error:
        raise LabError(f"{path}: no Parquet file ({str(error).partition(chr(10))[0]})") from error


def run_of(entry: JsonMapping, spec: RunSpec, where: str) -> str:
    """The name of the run that a row belongs to."""
    arm = _value(entry, spec, "arm")
    seed = _value(entry, spec, "seed")
    if arm is not None and seed is not None:
        return f"{str(arm).strip()}/s{parse_int(seed, where, 'seed')}"
    run = _value(entry, spec, "run")
    return "" if run is None else str(run)


def _value(entry: JsonMapping, spec: RunSpec, key: str) -> Any:
    """The value under the source's name for a key; None without one."""
    return first_entry(entry, spec.names_of(key))[1]
