"""The shape of the database, as data: tables made from the records' fields, and the views that
scores are read from.

A record's field is a column of its table under the same name. A new field therefore needs nothing
here: `database` adds the column to databases that lack it. Meanings travel into the file as SQL
comments and as the table `metrics`, so that somebody who opens it with `sqlite3` or datasette finds
every column explained.
"""

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field, fields
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

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
    per: str | None = None
    """The column that weighs a row in a mean over rows; None: every row counts alike."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """`clustered` tables are stored in the order of their key: right for many short rows, wrong for
    long texts.
    """

    name: str
    meaning: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    clustered: bool = True
    names: tuple[str, ...] = field(init=False, repr=False, compare=False)
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


def _plain(
    name: str, meaning: str, *, type: str = "TEXT", json: bool = False, required: bool = False
) -> Column:
    return Column(name, type, "-", meaning, json, required)


RUN_ID = _plain(
    "run_id",
    "the run: study/arm/s<seed>, which is also its folder under runs/; or a model or server that"
    " was asked without a run: _subjects/<name>",
    required=True,
)
EVALUATION = _plain(
    "evaluation",
    "'' for what the run itself recorded; else the folder under evaluations/ that holds a later"
    " evaluation of it",
    required=True,
)
POSITION = _plain(
    "position", "0, 1, 2, ... in the order of the journal", type="INTEGER", required=True
)


def _record_table(
    record: type[Record], key: tuple[str, ...], meaning: str, clustered: bool = True
) -> TableSpec:
    columns_of = field_columns(record)
    identity = [column for column in (RUN_ID, EVALUATION, POSITION) if column.name in key]
    # JSON columns come last: a long row spills its end, and reading the numbers before it never
    # touches the spill.
    ordered = [
        *identity,
        *(c for c in columns_of if not c.json),
        *(c for c in columns_of if c.json),
    ]
    return TableSpec(record.table, meaning, key, tuple(ordered), clustered)


STUDIES = TableSpec(
    "studies",
    "One row per study: what was declared before its first step.",
    ("study",),
    (
        _plain("study", "the study's name: its folder under runs/", required=True),
        _plain("question", "the question it asks"),
        _plain("digest", "sha256 of the resolved study"),
        _plain("declared_at", "seconds since 1970 when study.json was written", type="REAL"),
        _plain(
            "content",
            "study.json, whole: arms in their order, settings, seeds, verdict rule",
            json=True,
        ),
    ),
)

RUNS = TableSpec(
    "runs",
    "One row per run: an arm with a seed, and where it stands.",
    ("run_id",),
    (
        RUN_ID,
        _plain("study", "the study it belongs to", required=True),
        _plain("arm", "the treatment", required=True),
        _plain(
            "seed",
            "the seed that pairs it with the other arms' runs",
            type="INTEGER",
            required=True,
        ),
        _plain(
            "state",
            "planned (nothing recorded yet), running, interrupted (started, but no worker holds its"
            " lock), stopped (on request), finished, failed, or missing (its folder is gone; the"
            " rows stay until `gspo-lab records rebuild`)",
            required=True,
        ),
        _plain("steps_done", "rollout batches trained on and recorded", type="INTEGER"),
        _plain(
            "steps_planned",
            "rollout batches asked for; NULL where a log does not tell",
            type="INTEGER",
        ),
        _plain("started_at", "seconds since 1970 when its first worker started", type="REAL"),
        _plain(
            "finished_at",
            "seconds since 1970 when its last worker left; NULL while it runs",
            type="REAL",
        ),
        _plain("message", "one line for people: why it failed"),
        _plain("declaration", "sha256 of what study.json locked, as its run.json has it"),
        _plain("declared", "the settings its arm states itself", json=True),
        _plain(
            "reference_bands", "per rule the clip range at which would_clip_* is counted", json=True
        ),
        _plain("settings", "every setting, resolved; of an imported run those recorded", json=True),
        _plain(
            "facts",
            "what its last worker found out about itself: versions, device, digests",
            json=True,
        ),
    ),
)

SUBJECT_ROWS = TableSpec(
    "subjects",
    "One row per model or server that was asked without a run.",
    ("run_id",),
    (
        RUN_ID,
        _plain("kind", "model or server"),
        _plain("name", "the model's folder or Hub id, or its name on the server"),
        _plain("content", "subject.json, whole: what answered", json=True),
    ),
)

EVALUATIONS = TableSpec(
    "evaluations",
    "One row per later evaluation of a run, a model or a server: how it was asked, fixed before the"
    " first answer.",
    ("run_id", "evaluation"),
    (
        RUN_ID,
        EVALUATION,
        _plain("bench", "the benchmark"),
        _plain(
            "content",
            "evaluation.json, whole: task, prompt, data, sampling, limits, grader, seed",
            json=True,
        ),
    ),
)

METRICS = TableSpec(
    "metrics",
    "One row per recorded field: what the columns of steps, updates, answers and statuses mean.",
    ("table_name", "name"),
    (
        _plain("table_name", "the table it is a column of", required=True),
        _plain("name", "the column", required=True),
        _plain("type", "INTEGER, REAL, TEXT or JSON", required=True),
        _plain("unit", "its unit; '-' for none", required=True),
        _plain("meaning", "its definition", required=True),
    ),
)

FILES = TableSpec(
    "files",
    "Bookkeeping of `ingest`: how far each file under runs/ has been read.",
    ("path",),
    (
        _plain("path", "the file, from runs/ on", required=True),
        _plain(
            "size", "its size in bytes when it was last looked at", type="INTEGER", required=True
        ),
        _plain(
            "modified_ns",
            "its inode's time of change then, in nanoseconds since 1970",
            type="INTEGER",
            required=True,
        ),
        _plain(
            "offset",
            "bytes taken in: the end of its last complete line",
            type="INTEGER",
            required=True,
        ),
        _plain("head", "sha256 of its first line: a journal that was begun anew is read anew"),
        _plain(
            "tail",
            "the digest of the last line that was taken in: a journal whose chain is another is"
            " read anew",
        ),
    ),
)

DAMAGED = TableSpec(
    "damaged",
    "One row per line of a journal that is damaged and left out, before which one is missing, or at"
    " which its end is.",
    ("path", "line"),
    (
        _plain("path", "the journal, from runs/ on", required=True),
        _plain("line", "the line in it, counted from 1", type="INTEGER", required=True),
        RUN_ID,
        _plain(
            "gap",
            "1 where the line itself is whole, but does not follow from the one before it; 2 where"
            " the journal was longer, and went on with this line; 3 where the journal is that of"
            " another run",
            type="INTEGER",
        ),
    ),
)

ABOUT = TableSpec(
    "about",
    "What this file is.",
    ("key",),
    (_plain("key", "which fact", required=True), _plain("value", "the fact", required=True)),
)

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
"""By its name the table and the columns of each."""

ANSWER_KEY = ", ".join(ANSWERS.key)
REGRADED = [name for name in GRADES.names if name in ANSWERS.names and name not in ANSWERS.key]
"""What a later grade replaces."""


def in_force(column: str, name: str | None = None) -> str:
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


def quoted(columns: Iterable[str]) -> str:
    """SQL for a list of columns."""
    return ", ".join(f'"{column}"' for column in columns)


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


def scores_of(column: str, of_problem: str | None = None) -> str:
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
