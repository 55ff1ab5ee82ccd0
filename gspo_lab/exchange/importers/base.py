"""The interface of a log reader, and what all readers share."""

import math
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import AliasChoices, Field

from gspo_lab.common.errors import LabError
from gspo_lab.common.keys import Table
from gspo_lab.exchange.importers.metric_names import bench_name

LoggedRow = tuple[int, Mapping[str, float]]
"""A step as the program counts it, and its metrics under the program's names; steps increase.

`convert` records no number that is not finite; it notes the metric and the first such step."""

AT_ONCE = 1 << 14
"""Numbers that one SQLite call inserts."""


@dataclass(frozen=True)
class LoggedAnswer:
    """One graded answer to a benchmark's problem; `step` None: at the end of the run."""

    problem: str
    correct: int
    sample: int = 0
    step: int | None = None
    bench: str | None = None


@dataclass
class Log:
    """One run as a program logged it. `rows` is read once; `notes` and `answers` may grow until it
    ends.

    `program` names the table of metric names in `names.toml`. `settings` are those in the log,
    under the program's keys. `notes` say what was joined, left out or unreadable.
    """

    program: str
    rows: Iterable[LoggedRow]
    files: Sequence[Path]
    version: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    answers: Iterable[LoggedAnswer] = ()


class RunSpec(Table):
    """One `[[runs]]` table: the paths of logs, the runs they belong to, and how to read them.

    `arm` and `seed` are keys, parts of the path (`{arm}`, `{seed}`), or parts of the names of runs
    inside (`name`). `map`: the lab's column (or `step`, `arm`, `seed`, `run`) -> the source's name
    for it. `program`: whose metric names the file has, if it does not say so. `score`: one metric,
    or benchmark -> metric. `config`: the configuration file; `ignore`: its keys that change
    nothing.
    """

    source: str = ""
    path: str = ""
    arm: str | None = None
    seed: int | None = None
    name: str | None = Field(None, validation_alias=AliasChoices("name", "run_pattern"))
    program: str | None = Field(None, validation_alias=AliasChoices("program", "logged_by"))
    map: dict[str, str] = Field({})
    score: str | dict[str, str] | None = Field(
        None, validation_alias=AliasChoices("score", "score_metric")
    )
    bench: str | None = None
    ignore: list[str] = Field([])
    config: str | None = None

    def named(self, key: str, *known: str) -> tuple[str, ...]:
        """The source's names for `step`, `arm`, `seed`, `run` ...: the mapped name, else the usual
        ones.
        """
        return (self.map[key],) if key in self.map else (key, *known)

    @property
    def scores(self) -> dict[str, str]:
        """The source's name of a score -> its benchmark."""
        table = {self.score: self.score} if isinstance(self.score, str) else self.score or {}
        return {metric: bench_name(bench) for bench, metric in table.items()}


class LogReader(Protocol):
    """A module that reads one kind of log; `SOURCES` lists them. If a path may hold several runs,
    the module also has `runs(path, spec)`, which returns their names."""

    def read(self, path: Path, run: str, spec: RunSpec) -> Log:
        """The run of this name ("" without `runs`).

        LabError if the path is not a log of this kind.
        """


def parse_finite(value: Any) -> float | None:
    """A finite number, as `parse_number` reads it; None for any other value."""
    result = parse_number(value)
    return result if result is not None and math.isfinite(result) else None


def parse_number(value: Any) -> float | None:
    """A number (NaN and infinity included), also from text or a truth value; None for any other
    value.
    """
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def numbers(data: Mapping[str, Any], skip: Collection[str] = ()) -> dict[str, float]:
    """The entries that are numbers, without the names in `skip`."""
    parsed = ((name, parse_number(value)) for name, value in data.items() if name not in skip)
    return {name: value for name, value in parsed if value is not None}


def parse_int(value: Any, where: str, name: str = "step") -> int:
    """A step or a seed. LabError if it is not a whole number of at least 0."""
    result = parse_finite(value)
    if result is None or result != int(result) or not 0 <= result < 2**53:
        raise LabError(f"{where}: its {name} is {value!r}, not a whole number from 0 on")
    return int(result)


def merge_rows(rows: Iterable[LoggedRow], where: str) -> Iterator[LoggedRow]:
    """The rows, with all rows of a step merged.

    LabError if steps go back, if a step has two values of one number, or if there is no number at
    all.
    """
    step: int | None = None
    row: dict[str, float] = {}
    empty = True
    for at, values in rows:
        if step is not None and at < step:
            raise LabError(
                f"{where}: its steps go back from {step} to {at}; if these are two runs, part them"
            )
        if step is not None and at > step:
            yield step, row
            row = {}
        step = at
        shared = (
            name
            for name in values.keys() & row.keys()
            if math.isfinite(row[name]) and math.isfinite(values[name])
        )
        if twice := [name for name in shared if values[name] != row[name]]:
            name = min(twice)
            raise LabError(
                f"{where}: step {at} has {name} twice, {row[name]:g} and {values[name]:g}; keep one"
                " of the two rows"
            )
        # A number that is not finite replaces none.
        row |= {
            name: value for name, value in values.items() if math.isfinite(value) or name not in row
        }
        empty = empty and not any(map(math.isfinite, values.values()))
    if step is None or empty:
        raise LabError(f"{where}: it holds no step with a number; nothing to import")
    yield step, row


def check_file(path: Path, kind: str) -> Path:
    """The path of a file that is not empty. LabError otherwise."""
    if not path.is_file():
        raise LabError(f"{path}: no such file; give the path of {kind}")
    if path.stat().st_size == 0:
        raise LabError(f"{path}: the file is empty; nothing to import")
    return path


def match_pattern(pattern: str, text: str) -> dict[str, str] | None:
    """The parts of a text that `{arm}` and `{seed}` of a pattern match; None if the pattern does
    not match.

    `match_pattern("out/{arm}-s{seed}", "out/gspo-s3")` is `{"arm": "gspo", "seed": "3"}`.
    """
    parts = re.split(r"(\{arm\}|\{seed\}|\*)", pattern)
    names: set[str] = set()
    out = []
    for part in parts:
        if part in ("{arm}", "{seed}"):
            name = part[1:-1]
            kind = r"[^/]+?" if name == "arm" else r"\d+"
            out.append(f"(?P={name})" if name in names else f"(?P<{name}>{kind})")
            names.add(name)
        else:
            out.append("[^/]*" if part == "*" else re.escape(part))
    match = re.fullmatch("".join(out), text)
    return None if match is None else match.groupdict()


class MetricBuffer:
    """One run's numbers, which some logs list metric by metric, or on several step axes; `rows` has
    them by step.

    A temporary SQLite database holds them: it needs little memory, and sorts more than memory
    holds. A later number of a step and metric replaces the earlier one. A metric whose steps go
    back is noted once. One that begins again belongs to another run: LabError.
    """

    def __init__(self, where: str, notes: list[str]) -> None:
        self._where = where
        self._notes = notes
        self._firsts: dict[str, int] = {}
        self._last: dict[str, tuple[int, float]] = {}
        """Per metric its last step and number."""
        self._new: list[tuple[str, int, float]] = []
        self._at = -1
        self._rising = True
        self._went_back = self._doubled = False
        self._database = sqlite3.connect("", check_same_thread=False)  # any thread may close it
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("CREATE TABLE numbers (name TEXT, step INTEGER, value REAL)")

    def __del__(self) -> None:
        self._database.close()

    @property
    def names(self) -> set[str]:
        """The names of the metrics."""
        return set(self._firsts)

    def add(self, name: str, step: int, value: float) -> None:
        """Add one number."""
        last = self._last.get(name)
        if last is None:
            self._firsts.setdefault(name, step)
        elif step <= self._firsts[name] < last[0]:
            raise LabError(
                f"{self._where}: {name} begins again at step {step}, after step {last[0]}: two runs"
                " in one log; part them"
            )
        elif step < last[0] and not self._went_back:
            self._notes.append(
                f"{name} goes back from step {last[0]} to {step}: of one step the later number"
                " counts"
            )
            self._went_back = True
        elif (
            step == last[0]
            and value != last[1]
            and not self._doubled
            and math.isfinite(value - last[1])
        ):
            self._notes.append(
                f"{name} is logged twice at step {step}, {last[1]:g} and {value:g}: the later"
                " number counts"
            )
            self._doubled = True
        self._last[name] = step, value
        self._rising = self._rising and step >= self._at
        self._at = step
        self._new.append((name, step, value))
        if len(self._new) >= AT_ONCE:
            self._write()

    def drop(self, step: int) -> None:
        """Delete all numbers of this step and later steps."""
        self._write()
        self._database.execute("DELETE FROM numbers WHERE step >= ?", (step,))
        self._last = {
            name: (min(last, step - 1), value) for name, (last, value) in self._last.items()
        }

    def take(self, later: "MetricBuffer") -> None:
        """Append a later file of the run.

        It replaces this file's numbers from each metric's first step in it.
        """
        self._write()
        later._write()
        ends = later._firsts.items()
        self._database.executemany("DELETE FROM numbers WHERE name = ? AND step >= ?", ends)
        self._database.executemany("INSERT INTO numbers VALUES (?, ?, ?)", later._select("rowid"))
        self._firsts = {**later._firsts, **self._firsts}
        self._rising = False

    def rows(self) -> Iterator[LoggedRow]:
        """All numbers by step."""
        self._write()
        at: int | None = None
        row: dict[str, float] = {}
        for name, step, value in self._select("rowid" if self._rising else "step, rowid"):
            if step != at:
                if at is not None:
                    yield at, row
                at = step
                row = {}
            if name not in row or (value is not None and math.isfinite(value)):
                row[name] = math.nan if value is None else value
        if at is not None:
            yield at, row

    def _write(self) -> None:
        self._database.executemany("INSERT INTO numbers VALUES (?, ?, ?)", self._new)
        self._new.clear()

    def _select(self, order: str) -> Iterator[tuple[str, int, float | None]]:
        """The numbers; SQLite has NULL for NaN."""
        return iter(
            self._database.execute(f"SELECT name, step, value FROM numbers ORDER BY {order}")
        )
