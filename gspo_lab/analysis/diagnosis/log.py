"""One training log as series of numbers by step, read through the importers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from gspo_lab.analysis.diagnosis.own_run import read_own_run
from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import JOURNAL
from gspo_lab.exchange.importers.base import RunSpec, few
from gspo_lab.exchange.importers.config import read_config
from gspo_lab.exchange.importers.convert import Conversion
from gspo_lab.exchange.importers.metric_names import Metric, recognise
from gspo_lab.exchange.importers.run_specs import reader_of
from gspo_lab.exchange.importers.secrets import public_settings, without_home
from gspo_lab.exchange.importers.tables import entries, unnested
from gspo_lab.recording.records import AnswerRecord, ScoreRecord, StepRecord, UpdateRecord

OWN_RUN = "gspo-lab"
"""The source of a run's folder of gspo-lab, which no import needs."""
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".wandb": "wandb",
    ".db": "trackio",
}
"""Suffix of a file -> the source that reads it."""
FOLDERS = {
    "trainer_state.json": "trl",
    "checkpoint-*/trainer_state.json": "trl",
    "*/checkpoint-*/trainer_state.json": "trl",
    "run-*.wandb": "wandb",
    "**/*tfevents*": "tensorboard",
}
"""Pattern of a file in a folder -> the source that reads the folder."""
CONFIGS = ("args.json", "config.yaml")
"""Configurations beside a log, as ms-swift and AReaL leave them."""
VERSIONS = ("swift_version", "trl_version", "verl_version", "version", "transformers_version")
"""Keys of a program's version."""


@dataclass(frozen=True)
class Series:
    """One number of the log by step. `name` is the log's own name of it.

    `hidden` rows were printed as a rounded zero, at most `below`, and are not in `values`.
    """

    name: str
    steps: Floats
    values: Floats
    meaning: str | None = None
    hidden: int = 0
    below: float = 0.0

    def __len__(self) -> int:
        return len(self.values)

    @property
    def low(self) -> float:
        """The smallest possible mean over all rows."""
        return float(self.values.sum()) / (len(self) + self.hidden)

    @property
    def high(self) -> float:
        """The largest possible mean over all rows."""
        return self.low + self.hidden * self.below / (len(self) + self.hidden)

    @property
    def mean_text(self) -> str:
        """The mean over all rows with two digits, or the two ends between which it lies."""
        if not self.hidden or f"{self.low:.2g}" == f"{self.high:.2g}":
            return f"{self.low:.2g}"
        return f"{self.low:.2g} to {self.high:.2g} ({self.hidden} rows printed as a rounded zero)"

    def end(self, share: int = 5) -> float:
        """The mean over the last fifth of the rows, one at least."""
        return float(self.values[-max(1, len(self) // share) :].mean())

    def start(self, share: int = 5) -> float:
        """The mean over the first fifth of the rows, one at least."""
        return float(self.values[: max(1, len(self) // share)].mean())


@dataclass
class TrainingLog:
    """A log with its settings.

    `settings` are the lab's dotted settings as far as the log or the user states them, `config` the
    program's own keys, without secrets. `rounded` are names that were printed as 0.000 at some
    steps, with the largest number that prints so, and how many steps.
    """

    source: str
    program: str
    version: str | None
    settings: Mapping[str, Any]
    config: Mapping[str, Any]
    notes: Sequence[str] = ()
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    rounded: dict[str, tuple[float, int]] = field(default_factory=dict)
    rows: dict[str, dict[int, float]] = field(default_factory=dict)
    """Name of a column, or the program's own name -> step -> number."""
    answers: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """Benchmark -> problem -> whether each answer was correct."""
    stated_config: bool = False

    def add(self, step: int, numbers: Mapping[str, Any]) -> None:
        """Add the numbers of a step; other values are left out."""
        for name, value in numbers.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                self.rows.setdefault(name, {})[step] = float(value)

    def named(self, *names: str) -> Series | None:
        """The first of these columns or own names that has a number."""
        for name in names:
            if numbers := self.rows.get(name):
                logged = self.logged_name(name)
                metric = self.metrics.get(logged)
                below, hidden = self.rounded.get(logged, (0.0, 0))
                return Series(
                    logged,
                    np.array(list(numbers), dtype=np.float64),
                    np.array(list(numbers.values())),
                    metric.meaning if metric else None,
                    hidden,
                    below,
                )
        return None

    def quantity(self, quantity: str) -> Series | None:
        """The first series that the program defines as this quantity; none of prompts."""
        for name, metric in self.metrics.items():
            if metric.quantity == quantity and not name.startswith("prompt_length"):
                found = self.named(metric.column or name, name)
                if found is not None:
                    return found
        return None

    def logged_name(self, column: str) -> str:
        """The program's name of a column."""
        names = [name for name, metric in self.metrics.items() if metric.column == column]
        return names[0] if names else column

    def is_rounded(self, *names: str) -> str | None:
        """The first name of these columns or quantities that was printed as a rounded zero."""
        for name in self.rounded:
            metric = self.metrics.get(name)
            meanings = {name, metric.column, metric.quantity} if metric else {name}
            if meanings & set(names):
                return name
        return None


def read_log(
    spec: RunSpec, run: str | None = None, stated: Mapping[str, Any] | None = None
) -> TrainingLog:
    """Read a log by its spec, whose source may be "" (guessed from the path).

    `run` names one of several runs inside. `stated` are dotted settings, which go over the log's.
    LabError for a log that cannot be read.
    """
    path = Path(spec.path)
    if not path.exists():
        raise LabError(f"{path}: no such file or folder; give the path of a log")
    source = spec.source or guess_source(path)
    spec = spec.replace(source=source)
    if source == OWN_RUN:
        content = read_own_run(path)
        inside = ""
    else:
        if source == "verl" and spec.logged_by is None:
            spec = spec.replace(logged_by=_program_inside(path))
        inside = _run_inside(path, spec, run)
        content = reader_of(spec).read(path, inside, spec)
    config_file = Path(spec.config) if spec.config else _config_beside(path)
    config = read_config(config_file) if config_file else {}
    converted = Conversion(content, spec, dict(stated or {}), 1, config)
    log = TrainingLog(
        source=without_home(f"{path} ({inside})" if inside else str(path)),
        program=converted.names.program,
        version=content.version,
        settings={},
        config={},
        stated_config=bool(config or content.settings),
    )
    _fill(log, converted)
    public, _ = public_settings({**content.settings, **config})
    log.program = content.program
    log.config = public
    log.settings = {**converted.settings, **(stated or {})}
    if log.version is None:
        named = (public[key] for key in VERSIONS if isinstance(public.get(key), str))
        log.version = next(named, None)
    log.metrics = converted.metrics
    log.notes = tuple(dict.fromkeys(content.notes))
    for name, (text, count) in converted.rounded.items():
        decimals = len(text.partition(".")[2])
        log.rounded[name] = (0.5 * 10.0**-decimals, count)
    if converted.benches:
        _add_answers_count(log, converted)
    return log


def _fill(log: TrainingLog, converted: Conversion) -> None:
    """Put all records of a conversion into the log's rows."""
    for record in converted.records():
        if isinstance(record, AnswerRecord):
            problems = log.answers.setdefault(record.bench, {})
            problems.setdefault(record.problem, []).append(record.correct or 0)
        elif isinstance(record, ScoreRecord):
            log.add(record.step, {f"score/{record.bench}": record.score})
        elif isinstance(record, StepRecord | UpdateRecord):
            log.add(record.step, _numbers(record))


def _numbers(record: StepRecord | UpdateRecord) -> dict[str, Any]:
    """The numbers of a record by column, and a program's own by their names."""
    values = {entry.name: getattr(record, entry.name) for entry in fields(record)}
    own = values.pop("engine_metrics", None) or {}
    values.pop("step")
    return {**own, **values}


def _add_answers_count(log: TrainingLog, converted: Conversion) -> None:
    """The number of problems of each benchmark whose answers the log holds."""
    for bench, problems in converted.problems.items():
        if problems:
            log.rows.setdefault(f"problems/{bench}", {})[1] = float(len(problems))


def guess_source(path: Path) -> str:
    """The source that reads a path. LabError where nothing tells."""
    if path.is_dir():
        if (path / JOURNAL).is_file():
            return OWN_RUN
        for pattern, source in FOLDERS.items():
            if any(path.glob(pattern)):
                return source
        raise LabError(f"{path}: no log in this folder is known; name its kind: --source")
    if path.suffix in SUFFIXES:
        return SUFFIXES[path.suffix]
    if "tfevents" in path.name:
        return "tensorboard"
    if path.name == JOURNAL:
        return OWN_RUN
    if path.suffix == ".json":
        return "trl"
    with path.open("rb") as file:
        head = file.read(2)
    if head[:1] != b"{" or head == b"{'":
        return "verl"
    _, entry = next(entries(path), ("", {}))
    if isinstance(entry.get("data"), dict):
        return "verl"
    return "items" if {"problem", "correct"} <= entry.keys() else "jsonl"


def _program_inside(path: Path) -> str | None:
    """The program whose names a file of verl's form has: AReaL's hook writes the same form."""
    with path.open("rb") as file:
        if file.read(1) != b"{":
            return None
    for where, entry in entries(path):
        names = unnested(entry.get("data") or {}, where)
        return recognise(names, None)
    return None


def _run_inside(path: Path, spec: RunSpec, run: str | None) -> str:
    """The name of the run to read. LabError if the file holds several and none is named."""
    runs_inside = getattr(reader_of(spec), "runs", None)
    inside: Sequence[str] = [""] if runs_inside is None else runs_inside(path, spec)
    if run is not None and run in inside:
        return run
    if run is not None or len(inside) > 1:
        raise LabError(f"{path}: name one run of it: --run NAME; it holds {few(inside, 8)}")
    return inside[0]


def _config_beside(path: Path) -> Path | None:
    """The configuration that a program left beside its log."""
    folder = path if path.is_dir() else path.parent
    for name in CONFIGS:
        if (folder / name).is_file():
            return folder / name
    return None


def consistent_count(scores: Sequence[float], most: int = 2000) -> int | None:
    """The smallest number of answers whose shares all these scores can be; None above `most`.

    Only unrounded scores tell: of a number with few decimals nothing follows.
    """
    inside = [score for score in scores if 0 < score < 1]
    if not inside or all(len(json.dumps(score)) < 6 for score in inside):
        return None
    for count in range(1, most + 1):
        if all(abs(score * count - round(score * count)) < 1e-6 * count for score in inside):
            return count
    return None
