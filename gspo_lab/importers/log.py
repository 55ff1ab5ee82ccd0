"""What a source yields: the runs inside it, and of each its rows, one by one, with what else it says of the run."""

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import AliasChoices, Field

from gspo_lab.errors import LabError
from gspo_lab.importers.names import bench_name
from gspo_lab.keys import Table

Row = tuple[int, Mapping[str, float]]
"""A step as the program counts them, and the numbers that it logged there under its own names; steps rise.

A number that is not finite was not measured: its metric is noted, with the first such step (`convert`)."""

CHUNK = 1 << 20


@dataclass(frozen=True)
class Answer:
    """One answer to one problem of a benchmark, as right or wrong; `step` None: at the end of the run."""

    problem: str
    correct: int
    sample: int = 0
    step: int | None = None
    bench: str | None = None


@dataclass
class Log:
    """One run as a program logged it. `rows` is read once; `notes` and `answers` may grow until it is through.

    `program` is the one whose names and definitions the metrics have (`names.toml`), `settings` what the log tells of
    the run's under that program's own keys, `notes` what was joined, left out or could not be read.
    """

    program: str
    rows: Iterable[Row]
    files: Sequence[Path]
    version: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    answers: Iterable[Answer] = ()


class Wish(Table):
    """One `[[runs]]` table: where logs lie, which runs they are, and how a person wants them to be read.

    `arm` and `seed` are given, or parts of the path (`{arm}`, `{seed}`), or of the names of the runs inside (`name`).
    `map` has the lab's column (or `step`, `arm`, `seed`, `run`) and the source's name for it; `program` is the one
    whose names the metrics have, where the file does not tell; `score` one metric, or benchmarks and their metrics;
    `ignore` keys of its configuration that change nothing, `config` the file that holds it.
    """

    source: str = ""
    path: str = ""
    arm: str | None = None
    seed: int | None = None
    name: str | None = Field(None, validation_alias=AliasChoices("name", "run_pattern"))
    program: str | None = Field(None, validation_alias=AliasChoices("program", "logged_by"))
    map: dict[str, str] = Field({})
    score: str | dict[str, str] | None = Field(None, validation_alias=AliasChoices("score", "score_metric"))
    bench: str | None = None
    ignore: list[str] = Field([])
    config: str | None = None

    def named(self, key: str, *known: str) -> tuple[str, ...]:
        """The source's names for one of `step`, `arm`, `seed`, `run` ...: the mapped one, else those usual."""
        return (self.map[key],) if key in self.map else (key, *known)

    @property
    def scores(self) -> dict[str, str]:
        """Benchmarks by the source's names for their scores."""
        table = {self.score: self.score} if isinstance(self.score, str) else self.score or {}
        return {metric: bench_name(bench) for bench, metric in table.items()}


class Source(Protocol):
    """Reads one kind of log: a module with `read`. A new one gets a line in `SOURCES`. Where a path may hold several
    runs, the module also has `runs(path, wish)`, which gives their names."""

    def read(self, path: Path, run: str, wish: Wish) -> Log:
        """The run of this name, "" without `runs`. LabError where the path is no log of this kind."""


def number(value: Any) -> float | None:
    """A finite number, of whatever `logged` reads as one; None for anything else."""
    found = logged(value)
    return found if found is not None and math.isfinite(found) else None


def logged(value: Any) -> float | None:
    """A number, perhaps NaN or infinite, also of a text that is one and of a truth value; None for anything else."""
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


def numbers(data: Mapping[str, Any], skip: Iterable[str] = ()) -> dict[str, float]:
    """The numbers among the entries, as they were logged; what is none was not measured."""
    left_out = set(skip)
    return {
        name: found for name, value in data.items() if name not in left_out and (found := logged(value)) is not None
    }


def lay(values: Mapping[str, float], row: dict[str, float]) -> None:
    """Put later numbers of a step over its earlier ones; what is not finite replaces nothing."""
    row |= {name: value for name, value in values.items() if math.isfinite(value) or name not in row} if row else values


def whole_number(value: Any, where: str, what: str = "step") -> int:
    """A step or a seed. LabError where it is no whole number of at least 0."""
    found = number(value)
    if found is None or found != int(found) or not 0 <= found < 2**53:
        raise LabError(f"{where}: its {what} is {value!r}, not a whole number from 0 on")
    return int(found)


def rising(rows: Iterable[Row], where: str) -> Iterator[Row]:
    """The rows, those of one step as one. LabError where steps go back, where a step has two values of one number, or
    where no number is there."""
    step: int | None = None
    row: dict[str, float] = {}
    found = False
    for at, values in rows:
        if step is not None and at < step:
            raise LabError(f"{where}: its steps go back from {step} to {at}; if these are two runs, part them")
        if step is not None and at > step:
            yield step, row
            row = {}
        step = at
        twice = [
            name for name in values.keys() & row.keys() if math.isfinite(row[name]) and _other(values[name], row[name])
        ]
        if twice:
            name = min(twice)
            raise LabError(
                f"{where}: step {at} has {name} twice, {row[name]:g} and {values[name]:g}; keep one of the two rows"
            )
        lay(values, row)
        found = found or any(map(math.isfinite, values.values()))
    if step is None or not found:
        raise LabError(f"{where}: it holds no step with a number; nothing to import")
    yield step, row


def _other(value: float, before: float) -> bool:
    return math.isfinite(value) and value != before


def digest(path: Path) -> str:
    """sha256 of a file, whatever its size."""
    whole = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            whole.update(chunk)
    return whole.hexdigest()


def a_file(path: Path, what: str) -> Path:
    """The path, if a file is there that is not empty. LabError otherwise."""
    if not path.is_file():
        raise LabError(f"{path}: no such file; {what} is wanted")
    if path.stat().st_size == 0:
        raise LabError(f"{path}: the file is empty; nothing to import")
    return path


def matched(pattern: str, text: str) -> dict[str, str] | None:
    """What `{arm}` and `{seed}` of a pattern are in a text, `*` being anything but `/`; None where it does not fit.

    `matched("out/{arm}-s{seed}", "out/gspo-s3")` is `{"arm": "gspo", "seed": "3"}`.
    """
    parts = re.split(r"(\{arm\}|\{seed\}|\*)", pattern)
    seen: set[str] = set()
    out = []
    for part in parts:
        if part in ("{arm}", "{seed}"):
            name = part[1:-1]
            kind = r"[^/]+?" if name == "arm" else r"\d+"
            out.append(f"(?P={name})" if name in seen else f"(?P<{name}>{kind})")
            seen.add(name)
        else:
            out.append("[^/]*" if part == "*" else re.escape(part))
    found = re.fullmatch("".join(out), text)
    return None if found is None else found.groupdict()
