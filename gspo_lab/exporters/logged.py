"""What is exported of a run: a row per step of every number that was measured, as a program that logs would have it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gspo_lab.files import whole
from gspo_lab.importers.log import Row
from gspo_lab.importers.names import OF_STEPS, OF_UPDATES
from gspo_lab.store.answers import read_scores
from gspo_lab.store.export import write_table
from gspo_lab.store.records import read_spans, span_width
from gspo_lab.store.schema import UPDATES
from gspo_lab.study import flat

if TYPE_CHECKING:
    from gspo_lab.stats.arrays import Floats
    from gspo_lab.store import Evidence

NAMES = OF_STEPS | OF_UPDATES
FLAG = "nonfinite"
"""Of a step it is 1 where it is of any update."""
COUNTS = {name for name in OF_UPDATES if UPDATES.column(name).type == "INTEGER"} - {FLAG}
"""What is counted of an update: of a step it is the sum."""
SCORE = "score/"
"""Before a benchmark's name: what `gspo-lab import` reads as its score."""


def readings() -> dict[str, str]:
    """Per exported number the key of the reading whose value at a step it is (`readings.by_step`)."""
    from gspo_lab.readings import Reading, Reduce, Steps, Window

    how = {**dict.fromkeys(COUNTS, Reduce.SUM), FLAG: Reduce.LARGEST}
    return {name: Reading(name, Window(Steps.ALL), how.get(name, Reduce.MEAN)).key for name in sorted(NAMES)}


def write_log(runs: Sequence["Logged"], folder: Path, format: str) -> Path:
    """`log.csv` or `log.parquet`: arm, seed, step and a column per number; what was not measured is empty, or null."""
    names = list(dict.fromkeys(name for run in runs for _, row in run.rows() for name in row))
    path = folder / f"log.{format}"
    types = {"arm": "TEXT", "seed": "INTEGER", "step": "INTEGER", **dict.fromkeys(names, "REAL")}
    write_table(
        path, types, ([run.arm, run.seed, step, *map(row.get, names)] for run in runs for step, row in run.rows())
    )
    return path


def write_readings(folder: Path) -> Path:
    """`readings.json`: what the exported numbers are readings of."""
    path = folder / "readings.json"
    with whole(path) as beside:
        beside.write_text(json.dumps(readings(), indent=2) + "\n", encoding="utf-8")
    return path


@dataclass(frozen=True)
class Logged:
    """One run. `columns` has per metric its value at each step from `first` on, NaN where it was not measured: of a
    rollout batch, or the mean over its updates by the rule of the report's charts, of counts the sum. `scores` has per
    step that of each benchmark, counted in rollout batches done (0: before the first)."""

    id: str
    arm: str
    seed: int
    started_at: float
    """Seconds since 1970; 0 where that was not recorded. Single steps have no time."""
    settings: Mapping[str, Any]
    first: int
    columns: "Mapping[str, Floats]"
    scores: Mapping[int, Mapping[str, float]]

    def rows(self) -> Iterator[Row]:
        """Step and numbers, steps rising; steps without any number are left out."""
        end = self.first + max(map(len, self.columns.values()), default=0)
        for step in range(self.first, max(end, *(at + 1 for at in self.scores), 0)):
            row = {name: float(values[step - self.first]) for name, values in self.columns.items() if step < end}
            row = {name: value for name, value in row.items() if value == value}
            row |= {SCORE + bench: score for bench, score in self.scores.get(step, {}).items()}
            if row:
                yield step, row


def logged(evidence: "Evidence", study: str, since: Mapping[str, int] | None = None) -> list[Logged]:
    """Every run of a study, arm by arm, seed by seed; of `since` those runs alone, each from a step on.

    LabError for a study that the database lacks.
    """
    import numpy as np

    every = span_width(evidence, study, 1)  # one span for all steps: as wide as there are steps
    steps = read_spans(evidence, study, "steps", sorted(OF_STEPS), buckets=every, since=since)
    updates = read_spans(
        evidence,
        study,
        "updates",
        sorted(OF_UPDATES - {FLAG}),
        buckets=every,
        extremes=(FLAG,),
        totals=COUNTS,
        since=since,
    )
    scores = read_scores(evidence, study).dropna(subset=["score"])
    told = {str(row["run_id"]): row for row in evidence.runs(study).to_dict("records")}
    out = []
    for run in steps:
        found = {name: values for spans in (steps, updates) for name, values in spans[run].items()}
        found[FLAG] = found[f"{FLAG}.high"]
        own: dict[int, dict[str, float]] = {}
        for row in scores[scores["run_id"] == run.id].to_dict("records"):
            own.setdefault(int(row["step"]), {})[str(row["bench"])] = float(row["score"])
        out.append(
            Logged(
                run.id,
                run.arm,
                run.seed,
                float(np.nan_to_num(told[run.id]["started_at"])),
                {key: value for key, value in flat(_object(told[run.id]["settings"])).items() if value is not None},
                0 if since is None else since[run.id],
                {name: values for name, values in found.items() if name in NAMES and not np.isnan(values).all()},
                own,
            )
        )
    return out


def _object(text: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text) if isinstance(text, str) else {}
    return found
