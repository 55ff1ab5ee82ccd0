"""One training log as series of numbers by step, read through the importers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from gspo_lab.analysis.diagnosis.own_run import MINIBATCHES, read_own_run
from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping, OptionalText
from gspo_lab.common.text import first_few
from gspo_lab.exchange.importers import read_log as read_run
from gspo_lab.exchange.importers.base import JSON_TEXT, RunSpec, head_of
from gspo_lab.exchange.importers.metric_names import Metric, recognise
from gspo_lab.exchange.importers.run_specs import RunLog, runs_inside
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
}
"""Pattern of a file, or of a file in a folder -> the source that reads it."""
CONFIGS = ("args.json", "config.yaml")
"""Configurations beside a log, as ms-swift and AReaL leave them."""
VERSIONS = ("swift_version", "trl_version", "verl_version", "version", "transformers_version")
"""Keys of a program's version."""
MOST_ANSWERS = 2000
ANSWERS = "answers/"
"""Prefix of the number of answers to a benchmark."""
Rows = dict[str, dict[int, float]]
"""Numbers by column or own name, and by step."""


@dataclass(frozen=True)
class Series:
    """One number of the log by step. `name` is the log's own name of it.

    `hidden` rows were printed as a rounded zero, and are not in `values`.
    """

    name: str
    steps: Floats
    values: Floats
    hidden: int = 0

    def __len__(self) -> int:
        return len(self.values)

    @property
    def low(self) -> float:
        """The smallest possible mean over all rows."""
        return float(self.values.sum()) / (len(self) + self.hidden)

    @property
    def mean_text(self) -> str:
        """The mean over all rows with two digits, the smallest possible one if rows are hidden."""
        hidden = f" or more ({self.hidden} rows printed as a rounded zero)" if self.hidden else ""
        return f"{self.low:.2g}{hidden}"

    @property
    def start(self) -> float:
        """The mean over the first fifth of the rows."""
        return float(np.mean(self.values[: max(1, len(self) // 5)]))

    @property
    def end(self) -> float:
        """The mean over the last fifth of the rows."""
        return float(np.mean(self.values[-max(1, len(self) // 5) :]))


@dataclass
class TrainingLog:
    """A log with its settings.

    `settings` are the lab's dotted settings as far as the log or the user states them, `config` the
    program's own keys, without secrets. `rounded` are names that were printed as 0.000 at some
    steps, with that text and how many steps. `rows` holds each column, or
    the program's own name, by step.
    """

    source: str
    program: str
    version: OptionalText
    settings: JsonMapping
    config: JsonMapping
    notes: Sequence[str] = ()
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    rounded: dict[str, tuple[str, int]] = field(default_factory=dict)
    rows: Rows = field(default_factory=dict)

    def first_of(self, *names: str) -> Series | None:
        """The first of these columns, own names or quantities that has a number."""
        for name in names:
            keys = [name]
            for logged, metric in self.metrics.items():
                if metric.quantity == name:
                    keys += [metric.column or logged, logged]
            for key in keys:
                if key in self.rows:
                    logged = next(
                        (own for own, metric in self.metrics.items() if metric.column == key), key
                    )
                    steps, values = np.array([*self.rows[key].items()]).T
                    _, hidden = self.rounded.get(logged, ("", 0))
                    return Series(logged, steps, values, hidden)
        return None


def read_log(
    spec: RunSpec, run: OptionalText = None, settings: JsonMapping | None = None
) -> TrainingLog:
    """Read a log by its spec, whose source may be "" (guessed from the path).

    `run` names one of several runs inside. `settings` are dotted settings, which go over the log's.
    LabError for a log that cannot be read.
    """
    path = Path(spec.path)
    name = without_home(str(path))
    stated = settings or {}
    spec = spec.replace(source=spec.source or guess_source(path))
    if spec.source == OWN_RUN:
        declared, version, records = read_own_run(path)
        public, _ = public_settings(declared)
        rows = _rows(records, MINIBATCHES, 0)
        return TrainingLog(name, OWN_RUN, version, {**public, **stated}, public, rows=rows)
    if spec.source == "verl" and spec.logged_by is None:
        # AReaL's hook writes the same form
        names = (_head(path) or {}).get("data", ())
        spec = spec.replace(logged_by=recognise(names, None))
    inside = _run_inside(path, spec, run)
    spec = spec.replace(config=spec.config or _config_beside(path))
    converted = read_run(RunLog("", 0, path, inside, spec), Path(), dict(stated))
    content = converted.log
    rows = _rows(converted.records(), {"": slice(None)}, converted.names.counts_from or 0)
    versions = filter(None, [content.version, *map(converted.public.get, VERSIONS)])
    meant = (metric.quantity or metric.column for metric in converted.metrics.values())
    if not any(meant) and not converted.benches:
        content.notes.append(
            f"none of its names is known ({first_few(converted.metrics)}): name them by --map"
            " COLUMN=NAME"
        )
    return TrainingLog(
        name,
        content.program,
        next(map(str, versions), None),
        {**converted.settings, **stated},
        converted.public,
        tuple(dict.fromkeys(content.notes)),
        converted.metrics,
        converted.rounded,
        rows,
    )


def _rows(records: Iterable[Record], minibatches: Mapping[str, slice], counts_from: int) -> Rows:
    """All numbers of a log by the program's own steps, which count from `counts_from`. Those of
    updates are means over the mini-batches that stand with each prefix.
    """
    found: dict[tuple[str, int], list[Any]] = {}
    for record in records:
        # What a mini-batch lacks is None here, so that every list begins with mini-batch 0.
        numbers = {entry.name: getattr(record, entry.name) for entry in fields(record)}
        step = record.step
        if isinstance(record, AnswerRecord):
            numbers = {f"score/{record.bench}": record.correct or 0, ANSWERS + record.bench: 1}
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
                together = sum(present) if name.startswith(ANSWERS) else fmean(present)
                rows.setdefault(prefix + name, {})[step] = together
    return rows


def guess_source(path: Path) -> str:
    """The source that reads a path. LabError where nothing tells, or nothing is there."""
    if not path.exists():
        raise LabError(f"{path}: no such file or folder; give the path of a log")
    for pattern, source in SOURCES.items():
        in_folder = path.is_dir() and pattern[:2] != "*." and any(path.glob(pattern))
        if in_folder or (path.is_file() and path.absolute().match(pattern)):
            return source
    if path.is_dir():
        raise LabError(f"{path}: no log in this folder is known; name its kind: --source")
    if '"log_history"' in head_of(path):
        return "trl"
    entry = _head(path)
    if entry is None or isinstance(entry.get("data"), dict):
        return "verl"
    return "items" if {"problem", "correct"} <= entry.keys() else "jsonl"


def _head(path: Path) -> JsonMapping | None:
    """The first object of JSON Lines; None for a console's text."""
    return next(entries(path), ("", {}))[1] if JSON_TEXT.match(head_of(path)) else None


def _run_inside(path: Path, spec: RunSpec, run: OptionalText) -> str:
    """The name of the run to read. LabError if the file holds several and none is named."""
    inside = runs_inside(path, spec)
    if run is None and len(inside) == 1:
        return inside[0]
    if run is None or run not in inside:
        raise LabError(f"{path}: name one run of it: --run NAME; it holds {first_few(inside, 8)}")
    return run


def _config_beside(path: Path) -> OptionalText:
    """The configuration that a program left beside its log."""
    folder = path if path.is_dir() else path.parent
    files = (folder / name for name in CONFIGS)
    return next((str(file) for file in files if file.is_file()), None)


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
