"""Rows of `steps` and `updates`: as frames, as curves, and as means over spans of steps; what
imported runs logged.

Each function reads one `Evidence`. Sums of many rows are made inside SQLite, run by run, in the
order in which the table is stored: SQLite sorts only the few mini-batches of a step, and no row
becomes a Python object.
"""

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping, OptionalFloat
from gspo_lab.recording.store.evidence import RunKey, arrays, framed
from gspo_lab.recording.store.schema import CHOSEN, RECORD_TABLES, metric_columns, quoted

if TYPE_CHECKING:
    from pandas import DataFrame

    from gspo_lab.recording.store.evidence import Evidence, Floats

LENGTH = "length, in steps"


def read_steps(
    evidence: "Evidence",
    study: str,
    metrics: Sequence[str],
    *,
    run: str | None = None,
    at_steps: Collection[int] | None = None,
) -> "DataFrame":
    """run_id, arm, seed, step and the metrics of each rollout batch; `run` and `at_steps` choose
    some.
    """
    return _rows(evidence, study, "steps", ["step"], metrics, {"run_id": run}, at_steps)


def read_updates(
    evidence: "Evidence",
    study: str,
    metrics: Sequence[str],
    *,
    run: str | None = None,
    nonfinite: int | None = None,
) -> "DataFrame":
    """run_id, arm, seed, step, minibatch and the metrics of each update; `run` and `nonfinite` keep
    to some.
    """
    only = {"run_id": run, "nonfinite": nonfinite}
    return _rows(evidence, study, "updates", ["step", "minibatch"], metrics, only, None)


def span_width(evidence: "Evidence", study: str, buckets: int = 250) -> int:
    """How many steps each of at most `buckets` spans holds, so that they cover the study's longest
    run.
    """
    if buckets < 1:
        raise LabError(f"buckets: at least 1, got {buckets}")
    return max(1, math.ceil((_last_step(evidence, study) + 1) / buckets))


def read_spans(
    evidence: "Evidence",
    study: str,
    table: str,
    metrics: Sequence[str],
    *,
    buckets: int = 250,
    extremes: Collection[str] = (),
    totals: Collection[str] = (),
    since: Mapping[str, int] | None = None,
) -> "dict[RunKey, dict[str, Floats]]":
    """Per run and metric its mean over each of at most `buckets` spans of steps, made in SQL, in
    one pass.

    Metrics in `extremes` also have columns `<metric>.low` and `<metric>.high`; of those in `totals`
    it is the sum. All runs and both tables share the spans: entry i is of the steps from i *
    `width` on, and a step is a span of its own while there are no more than `buckets`. Column `x`
    is the middle of the steps that a span holds. A share of tokens is that of all the span's.
    What was not measured is left out of the mean; a span without any measurement is NaN.
    `since` keeps to some runs, of each to its spans from a step on.
    """
    width = span_width(evidence, study, buckets)
    if table not in ("steps", "updates"):
        raise LabError(f"spans: from steps or updates, got '{table}'")
    means = metric_columns(table, metrics, numbers=True)
    ends = metric_columns(table, extremes, numbers=True)
    query, names = span_query(table, means, ends, totals)
    end = _last_step(evidence, study) + 1
    firsts = since if since is not None else {run.id: 0 for run in evidence.chosen(study)}
    steps_by_run = {
        run: range(firsts[run.id], end, width) for run in evidence.chosen(study) if run.id in firsts
    }
    out = {}
    for run, lows in steps_by_run.items():
        ((texts,),) = evidence.rows(query, (width, json.dumps([(run.id, low) for low in lows])))
        out[run] = arrays(parse_span_texts(texts), names)
    return out


def read_series(
    evidence: "Evidence", study: str, table: str, metric: str
) -> "dict[str, tuple[Floats, Floats]]":
    """Per run id the steps and the values of every measurement of one number, for what SQL cannot
    say: medians.
    """
    metric_columns(table, [metric], numbers=True)
    query = (
        f'SELECT step, "{metric}" FROM {table} WHERE run_id = ? AND "{metric}" IS NOT NULL ORDER BY'
        " step"
    )

    def read() -> "dict[str, tuple[Floats, Floats]]":
        by_run = {
            run.id: arrays(evidence.rows(query, (run.id,)), ("step", metric))
            for run in evidence.chosen(study)
        }
        return {run: (columns["step"], columns[metric]) for run, columns in by_run.items()}

    return evidence.once((query, study), read)


def read_own_numbers(evidence: "Evidence", run: str) -> dict[str, float]:
    """Of a run's numbers under their own names the means over the last n // 5 of their n rows, at
    least of one.
    """
    query = (
        "SELECT key, AVG(value) FROM (SELECT key, value, COUNT(*) OVER (PARTITION BY key) AS count,"
        " ROW_NUMBER() OVER (PARTITION BY key ORDER BY step DESC) AS place FROM updates,"
        " json_each(engine_metrics) WHERE run_id = ? AND minibatch < 0) WHERE place <= MAX(1, count"
        " / 5) GROUP BY key"
    )
    return dict(evidence.rows(query, (run,)))


def read_ends(evidence: "Evidence", run: str, column: str | None, name: str) -> tuple[float, ...]:
    """The smallest and largest value of a run's number, a column of updates or under its own name;
    empty: no value.
    """
    value = (
        f'"{column}"'
        if column
        else "(SELECT value FROM json_each(engine_metrics) WHERE key = :name)"
    )
    query = f"SELECT MIN({value}), MAX({value}) FROM updates WHERE run_id = :run"
    [ends] = evidence.rows(query, {"run": run} if column else {"run": run, "name": name})
    return tuple(float(end) for end in ends if end is not None)


def read_lengths(evidence: "Evidence", study: str) -> dict[str, dict[str, float]]:
    """By what it is, per run id: its last logged step, and how many steps lie between two rows."""
    query = (
        "SELECT MAX(step) + 1, (MAX(step) - MIN(step)) * 1.0 / (COUNT(*) - 1) FROM steps WHERE"
        " run_id = ?"
    )
    ends_by_run = {run.id: evidence.rows(query, (run.id,))[0] for run in evidence.chosen(study)}
    return {
        name: {run: row[place] for run, row in ends_by_run.items() if row[place] is not None}
        for place, name in enumerate((LENGTH, "the interval of their rows, in steps"))
    }


def _rows(
    evidence: "Evidence",
    study: str,
    table: str,
    key: list[str],
    metrics: Sequence[str],
    only: JsonMapping,
    at_steps: Collection[int] | None,
) -> "DataFrame":
    """Rows of a record table; of `only` the entries that are not None pick rows."""
    runs = evidence.chosen(study)
    columns = metric_columns(table, (name for name in metrics if name not in key))
    picked = {name: value for name, value in only.items() if value is not None and name != "run_id"}
    where = "".join(f" AND {name} = ?" for name in picked)
    if at_steps is not None:
        where += " AND step IN (SELECT value FROM json_each(?))"
        picked["step"] = json.dumps(sorted(at_steps))
    query = (
        f"SELECT {quoted([*key, *columns])} FROM {table} WHERE run_id = ?{where} ORDER BY"
        f" {', '.join(key)}"
    )
    rows = {
        run: evidence.rows(query, (run.id, *picked.values()))
        for run in runs
        if only["run_id"] in (None, run.id)
    }
    kinds = {name: RECORD_TABLES[table].column(name).type for name in columns}
    types: dict[str, type] = {"TEXT": object, "REAL": float, "INTEGER": int}
    return framed(
        rows, {**dict.fromkeys(key, int), **{name: types[kind] for name, kind in kinds.items()}}
    )


def _last_step(evidence: "Evidence", study: str) -> int:
    """The last step that any run of the study has in either table, -1 if none."""
    ends = ", ".join(
        f"IFNULL((SELECT MAX(step) FROM {table} WHERE {table}.run_id = chosen.run_id), -1)"
        for table in ("steps", "updates")
    )
    query = f"{CHOSEN} SELECT IFNULL(MAX(MAX({ends})), -1) FROM chosen"
    return evidence.once((query, study), lambda: int(evidence.rows(query, (study,))[0][0]))


def pool_of(table: str, metric: str, pooling: str) -> str:
    """The aggregate of a metric's rows and its weight.

    `pooling` is "own" (mean by weights), "rows", "sum" or "largest".
    """
    weight = RECORD_TABLES[table].column(metric).weight
    if pooling == "own" and weight is not None:
        return f"{weighted_mean(metric, weight)}, IFNULL({weight_of(metric, weight)}, 0)"
    function = {"largest": "MAX", "sum": "SUM"}.get(pooling, "AVG")
    return f'{function}("{metric}"), COUNT("{metric}")'


def weighted_mean(metric: str, weight: str) -> str:
    """The weighted mean over rows with the metric. A single row keeps its exact value."""
    several = f'TOTAL("{metric}" * {weight}) / {weight_of(metric, weight)}'
    return f'CASE COUNT("{metric}") WHEN 1 THEN MAX("{metric}") ELSE {several} END'


def weight_of(metric: str, weight: str) -> str:
    """The total weight of a metric's measurements; NULL without any."""
    return f'SUM({weight}) FILTER (WHERE "{metric}" IS NOT NULL)'


def span_query(
    table: str, metrics: Iterable[str], extremes: Collection[str], totals: Collection[str]
) -> tuple[str, list[str]]:
    """A query for one text, and its columns for each span: x, means or sums, lowest and highest
    values.

    Its values are the width, and the spans as JSON: run id and first step. The result is a single
    text, because each row of a result waits for Python's lock. The text is JSON lists of texts: for
    each number SQLite's 15 digits, and the remainder.
    """
    columns = {"x": "(MIN(step) + MAX(step)) / 2.0"}
    for name in metrics:
        weight = RECORD_TABLES[table].column(name).weight
        plain = f'SUM("{name}")' if name in totals else f'AVG("{name}")'
        columns[name] = plain if weight is None or name in totals else weighted_mean(name, weight)
    for name in extremes:
        columns |= {f"{name}.low": f'MIN("{name}")', f"{name}.high": f'MAX("{name}")'}
    selected = ", ".join(f'{column} AS "{name}"' for name, column in columns.items())
    columns_text = ", ".join(
        f'CAST("{name}" AS TEXT), CAST("{name}" - CAST(CAST("{name}" AS TEXT) AS REAL) AS TEXT)'
        for name in columns
    )
    low = "json_extract(span.value, '$[1]')"
    query = f"""
        SELECT GROUP_CONCAT((SELECT json_array({columns_text}) FROM (SELECT {selected} FROM {table}
            WHERE run_id = json_extract(span.value, '$[0]') AND step >= {low} AND step < {low} + ?)))
        FROM json_each(?) AS span"""  # noqa: E501
    return query, list(columns)


def parse_span_texts(texts: str | None) -> list[tuple[OptionalFloat, ...]]:
    """The numbers of `span_query`, bit for bit."""

    def format_number(text: str | None, difference: str | None) -> OptionalFloat:
        return None if text is None else float(text) + float(difference or 0)

    rows = json.loads(f"[{texts or ''}]")
    return [tuple(map(format_number, row[::2], row[1::2])) for row in rows]


def group_query(table: str, by: str, metrics: Iterable[str], pooling: str) -> str:
    """A query for groups of rows `by` "step", "minibatch" or "whole" (all rows), with `pool_of` for
    each metric.

    Its values are run id, first and last step, and for updates lowest and highest mini-batch.
    """
    if (table, by) == ("steps", "step"):  # a row is a pool: nothing is grouped
        rows = ", ".join(
            f'"{metric}", {_weight_in_row(table, metric, pooling)}' for metric in metrics
        )
        return f"SELECT step, {rows} FROM steps {_window(table)} ORDER BY step"
    pools = ", ".join(pool_of(table, metric, pooling) for metric in metrics)
    pool = "0" if by == "whole" else by
    return f"SELECT {pool} AS pool, {pools} FROM {table} {_window(table)} GROUP BY pool"


def _weight_in_row(table: str, metric: str, pooling: str) -> str:
    weight = RECORD_TABLES[table].column(metric).weight if pooling == "own" else None
    return f'CASE WHEN "{metric}" IS NULL THEN 0 ELSE {weight or 1} END'


def entry_query(table: str, metric: str) -> str:
    """A query for the index and mean of each entry of a JSON list; values as for `group_query`,
    then steps as JSON.
    """
    weight = RECORD_TABLES[table].column(metric).weight or 1
    mean = f"TOTAL(entry.value * {weight}) / SUM({weight})"
    steps = "step IN (SELECT value FROM json_each(?)) AND entry.value IS NOT NULL"
    return (
        f'SELECT entry.key, {mean} FROM {table}, json_each("{metric}") AS entry {_window(table)}'
        f" AND {steps} GROUP BY 1"
    )


def _window(table: str) -> str:
    indices = " AND minibatch BETWEEN ? AND ?" if table == "updates" else ""
    return f"WHERE run_id = ? AND step BETWEEN ? AND ?{indices}"
