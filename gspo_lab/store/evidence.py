"""Reading the database: labelled frames for statistics and reports. Nothing here can write."""

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from gspo_lab.errors import LabError
from gspo_lab.registry import nearest
from gspo_lab.store.schema import ANSWERS, RECORD_TABLES, RUNS, WITH_GRADES, in_force
from gspo_lab.store.snapshot import Snapshot

if TYPE_CHECKING:
    from pandas import DataFrame

    from gspo_lab.store.columns import Floats, Run

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


LONG = 64
"""Tokens from which on two sampled answers are hardly ever the same by chance."""


class Evidence:
    """What was recorded, as of the moment of `open`: all frames show the same state, however long they take to read.

    `with Evidence.open(Path("runs/lab.db")) as evidence: evidence.scores("moe_stability")`
    What was not measured is NaN (numbers) or missing (texts); JSON columns are their text.
    """

    def __init__(self, snapshot: Snapshot, path: Path) -> None:
        self._snapshot = snapshot
        self._path = path
        self._runs: dict[str, list[Run]] = {}
        self._scores: dict[tuple[str, str | None], DataFrame] = {}

    @classmethod
    def open(cls, path: Path) -> "Evidence":
        """Open read-only. LabError if there is no database, it is damaged, foreign, or of another version."""
        return cls(Snapshot.open(path), path)

    def __enter__(self) -> "Evidence":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._snapshot.close()

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
        self, study: str, metrics: Sequence[str], *, run: str | None = None, at: Collection[int] | None = None
    ) -> "DataFrame":
        """run_id, arm, seed, step and the metrics of each rollout batch; `run` and `at` (steps) keep to some."""
        return self._records(study, "steps", ["step"], metrics, {"run_id": run}, at)

    def updates(
        self,
        study: str,
        metrics: Sequence[str],
        *,
        run: str | None = None,
        at: Collection[int] | None = None,
        minibatch: int | None = None,
        nonfinite: int | None = None,
    ) -> "DataFrame":
        """run_id, arm, seed, step, minibatch and the metrics of each update; the rest keeps to some of them."""
        only = {"run_id": run, "minibatch": minibatch, "nonfinite": nonfinite}
        return self._records(study, "updates", ["step", "minibatch"], metrics, only, at)

    def scores(self, study: str, evaluation: str | None = "") -> "DataFrame":
        """run_id, arm, seed, bench, step, problems, answers, score, errors, truncated, evaluation.

        `score` is the mean over problems of the mean `correct` of a problem's answers; answers whose grader failed are
        counted in `errors` and not in the score (NaN if none was graded); `truncated` counts answers cut at the limit.
        `evaluation` "" (the default) keeps to what the runs recorded as they trained; a name takes that later
        evaluation of their checkpoints, None takes everything: then a (run, bench, step) may occur more than once.
        """
        if (study, evaluation) not in self._scores:
            self.study(study)
            names = ("problems", "answers", "score", "errors", "truncated")
            where, values = ("WHERE evaluation = ?", [evaluation]) if evaluation is not None else ("", [])
            frame = self._frame(
                f"SELECT run_id, arm, seed, bench, step, {_quoted(names)}, evaluation "
                f"FROM chosen JOIN scores USING (run_id) {where} ORDER BY {IN_ORDER}, evaluation, bench, step",
                study,
                *values,
            )
            self._scores[study, evaluation] = _with_numbers(frame, names)
        return self._scores[study, evaluation].copy()

    def subjects(self) -> "DataFrame":
        """run_id, kind, name and content (JSON text) of every model and server that was asked without a run."""
        return self._table("SELECT run_id, kind, name, content FROM subjects ORDER BY run_id")

    def later(self, runs: Sequence[str] | None = None) -> "DataFrame":
        """run_id, evaluation, bench, content (evaluation.json) of later evaluations of runs and subjects, or of all."""
        where = "" if runs is None else f"WHERE run_id IN ({', '.join('?' * len(runs))}) "
        query = f"SELECT run_id, evaluation, bench, content FROM evaluations {where}ORDER BY run_id, evaluation"
        return self._table(query, *(runs or ()))

    def by_problem(self, runs: Sequence[str], evaluation: str) -> "DataFrame":
        """run_id, bench, step, problem and counts over its answers in a later evaluation: answers, graded, correct,
        errors, truncated, distinct (different texts), long (of LONG tokens or more), repeats (long ones had before).

        Grades are those in force. `runs` are ids of runs or subjects.
        """
        long = f"CASE WHEN tokens >= {LONG} THEN text END"
        query = f"""
            SELECT run_id, bench, step, problem, COUNT(*) AS answers, COUNT(correct) AS graded,
                   COALESCE(SUM(correct), 0) AS correct, SUM(correct IS NULL) AS errors, SUM(truncated) AS truncated,
                   COUNT(DISTINCT text) AS "distinct", COUNT({long}) AS long,
                   COUNT({long}) - COUNT(DISTINCT {long}) AS repeats
            FROM (SELECT {_in_force((*ANSWERS.key, "correct", "truncated", "tokens", "text"))}
                  FROM answers {WITH_GRADES} WHERE evaluation = ? AND run_id IN ({", ".join("?" * len(runs))}))
            GROUP BY run_id, bench, step, problem ORDER BY run_id, bench, step, problem"""
        return self._table(query, evaluation, *runs)

    def stored(self, run: str) -> dict[str, list[tuple[Any, ...]]]:
        """By evaluation ("" for a run's own) the benchmark answers of a run or subject, with the grades in force.

        A row: bench, step, problem, sample, text, truncated, extracted, reward, correct, reason, error, grader,
        isolation.
        """
        asked = ("bench", "step", "problem", "sample", "text", "truncated")
        graded = ("extracted", "reward", "correct", "reason", "error", "grader", "isolation")
        query = (
            f"SELECT answers.evaluation, {_in_force((*asked, *graded))} FROM answers {WITH_GRADES} "
            "WHERE run_id = ? AND bench <> 'rollout' ORDER BY answers.evaluation, answers.rowid"
        )
        out: dict[str, list[tuple[Any, ...]]] = {}
        for evaluation, *row in self._rows(query, (run,)):
            out.setdefault(evaluation, []).append(tuple(row))
        return out

    def answers(self, study: str, bench: str, step: int | None = None, evaluation: str = "") -> "DataFrame":
        """run_id, arm, seed and every column of the answers to a benchmark (or 'rollout'), at one step or at all.

        Grades are those in force: the last of `gspo-lab grade --apply`, else the first.
        """
        self.study(study)
        query = (
            f"{CHOSEN} SELECT DISTINCT bench FROM answers JOIN chosen USING (run_id) WHERE evaluation = ? ORDER BY 1"
        )
        names = [name for (name,) in self._rows(query, (study, evaluation))]
        if bench not in names:
            raise LabError(
                f"no answers to '{bench}'{nearest(bench, names)} in '{study}'; it has {', '.join(names) or 'none'}"
            )
        columns = [name for name in ANSWERS.names if name not in ("run_id", "evaluation")]
        frame = self._frame(
            f"SELECT run_id, arm, seed, {_in_force(columns)} FROM chosen JOIN answers USING (run_id) {WITH_GRADES} "
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
        names = ("bench", "step", "problem", "sample", "prompt", "reference", "grader", "text")
        query = f"SELECT {_in_force(names)} FROM answers {WITH_GRADES} WHERE run_id = ? AND evaluation = '' "
        return self._rows(query + "ORDER BY answers.rowid", (run,))

    def width(self, study: str, buckets: int = 250) -> int:
        """How many steps each of at most `buckets` spans holds, so that they cover the study's longest run."""
        if buckets < 1:
            raise LabError(f"buckets: at least 1, got {buckets}")
        from gspo_lab.store.aggregates import last_step

        ends = [last_step(self._snapshot, table, run) for run in self._chosen(study) for table in ("steps", "updates")]
        return max(1, math.ceil((max(ends, default=-1) + 1) / buckets))

    def buckets(
        self,
        study: str,
        table: str,
        metrics: Sequence[str],
        *,
        buckets: int = 250,
        extremes: Collection[str] = (),
    ) -> "DataFrame":
        """run_id, arm, seed, span, x and the mean of each metric over at most `buckets` spans of steps, made in SQL.

        All metrics are read in one pass. Those in `extremes` also have columns `<metric>.low` and `<metric>.high`. All
        runs and both tables share the spans, so that their x agree: x is the middle of the steps that a span holds, and
        a step is a span of its own while there are no more than `buckets` steps. A share of tokens is that of all the
        span's. What was not measured is left out of the mean; a span without any measurement is NaN.
        """
        from gspo_lab.store.aggregates import mean_of, over_spans

        width = self.width(study, buckets)
        if table not in ("steps", "updates"):
            raise LabError(f"buckets: from steps or updates, got '{table}'")
        columns = {name: mean_of(table, name) for name in self._numbers(table, metrics)}
        for name in self._numbers(table, extremes):
            columns |= {f"{name}.low": f'MIN("{name}")', f"{name}.high": f'MAX("{name}")'}
        return over_spans(self._snapshot, self._chosen(study), table, columns, width)

    def by_minibatch(
        self, study: str, weights: Mapping[str, str], *, since: Mapping[str, int] | None = None
    ) -> "DataFrame":
        """run_id, arm, seed, minibatch, and per metric of `weights` its weighted mean over the run's updates and the
        sum of its weights, `<metric>.weight`: one row per run and mini-batch index, made in SQL.

        `weights` names the column that weighs each metric; where that was not recorded an update counts as 1. `since`
        has per arm the first step that counts. A metric without any measurement is NaN with weight 0.
        """
        from gspo_lab.store.aggregates import over_minibatches

        self._numbers("updates", [*weights, *weights.values()])
        return over_minibatches(self._snapshot, self._chosen(study), weights, since or {})

    def details(self, study: str, *, at: Collection[int]) -> "DataFrame":
        """run_id, arm, seed, step, minibatch, length and sum_log_ratio (JSON lists) of updates with response_detail."""
        from gspo_lab.store.aggregates import details

        return details(self._snapshot, self._chosen(study), at)

    def series(self, study: str, table: str, metric: str) -> "dict[str, tuple[Floats, Floats]]":
        """Per run id the steps and the values of every measurement of one number, for what SQL cannot say: medians."""
        from gspo_lab.store.aggregates import series

        self._numbers(table, [metric])
        return series(self._snapshot, self._chosen(study), table, metric)

    def prompt_digests(self, run: str) -> dict[int, str]:
        """Per step of a run the rolling digest of its prompts, where it was recorded."""
        query = "SELECT step, prompt_digest FROM steps WHERE run_id = ? AND prompt_digest IS NOT NULL"
        return dict(self._rows(query, (run,)))

    def prompt_streams(self, study: str) -> dict[str, tuple[int, str | None]]:
        """Per run id the number of `prompt_digests`, and a fingerprint of them all with their steps."""
        from gspo_lab.store.aggregates import prompt_streams

        self._check("steps", ["prompt_digest"])
        return prompt_streams(self._snapshot, self._chosen(study))

    def first_minibatches(self, study: str, metrics: Sequence[str]) -> dict[str, tuple[int, bool, int | None]]:
        """Per run id, of its updates with minibatch 0: how many have all metrics, whether any metric of any is not 0,
        and the first step at which all are recorded and one is not 0."""
        from gspo_lab.store.aggregates import first_minibatches

        return first_minibatches(self._snapshot, self._chosen(study), self._numbers("updates", metrics))

    def select(self, study: str, query: str, *values: Any) -> "DataFrame":
        """The rows of one SELECT that may join `chosen`: run_id, arm, seed and place of the study's runs."""
        self.study(study)
        return self._frame(query, study, *values)

    def _records(
        self,
        study: str,
        table: str,
        key: list[str],
        metrics: Sequence[str],
        only: Mapping[str, Any],
        at: Collection[int] | None,
    ) -> "DataFrame":
        """Rows of a record table; of `only` the entries that are not None pick rows."""
        from gspo_lab.store.columns import framed

        runs = self._chosen(study)
        wanted = [name for name in dict.fromkeys(metrics) if name not in key]
        self._check(table, wanted)
        picked = {name: value for name, value in only.items() if value is not None and name != "run_id"}
        where = "".join(f" AND {name} = ?" for name in picked)
        if at is not None:
            where += " AND step IN (SELECT value FROM json_each(?))"
            picked["step"] = json.dumps(sorted(at))
        query = f"SELECT {_quoted([*key, *wanted])} FROM {table} WHERE run_id = ?{where} ORDER BY {', '.join(key)}"
        found = {run: self._rows(query, (run.id, *picked.values())) for run in runs if only["run_id"] in (None, run.id)}
        kinds = {name: RECORD_TABLES[table].column(name).type for name in wanted}
        types: dict[str, type] = {"TEXT": object, "REAL": float, "INTEGER": int}
        return framed(found, {**dict.fromkeys(key, int), **{name: types[kind] for name, kind in kinds.items()}})

    def _chosen(self, study: str) -> "list[Run]":
        """The study's runs in order. LabError for a study that the database lacks."""
        from gspo_lab.store.columns import Run

        if study not in self._runs:
            self.study(study)
            query = f"{CHOSEN} SELECT run_id, arm, seed FROM chosen ORDER BY {IN_ORDER}"
            self._runs[study] = [Run(*row) for row in self._rows(query, (study,))]
        return self._runs[study]

    def _numbers(self, table: str, metrics: Iterable[str]) -> list[str]:
        """The metrics without repetition; LabError if one is no number of that table."""
        wanted = list(dict.fromkeys(metrics))
        self._check(table, wanted)
        for column in map(RECORD_TABLES[table].column, wanted):
            if column.type == "TEXT":
                raise LabError(f"{table}.{column.name} is {'JSON' if column.json else 'text'}, not a number")
        return wanted

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
        return self._snapshot.rows(query, values)

    def _frame(self, query: str, study: str, *values: Any) -> "DataFrame":
        """A query over the study's runs, which it finds in `chosen`."""
        return self._table(CHOSEN + query, study, *values)

    def _table(self, query: str, *values: Any) -> "DataFrame":
        from pandas import DataFrame

        names, rows = self._snapshot.table(query, values)
        return DataFrame.from_records(rows, columns=names)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _in_force(names: Iterable[str]) -> str:
    return ", ".join(map(in_force, names))


def _with_numbers(frame: "DataFrame", columns: Iterable[str]) -> "DataFrame":
    """Numbers as numbers: a column that holds only NULL would else be one of objects."""
    return frame.astype({name: "float64" for name in columns if frame[name].dtype == object})
