"""The interface of a log reader, and what all readers share."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TextIO

from pydantic import Field

from gspo_lab.common.errors import LabError
from gspo_lab.common.keys import Table
from gspo_lab.common.plain_data import (
    JsonMapping,
    OptionalFloat,
    OptionalInt,
    OptionalText,
    Strings,
)
from gspo_lab.recording.records import AnswerRecord

LoggedRow = tuple[int, JsonMapping]
"""A step as the program counts it, and its entries under the program's names, in logged order.

`MetricBuffer` keeps the entries that are numbers, sorts the rows and joins resumed parts."""

STEPS = (
    "step",
    "train/global_step",
    "trainer/global_step",
    "global_step",
    "global_step/max_steps",
    "train/step",
    "training/step",
    "rollout/step",
    "eval/step",
    "train_step",
    "Step",
    "iteration",
    "_step",
    "training/global_step",
)
"""Usual names of a row's step; the first one that a row has counts."""
CALLS = "_step"
"""W&B's own step, which counts calls of log."""
NUMBERED = re.compile(
    r"[\s\[(]*(?:(?:(?:global|train)[ _])?(?:step|iter|iteration|checkpoint|update|seed|s)"
    r"[\s=:_-]*)?"
    r"(\d+)(?:\s*(?:/|of)\s*(\d+))?[\s\])]*",
    re.IGNORECASE | re.ASCII,
)
"""A step as text: "3/10" with the number of steps, "step 3"."""
NOTHING = (None, "", "nan", "NaN")
"""Values of an empty field."""
MOST_STEPS = 10**9
"""A larger number is a time, in seconds since 1970."""
EXACT = 2**53
"""Floats represent every whole number up to this one."""
COMPRESSED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zX")
"""Beginnings of files of gzip, zip, bzip2 and xz."""
ENCODINGS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
"""A text's first two bytes -> its encoding, as Excel and PowerShell mark it."""
UTF8 = "utf-8-sig"
"""UTF-8 with or without the mark that Windows writes."""
JSON_TEXT = re.compile(r"\s*(?:\[\s*[{\]]|\{(?!')|-?\d[\d.]*$)", re.MULTILINE)
"""The beginning of JSON (Lines); Python prints a dict with ', and consoles begin lines with [."""


AT_END = -1
"""The step of an answer that was given at the end of the run."""


@dataclass
class Log:
    """One run as a program logged it.

    `rows` is read once; a reader may fill the other fields until `rows` ends. `program` names the
    table of metric names in `names.toml`. `settings` are those in the log, under the program's
    keys. `notes` say what was joined, left out or unreadable. The step of an answer may be AT_END,
    its benchmark "" for the spec's. `step_name` is the program's name of the step. `planned` is
    the number of steps that the run was to have, `reached` the number that it has made, where the
    log tells more than its rows. `rows_by_calls` are left out: they lack the trainer's step.
    """

    program: str
    rows: Iterable[LoggedRow]
    files: Sequence[Path]
    version: OptionalText = None
    settings: JsonMapping = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    answers: Iterable[AnswerRecord] = ()
    step_name: OptionalText = None
    planned: OptionalInt = None
    reached: int = 0
    rows_by_calls: int = 0


class RunSpec(Table):
    """One `[[runs]]` table: the paths of logs, the runs they belong to, and how to read them.

    `arm` and `seed` are keys, parts of the path (`{arm}`, `{seed}`), or parts of the names of runs
    inside (`run_pattern`). `map`: the lab's column (or `step`, `arm`, `seed`, `run`) -> the
    source's name for it. `logged_by`: whose metric names the file has, if it does not say so.
    `score`: one metric, or benchmark -> metric. `config`: the configuration file; `ignore`: its
    keys that change nothing.
    """

    source: str = ""
    path: str = ""
    arm: OptionalText = None
    seed: OptionalInt = None
    run_pattern: OptionalText = None
    logged_by: OptionalText = None
    map: dict[str, str] = Field({})
    score: str | dict[str, str] | None = None
    bench: OptionalText = None
    ignore: list[str] = Field([])
    config: OptionalText = None

    def names_of(self, key: str, *usual: str) -> Strings:
        """The source's names for `step`, `arm`, `seed`, `run` and so on: the mapped name, else the
        key and its usual names.
        """
        return (self.map[key],) if key in self.map else (key, *usual)

    def step_names(self) -> Strings:
        """The source's names for the step: the mapped name, else the usual ones."""
        return (self.map["step"],) if "step" in self.map else STEPS

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


def bench_name(text: str) -> str:
    """A metric's name as a valid name of a benchmark."""
    name = "".join(
        char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in text
    )
    return name.strip("._-")[:100] or "score"


def json_value(text: Any) -> Any:
    """The value that a text states as JSON; None without one."""
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def parse_number(value: Any) -> OptionalFloat:
    """A number (NaN and infinity included), also from text or a truth value.

    None for any other value, and for `1_000`, which is a number in Python's source only.
    """
    is_number = isinstance(value, str | int | float) and "_" not in str(value)
    try:
        return float(value) if is_number else None
    except (ValueError, OverflowError):
        return None


def parse_int(value: Any, where: str, name: str = "step") -> int:
    """A step or a seed; of a text like "3/10" or "step 3" the first number.

    LabError if it is not a whole number of at least 0.
    """
    number = parse_number(value)
    if number is None and (match := NUMBERED.fullmatch(str(value))):
        number = float(match[1])
    most = MOST_STEPS if name == "step" else EXACT
    if number is None or not 0 <= number < most or number != int(number):
        raise LabError(
            f"{where}: its {name} is {value!r}, not a whole number from 0 on below {most:,};"
            f" another column may be it: --map {name}=NAME"
        )
    return int(number)


def planned_steps(value: Any) -> OptionalInt:
    """The number of steps in a text like "3/10"; None for any other value."""
    match = NUMBERED.fullmatch(str(value))
    return int(match[2]) if match and match[2] else None


def first_entry(entry: JsonMapping, names: Iterable[str]) -> tuple[str, Any]:
    """The first of these names under which the entry has a value, with the value; ("", None)
    without one.
    """
    for name in names:
        value = entry.get(name)
        if value not in NOTHING and value == value:
            return name, value
    return "", None


def step_of(entry: JsonMapping, names: Sequence[str], log: Log) -> tuple[str, Any]:
    """The name and the value of a row's step; ("", None) without one.

    W&B's count of log calls has no value where the log or the row names a step of the trainer.
    """
    name, value = first_entry(entry, names)
    if name == CALLS and {*names[: names.index(CALLS)]} & {*entry, log.step_name}:
        return CALLS, None
    if name and log.step_name in (None, "", CALLS):
        log.step_name = name
    return name, value


def check_file(path: Path, kind: str) -> Path:
    """The path of a file that is not empty and not compressed. LabError otherwise."""
    if not path.is_file():
        raise LabError(f"{path}: no such file; give the path of {kind}")
    with path.open("rb") as file:
        head = file.read(4)
    if not head:
        raise LabError(f"{path}: the file is empty; nothing to import")
    if head.startswith(COMPRESSED):
        raise LabError(f"{path}: compressed, or of Excel; give {kind}, unpacked")
    return path


def encoding_of(path: Path) -> str:
    """UTF-16 where the file begins with its mark, else UTF-8."""
    with path.open("rb") as file:
        return ENCODINGS.get(file.read(2), UTF8)


def open_text(path: Path) -> TextIO:
    """A console's text, in which odd bytes may stand."""
    return path.open(encoding=encoding_of(path), errors="replace")


def head_of(path: Path) -> str:
    """The first characters of a text, enough to tell its kind."""
    with open_text(path) as file:
        return file.read(4096)


def match_pattern(pattern: str, text: str) -> dict[str, str] | None:
    """The parts of a text that `{arm}` and `{seed}` of a pattern match; None if the pattern does
    not match.

    `match_pattern("out/{arm}-s{seed}", "out/gspo-s3")` is `{"arm": "gspo", "seed": "3"}`.
    """
    expression = re.escape(pattern).replace(r"\*", "[^/]*")
    for name, kind in (("arm", "[^/]+?"), ("seed", r"\d+")):
        hole = re.escape(f"{{{name}}}")
        expression = expression.replace(hole, f"(?P<{name}>{kind})", 1)
        expression = expression.replace(hole, f"(?P={name})")
    match = re.fullmatch(expression, text)
    return None if match is None else match.groupdict()
