"""Reading the database: labelled frames for statistics and reports. Nothing here can write."""

import json
import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from gspo_lab.errors import LabError
from gspo_lab.registry import nearest
from gspo_lab.store.database import explained, reading
from gspo_lab.store.schema import ANSWERS, RECORD_TABLES, RUNS

if TYPE_CHECKING:
    from pandas import DataFrame

CHOSEN = """\
WITH chosen AS MATERIALIZED (
  SELECT run_id, arm, seed,
         (SELECT arms.id FROM studies, json_each(studies.content, '$.arms') AS arms
          WHERE studies.study = runs.study AND arms.key = runs.arm) AS place
  FROM runs WHERE study = ? AND state <> 'missing'
)
"""
"""A study's runs with the place of their arm in the study file. Runs whose folder is gone are no evidence."""

IN_ORDER = "place IS NULL, place, arm, seed, run_id"


class Evidence:
    """What was recorded, as of the moment of `open`: all frames show the same state, however long they take to read.

    `with Evidence.open(Path("runs/lab.db")) as evidence: evidence.scores("moe_stability")`
    What was not measured is NaN (numbers) or missing (texts); JSON columns are their text.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    @classmethod
    def open(cls, path: Path) -> "Evidence":
        """Open read-only. LabError if there is no database, it is damaged, foreign, or of another version."""
        return cls(reading(path), path)

    def __enter__(self) -> "Evidence":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    @property
    def runs_folder(self) -> Path:
        """The folder that holds the database, and the studies' folders beside it."""
        return self._path.parent

    def studies(self) -> list[str]:
        """The studies' names, the one with the most recent activity last."""
        query = """
            SELECT study FROM studies LEFT JOIN runs USING (study)
            LEFT JOIN (SELECT run_id, MAX(at) AS at FROM statuses GROUP BY run_id) USING (run_id)
            GROUP BY study ORDER BY COALESCE(MAX(at), declared_at), study"""
        return [study for (study,) in self._rows(query)]

    def study(self, name: str) -> dict[str, Any]:
        """The content of the study's study.json."""
        found = self._rows("SELECT content FROM studies WHERE study = ?", (name,))
        if not found:
            known = self.studies()
            raise LabError(
                f"no study '{name}'{nearest(name, known)} in {self._path}; it has {', '.join(known) or 'none'}"
            )
        content: dict[str, Any] = json.loads(found[0][0])
        return content

    def runs(self, study: str) -> "DataFrame":
        """One row per run, in the order of the study's arms, then seeds. `settings` and `facts` are JSON text."""
        self.study(study)
        rest = [name for name in RUNS.names if name not in ("run_id", "study", "arm", "seed")]
        frame = self._frame(
            f"SELECT run_id, study, arm, seed, {_quoted(rest)} FROM chosen "
            f"JOIN (SELECT run_id, study, {_quoted(rest)} FROM runs) USING (run_id) ORDER BY {IN_ORDER}",
            study,
        )
        return _with_numbers(frame, ("steps_done", "steps_planned", "started_at", "finished_at"))

    def starts(self, study: str) -> "DataFrame":
        """run_id, arm, seed, step and facts (JSON text) of each worker that took a run up, in their order."""
        self.study(study)
        query = (
            "SELECT run_id, arm, seed, step, facts FROM chosen JOIN statuses USING (run_id) "
            f"WHERE state = 'started' AND evaluation = '' ORDER BY {IN_ORDER}, position"
        )
        return self._frame(query, study)

    def steps(
        self, study: str, metrics: Sequence[str], *, run: str | None = None, step: int | None = None
    ) -> "DataFrame":
        """run_id, arm, seed, step and the metrics of each rollout batch, of one run or step or of all."""
        return self._records(study, "steps", ["step"], metrics, {"run_id": run, "step": step})

    def updates(
        self, study: str, metrics: Sequence[str], *, run: str | None = None, minibatch: int | None = None
    ) -> "DataFrame":
        """run_id, arm, seed, step, minibatch and the metrics of each update, of one run or mini-batch or of all."""
        return self._records(study, "updates", ["step", "minibatch"], metrics, {"run_id": run, "minibatch": minibatch})

    def scores(self, study: str, evaluation: str | None = "") -> "DataFrame":
        """run_id, arm, seed, bench, step, problems, answers, score, errors, truncated, evaluation.

        `score` is the mean over problems of the mean `correct` of a problem's answers; answers whose grader failed are
        counted in `errors` and not in the score (NaN if none was graded); `truncated` counts answers cut at the limit.
        `evaluation` "" (the default) keeps to what the runs recorded as they trained; a name takes that later
        evaluation of their checkpoints, None takes everything: then a (run, bench, step) may occur more than once.
        """
        self.study(study)
        names = ("problems", "answers", "score", "errors", "truncated")
        where, values = ("WHERE evaluation = ?", [evaluation]) if evaluation is not None else ("", [])
        frame = self._frame(
            f"SELECT run_id, arm, seed, bench, step, {_quoted(names)}, evaluation "
            f"FROM chosen JOIN scores USING (run_id) {where} ORDER BY {IN_ORDER}, evaluation, bench, step",
            study,
            *values,
        )
        return _with_numbers(frame, names)

    def evaluations(self, study: str) -> list[str]:
        """The names of later evaluations of the study's runs."""
        self.study(study)
        query = "SELECT DISTINCT evaluation FROM answers JOIN chosen USING (run_id) WHERE evaluation <> '' ORDER BY 1"
        return [name for (name,) in self._rows(CHOSEN + query, (study,))]

    def answers(self, study: str, bench: str, step: int | None = None, evaluation: str = "") -> "DataFrame":
        """run_id, arm, seed and every column of the answers to a benchmark (or 'rollout'), at one step or at all."""
        self.study(study)
        known = self._rows(
            f"{CHOSEN} SELECT DISTINCT bench FROM answers JOIN chosen USING (run_id) WHERE evaluation = ? ORDER BY 1",
            (study, evaluation),
        )
        names = [name for (name,) in known]
        if bench not in names:
            raise LabError(
                f"no answers to '{bench}'{nearest(bench, names)} in '{study}'; it has {', '.join(names) or 'none'}"
            )
        columns = [name for name in ANSWERS.names if name not in ("run_id", "evaluation")]
        frame = self._frame(
            f"SELECT run_id, arm, seed, {_quoted(columns)} FROM chosen JOIN answers USING (run_id) "
            f"WHERE bench = ? AND evaluation = ? AND step = COALESCE(?, step) "
            f"ORDER BY {IN_ORDER}, step, problem, sample",
            study,
            bench,
            evaluation,
            step,
        )
        return _with_numbers(frame, [name for name in columns if ANSWERS.column(name).type != "TEXT"])

    def asked(self, run: str) -> list[tuple[str, int, str, int, str | None, str | None, str | None, str | None]]:
        """bench, step, problem, sample, prompt, reference, grader, text of a run's own answers, as they were asked."""
        names = "bench, step, problem, sample, prompt, reference, grader, text"
        return self._rows(f"SELECT {names} FROM answers WHERE run_id = ? AND evaluation = '' ORDER BY rowid", (run,))

    def buckets(self, study: str, table: str, metric: str, buckets: int = 250) -> "DataFrame":
        """run_id, arm, seed, x, mean, low, high of one number over at most `buckets` spans of steps, made in SQL.

        All runs share the spans, so that their x agree: x is the middle of the steps that a span holds, and a step is
        a span of its own while there are no more than `buckets` steps. An update counts with its step. What was not
        measured is left out of the mean; a span without any measurement is NaN.
        """
        self.study(study)
        if buckets < 1:
            raise LabError(f"buckets: at least 1, got {buckets}")
        if table not in ("steps", "updates"):
            raise LabError(f"buckets: from steps or updates, got '{table}'")
        self._check(table, [metric])
        column = RECORD_TABLES[table].column(metric)
        if column.type == "TEXT":
            raise LabError(f"buckets: {table}.{metric} is {'JSON' if column.json else 'text'}, not a number")
        join = f"FROM chosen JOIN {table} USING (run_id)"
        last = self._rows(f"{CHOSEN} SELECT MAX(step) {join}", (study,))[0][0]
        width = 1 if last is None else math.ceil((last + 1) / buckets)
        frame = self._frame(
            f"SELECT run_id, arm, seed, (MIN(step) + MAX(step)) / 2.0 AS x, "
            f'AVG("{metric}") AS mean, MIN("{metric}") AS low, MAX("{metric}") AS high {join} '
            f"GROUP BY {IN_ORDER}, step / ? ORDER BY {IN_ORDER}, x",
            study,
            width,
        )
        return _with_numbers(frame, ("x", "mean", "low", "high"))

    def _records(
        self, study: str, table: str, key: list[str], metrics: Sequence[str], only: Mapping[str, Any]
    ) -> "DataFrame":
        """Rows of a record table; of `only` the entries that are not None pick rows."""
        self.study(study)
        wanted = [name for name in dict.fromkeys(metrics) if name not in key]
        self._check(table, wanted)
        picked = {name: value for name, value in only.items() if value is not None}
        where = f"WHERE {' AND '.join(f'{name} = ?' for name in picked)} " if picked else ""
        frame = self._frame(
            f"SELECT run_id, arm, seed, {_quoted([*key, *wanted])} FROM chosen JOIN {table} USING (run_id) {where}"
            f"ORDER BY {IN_ORDER}, {', '.join(key)}",
            study,
            *picked.values(),
        )
        return _with_numbers(frame, [name for name in wanted if RECORD_TABLES[table].column(name).type != "TEXT"])

    def _check(self, table: str, metrics: Iterable[str]) -> None:
        """Every metric is a column: of the records, and of this file."""
        recorded = set(RECORD_TABLES[table].names)
        present = {name for _, name, *_ in self._rows(f"PRAGMA table_info({table})")}
        for name in metrics:
            if name not in recorded:
                raise LabError(
                    f"no metric '{name}' in {table}{nearest(name, recorded)}; docs/metrics.md lists them all"
                )
            if name not in present:
                raise LabError(f"{self._path} is older than the metric '{name}': gspo-lab rebuild")

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with explained(self._path):
            return self._connection.execute(query, values).fetchall()

    def _frame(self, query: str, *values: Any) -> "DataFrame":
        from pandas import DataFrame

        with explained(self._path):
            cursor = self._connection.execute(CHOSEN + query, values)
            names = [entry[0] for entry in cursor.description]
            return DataFrame.from_records(cursor.fetchall(), columns=names)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _with_numbers(frame: "DataFrame", columns: Iterable[str]) -> "DataFrame":
    """Numbers as numbers: a column that holds only NULL would else be one of objects."""
    return frame.astype({name: "float64" for name in columns if frame[name].dtype == object})
