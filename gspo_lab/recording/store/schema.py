"""The shape of the database: tables made from the records' fields, those of tables.toml, and the
views that scores are read from.

A record's field is a column of its table under the same name. A new field therefore needs nothing
here; databases without it are refused and made again. Meanings travel into the file as SQL comments
and as the table `metrics`, so that somebody who opens it with `sqlite3` or datasette finds every
column explained.
"""

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field, fields
from itertools import starmap
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import OptionalText, Strings, table_beside
from gspo_lab.common.registry import nearest
from gspo_lab.common.states import State
from gspo_lab.recording.records import (
    RECORDS,
    AnswerRecord,
    GradeRecord,
    Record,
    RunStatus,
    ScoreRecord,
    StepRecord,
    UpdateRecord,
)

SQL_TYPES: dict[Any, str] = {int: "INTEGER", float: "REAL", str: "TEXT", list: "TEXT", dict: "TEXT"}


@dataclass(frozen=True, slots=True)
class Column:
    """`type` is SQLite's (STRICT tables hold nothing else); `json` marks TEXT that holds a JSON
    list or object.
    """

    name: str
    type: str
    unit: str
    meaning: str
    json: bool = False
    required: bool = False
    per: OptionalText = None
    """The count that weighs a row in a mean over rows; None: every row counts alike."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """`clustered` tables are stored in the order of their key: right for many short rows, wrong for
    long texts.
    """

    name: str
    meaning: str
    key: Strings
    columns: tuple[Column, ...]
    clustered: bool = True
    names: Strings = field(init=False, repr=False, compare=False)
    """The columns' names in their order."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(column.name for column in self.columns))

    def column(self, name: str) -> Column:
        """The column of that name."""
        return next(column for column in self.columns if column.name == name)


def field_columns(record: type[Record]) -> list[Column]:
    """A record's fields as columns; fields without a default may not be NULL."""
    hints = get_type_hints(record)
    out = []
    for entry in fields(record):
        bare = next(
            (arg for arg in get_args(hints[entry.name]) if arg is not NoneType), hints[entry.name]
        )
        if get_origin(hints[entry.name]) in (list, dict):
            bare = hints[entry.name]
        kind = get_origin(bare) or bare
        meta = entry.metadata
        out.append(
            Column(
                entry.name,
                SQL_TYPES[kind],
                meta["unit"],
                meta["meaning"],
                kind in (list, dict),
                required=entry.default is MISSING,
                per=meta.get("per"),
            )
        )
    return out


_TOML = table_beside(__file__, "tables.toml")


def _column(name: str, entry: Any) -> Column:
    """A column of tables.toml."""
    if isinstance(entry, str):
        return Column(name, "TEXT", "-", entry)
    if "shared" in entry:
        return SHARED[name]
    return Column(name, unit="-", **{"type": "TEXT", **entry})


SHARED = {name: _column(name, entry) for name, entry in _TOML["shared"].items()}
"""The columns that several tables have."""


def _table(name: str) -> TableSpec:
    """A table of tables.toml."""
    entry = _TOML[name]
    columns = tuple(starmap(_column, entry["columns"].items()))
    return TableSpec(name, entry["meaning"], tuple(entry["key"]), columns)


def _record_table(
    record: type[Record], key: Strings, meaning: str, clustered: bool = True
) -> TableSpec:
    columns_of = field_columns(record)
    identity = [column for name, column in SHARED.items() if name in key]
    # JSON columns come last: a long row spills its end, and reading the numbers before it never
    # touches the spill.
    ordered = [
        *identity,
        *(c for c in columns_of if not c.json),
        *(c for c in columns_of if c.json),
    ]
    return TableSpec(record.table, meaning, key, tuple(ordered), clustered)


ABOUT = _table("about")
STUDIES = _table("studies")
RUNS = _table("runs")
SUBJECT_ROWS = _table("subjects")
EVALUATIONS = _table("evaluations")
METRICS = _table("metrics")
FILES = _table("files")
DAMAGED = _table("damaged")
STEPS = _record_table(StepRecord, ("run_id", "step"), "One row per rollout batch of a run.")
UPDATES = _record_table(
    UpdateRecord, ("run_id", "step", "minibatch"), "One row per optimizer update of a run."
)
ANSWERS = _record_table(
    AnswerRecord,
    ("run_id", "evaluation", "bench", "step", "problem", "sample"),
    "One row per answer: a benchmark's, or a training rollout's (bench = 'rollout').",
    clustered=False,
)
STATUSES = _record_table(
    RunStatus, ("run_id", "evaluation", "position"), "One row per change of a run's state."
)

GRADES = _record_table(
    GradeRecord,
    ("run_id", "evaluation", "bench", "step", "problem", "sample", "position"),
    "One row per later grade of an answer; the last one is in force. `answers` keeps the first.",
)

LOGGED_SCORES = _record_table(
    ScoreRecord,
    ("run_id", "bench", "step"),
    "One row per score that another program logged without its answers.",
)

RECORD_TABLES = {
    table.name: table for table in (STEPS, UPDATES, ANSWERS, LOGGED_SCORES, GRADES, STATUSES)
}
TABLES = (
    ABOUT,
    STUDIES,
    RUNS,
    SUBJECT_ROWS,
    STEPS,
    UPDATES,
    ANSWERS,
    LOGGED_SCORES,
    GRADES,
    EVALUATIONS,
    STATUSES,
    METRICS,
    FILES,
    DAMAGED,
)

INDEXES = {
    # All that scores need, so that they are computed without touching the texts.
    "answers_scored": ("answers", (*ANSWERS.key, "correct", "truncated"))
}
"""The indexes by name: the table and the columns of each."""

ANSWER_KEY = ", ".join(ANSWERS.key)
REGRADED = [name for name in GRADES.names if name in ANSWERS.names and name not in ANSWERS.key]
"""What a later grade replaces."""


def in_force(column: str, name: OptionalText = None) -> str:
    """SQL for a column of `answers` joined with WITH_GRADES: of the last later grade, if any.

    `name`: another name.
    """
    if column not in REGRADED:
        return f'answers."{column}"'
    graded = f'CASE WHEN position IS NULL THEN answers."{column}" ELSE latest_grades."{column}" END'
    return f'{graded} AS "{name or column}"'


def all_in_force(columns: Iterable[str]) -> str:
    """SQL for several columns, each as in `in_force`."""
    return ", ".join(map(in_force, columns))


def metric_columns(table: str, metrics: Iterable[str], *, numbers: bool = False) -> list[str]:
    """The metrics without repetition. LabError if one is no column of the table; with `numbers`
    also if one is a text.
    """
    recorded = RECORD_TABLES[table]
    names = list(dict.fromkeys(metrics))
    for name in names:
        if name not in recorded.names:
            raise LabError(
                f"no metric '{name}' in {table}{nearest(name, recorded.names)};"
                " docs/reference/metrics.md has all"
            )
        column = recorded.column(name)
        if numbers and column.type == "TEXT":
            kind = "JSON" if column.json else "text"
            raise LabError(f"{table}.{name} is {kind}, not a number")
    return names


def quoted(columns: Iterable[str]) -> str:
    """SQL for a list of columns."""
    return '"' + '", "'.join(columns) + '"'


WITH_GRADES = f"LEFT JOIN latest_grades USING ({ANSWER_KEY})"

CHOSEN = f"""\
WITH chosen AS MATERIALIZED (
  SELECT run_id, arm, seed,
         (SELECT arms.id FROM studies, json_each(studies.content, '$.arms') AS arms
          WHERE studies.study = runs.study AND arms.key = runs.arm) AS place
  FROM runs WHERE study = ? AND state <> '{State.MISSING}'
)
"""
"""A study's runs with the place of their arm in the study file.

Runs whose folder is gone are no evidence.
"""

IN_ORDER = "place IS NULL, place, arm, seed, run_id"


def scores_of(column: str, of_problem: OptionalText = None) -> str:
    """SQL for the mean over problems of what a problem's answers come to, by run, benchmark and
    step.

    `of_problem` is an SQL aggregate of a problem's rows; unset: the mean of the column.
    """
    mean_of_problem = of_problem or f"AVG({column})"
    return f"""\
SELECT run_id, evaluation, bench, step,
       COUNT(*) AS problems, SUM(answers) AS answers, AVG(of_problem) AS score,
       SUM(errors) AS errors, SUM(truncated) AS truncated
FROM (
  SELECT run_id, evaluation, bench, step, problem, COUNT(*) AS answers, {mean_of_problem} AS of_problem,
         SUM({column} IS NULL) AS errors, SUM(truncated) AS truncated
  FROM (SELECT {ANSWER_KEY}, {in_force(column)}, truncated FROM answers {WITH_GRADES} WHERE bench <> 'rollout')
  GROUP BY run_id, evaluation, bench, step, problem
)
GROUP BY run_id, evaluation, bench, step"""  # noqa: E501


def pass_at(k: int) -> str:
    """SQL for pass@k of a problem's rows, 1 - C(n - c, k) / C(n, k) (arXiv 2107.03374); NULL below
    k graded answers.
    """
    right = "SUM(correct)"
    graded = "COUNT(correct)"
    missed = " * ".join(
        f"(MAX({graded} - {right} - {i}, 0) * 1.0 / ({graded} - {i}))" for i in range(k)
    )
    return f"CASE WHEN {graded} >= {k} THEN 1.0 - {missed} END"


VIEWS = {
    "latest_grades": (
        f"""\
-- The last later grade of each answer that has any. `MAX(position)` picks the row.
SELECT {ANSWER_KEY}, {", ".join(REGRADED)}, MAX(position) AS position FROM grades GROUP BY {ANSWER_KEY}"""  # noqa: E501
    ),
    "scores": (
        f"""\
-- The score of each run on each benchmark at each evaluated step: the mean over problems of the mean of `correct` over
-- a problem's answers. An answer that could not be graded (correct IS NULL) is counted in `errors`, never as wrong.
-- Of what another program logged there are no answers to count.
{scores_of("correct")}
UNION ALL SELECT run_id, '', bench, step, NULL, NULL, score, NULL, NULL FROM logged_scores"""  # noqa: E501
    ),
    "reward_scores": (
        f"""\
-- The mean reward of each run on each benchmark at each evaluated step, where `scores` has the share of right answers.
{scores_of("reward")}"""  # noqa: E501
    ),
    "latest_scores": (
        """\
-- The last evaluated step of each run and benchmark, with the run beside it. `MAX(step)` picks the row.
SELECT study, arm, seed, state, evaluation, bench, MAX(step) AS step, problems, answers, score, errors, truncated
FROM scores JOIN runs USING (run_id)
GROUP BY run_id, evaluation, bench"""  # noqa: E501
    ),
}


def metric_rows() -> list[tuple[str, str, str, str, str]]:
    """The rows of the table `metrics`: table, name, type, unit, meaning of every field of every
    record.
    """
    rows = []
    for record in RECORDS.values():
        for column in field_columns(record):
            kind = "JSON" if column.json else column.type
            rows.append((record.table, column.name, kind, column.unit, column.meaning))
    return rows
