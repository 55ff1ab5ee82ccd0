"""One training log as series of numbers by step, read through the importers."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from gspo_lab.analysis.diagnosis.own_run import MINIBATCHES, read_own_run
from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.common.errors import LabError
from gspo_lab.exchange.importers.base import RunSpec, few
from gspo_lab.exchange.importers.config import read_config
from gspo_lab.exchange.importers.convert import Conversion
from gspo_lab.exchange.importers.metric_names import Metric, recognise
from gspo_lab.exchange.importers.run_specs import reader_of
from gspo_lab.exchange.importers.secrets import public_settings, without_home
from gspo_lab.exchange.importers.tables import entries
from gspo_lab.recording.records import AnswerRecord, Record, ScoreRecord

OWN_RUN = "gspo-lab"
"""The source of a run's folder of gspo-lab, which no import needs."""
SOURCES = {
    "journal.jsonl": OWN_RUN,
    "trainer_state.json": "trl",
    "**/checkpoint-*/trainer_state.json": "trl",
    "**/run-*.wandb": "wandb",
    "**/*tfevents*": "tensorboard",
    "*.csv": "csv",
    "*.tsv": "csv",
    "*.parquet": "parquet",
    "*.db": "trackio",
    "*.json": "trl",
}
"""Pattern of a file, or of a file in a folder -> the source that reads it."""
CONFIGS = ("args.json", "config.yaml")
"""Configurations beside a log, as ms-swift and AReaL leave them."""
VERSIONS = ("swift_version", "trl_version", "verl_version", "version", "transformers_version")
"""Keys of a program's version."""
MOST_ANSWERS = 2000
Rows = dict[str, dict[int, float]]
"""Numbers by column or own name, and by step."""


@dataclass(frozen=True)
class Series:
    """One number of the log by step. `name` is the log's own name of it.

    `hidden` rows were printed as a rounded zero, at most `below`, and are not in `values`.
    """

    name: str
    steps: Floats
    values: Floats
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
        if not self.hidden:
            return f"{self.low:.2g}"
        return f"{self.low:.2g} to {self.high:.2g} ({self.hidden} rows printed as a rounded zero)"

    @property
    def fifth(self) -> int:
        """A fifth of the rows, one at least."""
        return max(1, len(self) // 5)

    @property
    def start(self) -> float:
        """The mean over the first fifth of the rows."""
        return float(self.values[: self.fifth].mean())

    @property
    def end(self) -> float:
        """The mean over the last fifth of the rows."""
        return float(self.values[-self.fifth :].mean())


@dataclass
class TrainingLog:
    """A log with its settings.

    `settings` are the lab's dotted settings as far as the log or the user states them, `config` the
    program's own keys, without secrets. `rounded` are names that were printed as 0.000 at some
    steps, with the largest number that prints so, and how many steps. `rows` holds each column, or
    the program's own name, by step.
    """

    source: str
    program: str
    version: str | None
    settings: Mapping[str, Any]
    config: Mapping[str, Any]
    notes: Sequence[str] = ()
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    rounded: dict[str, tuple[float, int]] = field(default_factory=dict)
    rows: Rows = field(default_factory=dict)

    def first_of(self, *names: str) -> Series | None:
        """The first of these columns, own names or quantities that has a number; none of
        prompts.
        """
        for name in names:
            keys = [name]
            for logged, metric in self.metrics.items():
                if metric.quantity == name and not logged.startswith("prompt_length"):
                    keys += [metric.column or logged, logged]
            for key in keys:
                if numbers := self.rows.get(key):
                    logged = self._logged_name(key)
                    below, hidden = self.rounded.get(logged, (0.0, 0))
                    steps = np.array(list(numbers), dtype=np.float64)
                    return Series(logged, steps, np.array(list(numbers.values())), hidden, below)
        return None

    def rounded_name(self, *names: str) -> str | None:
        """The first name of these columns or quantities that was printed as a rounded zero."""
        for name in self.rounded:
            metric = self.metrics[name]
            if {name, metric.column, metric.quantity} & set(names):
                return name
        return None

    def _logged_name(self, column: str) -> str:
        names = [name for name, metric in self.metrics.items() if metric.column == column]
        return names[0] if names else column


def read_log(
    spec: RunSpec, run: str | None = None, settings: Mapping[str, Any] | None = None
) -> TrainingLog:
    """Read a log by its spec, whose source may be "" (guessed from the path).

    `run` names one of several runs inside. `settings` are dotted settings, which go over the log's.
    LabError for a log that cannot be read.
    """
    path = Path(spec.path)
    stated = settings or {}
    spec = spec.replace(source=spec.source or guess_source(path))
    if spec.source == OWN_RUN:
        declared, version, records = read_own_run(path)
        public, _ = public_settings(declared)
        rows = _rows(records, MINIBATCHES, 0)
        name = without_home(str(path))
        return TrainingLog(name, OWN_RUN, version, {**public, **stated}, public, rows=rows)
    if spec.source == "verl" and spec.logged_by is None:
        # AReaL's hook writes the same form
        names = (_head(path) or {}).get("data", ())
        spec = spec.replace(logged_by=recognise(names, None))
    content = reader_of(spec).read(path, _run_inside(path, spec, run), spec)
    config = read_config(Path(spec.config)) if spec.config else _config_beside(path)
    converted = Conversion(content, spec, stated, 1, config)
    rows = _rows(converted.records(), {"": slice(None)}, converted.names.counts_from or 0)
    public, _ = public_settings({**content.settings, **config})
    versions = [content.version, *(public.get(key) for key in VERSIONS)]
    meant = (metric.quantity or metric.column for metric in converted.metrics.values())
    if not any(meant) and not converted.benches:
        content.notes.append(
            f"none of its names is known ({few(converted.metrics)}): name them by --map COLUMN=NAME"
        )
    rounded = {}
    for name, (text, count) in converted.rounded.items():
        decimals = len(text.partition(".")[2])
        rounded[name] = (0.5 * 10.0**-decimals, count)
    return TrainingLog(
        without_home(str(path)),
        content.program,
        next((str(version) for version in versions if version), None),
        {**converted.settings, **stated},
        public,
        tuple(dict.fromkeys(content.notes)),
        converted.metrics,
        rounded,
        rows,
    )


def _rows(records: Iterable[Record], minibatches: Mapping[str, slice], counts_from: int) -> Rows:
    """All numbers of a log by the program's own steps, which count from `counts_from`. Those of
    updates are means over the mini-batches that stand with each prefix.
    """
    found: dict[tuple[str, int], list[Any]] = {}
    answers: Counter[tuple[str, int]] = Counter()
    for record in records:
        # What a mini-batch lacks is None here, so that every list begins with mini-batch 0.
        numbers = {entry.name: getattr(record, entry.name) for entry in fields(record)}
        step = record.step
        if isinstance(record, AnswerRecord):
            numbers = {f"score/{record.bench}": record.correct or 0}
            answers[f"answers/{record.bench}", record.step] += 1
        elif isinstance(record, ScoreRecord):
            numbers = {f"score/{record.bench}": record.score}
        else:
            step += counts_from
        numbers |= numbers.pop("engine_metrics", None) or {}
        for name, value in numbers.items():
            found.setdefault((name, step), []).append(value)
    rows: Rows = {}
    for (name, step), values in found.items():
        for prefix, chosen in minibatches.items():
            present = [value for value in values[chosen] if isinstance(value, int | float)]
            if present:
                rows.setdefault(prefix + name, {})[step] = fmean(present)
    for (name, step), count in answers.items():
        rows.setdefault(name, {})[step] = count
    return rows


def guess_source(path: Path) -> str:
    """The source that reads a path. LabError where nothing tells, or nothing is there."""
    if not path.exists():
        raise LabError(f"{path}: no such file or folder; give the path of a log")
    for pattern, source in SOURCES.items():
        in_folder = path.is_dir() and pattern[:2] != "*." and any(path.glob(pattern))
        if in_folder or (path.is_file() and path.match(pattern)):
            return source
    if path.is_dir():
        raise LabError(f"{path}: no log in this folder is known; name its kind: --source")
    entry = _head(path)
    if entry is None or isinstance(entry.get("data"), dict):
        return "verl"
    return "items" if {"problem", "correct"} <= entry.keys() else "jsonl"


def _head(path: Path) -> Mapping[str, Any] | None:
    """The first object of JSON Lines; None for a console's text, in which a Python dict may
    stand.
    """
    with path.open("rb") as file:
        head = file.read(2)
    if head[:1] != b"{" or head == b"{'":
        return None
    return next(entries(path), ("", {}))[1]


def _run_inside(path: Path, spec: RunSpec, run: str | None) -> str:
    """The name of the run to read. LabError if the file holds several and none is named."""
    runs_inside = getattr(reader_of(spec), "runs", None)
    inside: Sequence[str] = [""] if runs_inside is None else runs_inside(path, spec)
    if run in inside:
        return str(run)
    if run is not None or len(inside) > 1:
        raise LabError(f"{path}: name one run of it: --run NAME; it holds {few(inside, 8)}")
    return inside[0]


def _config_beside(path: Path) -> dict[str, Any]:
    """The configuration that a program left beside its log."""
    folder = path if path.is_dir() else path.parent
    for name in CONFIGS:
        if (folder / name).is_file():
            return read_config(folder / name)
    return {}


def consistent_count(scores: Sequence[float]) -> int | None:
    """The smallest number of answers whose shares all these scores can be; None if no small one.

    Only unrounded scores tell, and two of them: a share of 1/2 may stand on any even number.
    """
    inside = [score for score in scores if 0 < score < 1]
    if len({*inside}) < 2 or all(len(str(score)) < 6 for score in inside):
        return None
    for count in range(1, MOST_ANSWERS):
        if all(abs(score * count - round(score * count)) < 1e-6 * count for score in inside):
            return count
    return None
