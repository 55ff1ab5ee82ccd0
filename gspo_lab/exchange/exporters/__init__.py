"""Export a study's numbers to TensorBoard, trackio, W&B and tables. `gspo-lab import` reads them
back.

Every target writes the same rows under the same names (`RunRows`): all at once by `export`, or
while a study runs by `live_export`. A new target is a module with `NEEDS` and `writer` (`Target`),
and a line in TARGETS.
"""

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gspo_lab.common.atomic_files import atomic_folder
from gspo_lab.common.errors import LabError, require_package
from gspo_lab.common.plain_data import JsonMapping
from gspo_lab.common.registry import names_of, nearest
from gspo_lab.exchange.importers.base import LoggedRow
from gspo_lab.exchange.importers.metric_names import OF_STEPS, OF_UPDATES
from gspo_lab.recording.store.answers import score_rows
from gspo_lab.recording.store.export import write_table
from gspo_lab.recording.store.schema import UPDATES
from gspo_lab.study import flat

if TYPE_CHECKING:
    from gspo_lab.analysis.stats.array_checks import Floats
    from gspo_lab.recording.store import Evidence

TARGETS = {
    "tensorboard": "gspo_lab.exchange.exporters.tensorboard",
    "trackio": "gspo_lab.exchange.exporters.trackio",
    "wandb-offline": "gspo_lab.exchange.exporters.wandb",
}
"""Name of a program -> the module that writes for it.

Installed packages add theirs by entry points `gspo_lab.writers`."""


NAMES = OF_STEPS | OF_UPDATES
FLAG = "nonfinite"
"""The column that is 1 for a step if it is 1 for any update."""
COUNTS = {name for name in OF_UPDATES if UPDATES.column(name).type == "INTEGER"} - {FLAG}
"""Counts of updates; of a step the sum."""
SCORE = "score/"
"""Prefix of a benchmark's name, which marks its score for `gspo-lab import`."""


@dataclass(frozen=True)
class RunRows:
    """One run. `columns`: per metric its value at each step from `first`, NaN: not measured.

    A value is of a rollout batch, or the mean over its updates as in the report's charts, or the
    sum of counts. `scores`: steps done -> benchmark -> score (step 0: before training).
    """

    id: str
    arm: str
    seed: int
    started_at: float
    """Seconds since 1970; 0: not recorded. Steps have no time."""
    settings: JsonMapping
    start: int
    columns: "Mapping[str, Floats]"
    scores: Mapping[int, Mapping[str, float]]

    def rows(self) -> Iterator[LoggedRow]:
        """(step, numbers) in order of steps; steps without a number are left out."""
        end = self.start + max(map(len, self.columns.values()), default=0)
        for step in range(self.start, max(end, *(scored + 1 for scored in self.scores), 0)):
            row = {
                name: float(values[step - self.start])
                for name, values in self.columns.items()
                if step < end
            }
            row = {name: value for name, value in row.items() if value == value}
            row |= {SCORE + bench: score for bench, score in self.scores.get(step, {}).items()}
            if row:
                yield step, row


class StudyWriter(Protocol):
    """Writes a study in one program's format."""

    def begin(self, run: RunRows, rows: Sequence[LoggedRow]) -> int:
        """Prepare a run.

        Returns how many of `rows`, from the first, it already holds; later rows in it are deleted.
        """

    def add(self, run: RunRows, rows: Iterable[LoggedRow]) -> None:
        """Append rows to a begun run."""


class Target(Protocol):
    """A module for one program. `NEEDS`: its package, the extra of gspo-lab, and the purpose."""

    NEEDS: tuple[str, str, str]

    def writer(self, study: str, folder: Path) -> AbstractContextManager[StudyWriter]:
        """A writer of a study's runs into a separate folder."""


def target(name: str) -> Target:
    """The module of TARGETS or of an installed package.

    LabError for an unknown name or a missing package.
    """
    modules = names_of("writer", TARGETS)
    if name not in modules:
        raise LabError(
            f"no program '{name}' to write for{nearest(name, modules)}; known:"
            f" {', '.join(modules)}; tables: csv, parquet"
        )
    module: Target = importlib.import_module(modules[name])
    require_package(*module.NEEDS)
    return module


def export(evidence: "Evidence", study: str, to: Path, format: str) -> Path:
    """Write a study's runs for a program of TARGETS to the folder `<to>/<study>-<format>`, replaced
    atomically.

    LabError if the study has no number yet, or the program's package is missing.
    """
    program = target(format)
    runs = read_run_rows(evidence, study)
    if not any(run.columns or run.scores for run in runs):
        raise LabError(f"{study} has recorded no number yet; nothing to export")
    to.mkdir(parents=True, exist_ok=True)
    folder = to / f"{study}-{format}"
    with atomic_folder(folder) as draft:
        draft.mkdir(exist_ok=True)
        with program.writer(study, draft) as writer:
            for run in runs:
                writer.begin(run, ())
                writer.add(run, run.rows())
    return folder


def write_log(runs: Sequence["RunRows"], folder: Path, format: str) -> Path:
    """`log.csv` or `log.parquet`: arm, seed, step and a column per number; empty or null if not
    measured.
    """
    columns: dict[str, None] = {}
    for run in runs:
        for _, row in run.rows():
            columns.update(dict.fromkeys(row))
    names = list(columns)
    path = folder / f"log.{format}"
    types = {"arm": "TEXT", "seed": "INTEGER", "step": "INTEGER", **dict.fromkeys(names, "REAL")}
    write_table(path, types, _table_rows(runs, names))
    return path


def _table_rows(runs: Iterable[RunRows], names: Sequence[str]) -> Iterator[list[Any]]:
    """A row of values per run and step, in the order of `names`; None: not measured."""
    for run in runs:
        for step, row in run.rows():
            yield [run.arm, run.seed, step, *map(row.get, names)]


def read_run_rows(
    evidence: "Evidence", study: str, since: Mapping[str, int] | None = None
) -> list[RunRows]:
    """Every run of a study by arm and seed; with `since` only its runs, each from a step.

    LabError: unknown study.
    """
    import numpy as np

    from gspo_lab.analysis.readings.spans import read_spans, span_width

    width = span_width(evidence, study, 1)  # one span for all steps: as wide as there are steps
    steps = read_spans(evidence, study, "steps", sorted(OF_STEPS), buckets=width, since=since)
    updates = read_spans(
        evidence,
        study,
        "updates",
        sorted(OF_UPDATES - {FLAG}),
        buckets=width,
        extremes=(FLAG,),
        totals=COUNTS,
        since=since,
    )
    scores = [row for row in score_rows(evidence, study) if row["score"] is not None]
    runs = {row["run_id"]: row for row in evidence.run_rows(study)}
    out = []
    for run in steps:
        columns = {**steps[run], **updates[run]}
        columns[FLAG] = columns[f"{FLAG}.high"]
        run_scores: dict[int, dict[str, float]] = {}
        for row in scores:
            if row["run_id"] == run.id:
                run_scores.setdefault(row["step"], {})[row["bench"]] = row["score"]
        out.append(
            RunRows(
                run.id,
                run.arm,
                run.seed,
                runs[run.id]["started_at"] or 0.0,
                {
                    key: value
                    for key, value in flat(json.loads(runs[run.id]["settings"])).items()
                    if value is not None
                },
                0 if since is None else since[run.id],
                {
                    name: values
                    for name, values in columns.items()
                    if name in NAMES and not np.isnan(values).all()
                },
                run_scores,
            )
        )
    return out
