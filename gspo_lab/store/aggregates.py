"""Aggregates of many rows inside SQLite, as SQL: the sums that `Evidence` reads run by run.

Each query reads one run and a range of its steps, in the order in which its table is stored. So SQLite sorts only the
few mini-batches of a step, and no row becomes a Python object.
"""

import json
from collections.abc import Collection, Iterable

from gspo_lab.store.schema import RECORD_TABLES


def mean_of(table: str, metric: str) -> str:
    """The mean of a metric over rows, by the weight that its record declares (1 where that was not recorded)."""
    weight = RECORD_TABLES[table].column(metric).per
    return f'AVG("{metric}")' if weight is None else weighted_mean(metric, weight)


def pool_of(table: str, metric: str, how: str) -> str:
    """The aggregate of a metric's rows and its weight. `how` is "own" (mean by weights), "rows", "sum" or "largest"."""
    weight = RECORD_TABLES[table].column(metric).per
    if how == "own" and weight is not None:
        return f"{weighted_mean(metric, weight)}, IFNULL({weight_of(metric, weight)}, 0)"
    function = {"largest": "MAX", "sum": "SUM"}.get(how, "AVG")
    return f'{function}("{metric}"), COUNT("{metric}")'


def weighted_mean(metric: str, weight: str) -> str:
    """The weighted mean over rows with the metric; a missing weight counts as 1. A single row keeps its exact value."""
    several = f'TOTAL("{metric}" * IFNULL("{weight}", 1)) / {weight_of(metric, weight)}'
    return f'CASE COUNT("{metric}") WHEN 1 THEN MAX("{metric}") ELSE {several} END'


def weight_of(metric: str, weight: str) -> str:
    """The total weight of a metric's measurements; NULL without any."""
    return f'SUM(IFNULL("{weight}", 1)) FILTER (WHERE "{metric}" IS NOT NULL)'


def of_spans(
    table: str, metrics: Iterable[str], extremes: Collection[str], totals: Collection[str]
) -> tuple[str, list[str]]:
    """A query for one text, and its columns for each span: x, means or sums, lowest and highest values.

    Its values are the width, and the spans as JSON: run id and first step. The result is a single text, because each
    row of a result waits for Python's lock. The text is JSON lists of texts: for each number SQLite's 15 digits, and
    the remainder.
    """
    columns = {"x": "(MIN(step) + MAX(step)) / 2.0"}
    columns |= {name: f'SUM("{name}")' if name in totals else mean_of(table, name) for name in metrics}
    for name in extremes:
        columns |= {f"{name}.low": f'MIN("{name}")', f"{name}.high": f'MAX("{name}")'}
    made = ", ".join(f'{column} AS "{name}"' for name, column in columns.items())
    columns_text = ", ".join(
        f'CAST("{name}" AS TEXT), CAST("{name}" - CAST(CAST("{name}" AS TEXT) AS REAL) AS TEXT)' for name in columns
    )
    low = "json_extract(span.value, '$[1]')"
    query = f"""
        SELECT GROUP_CONCAT((SELECT json_array({columns_text}) FROM (SELECT {made} FROM {table}
            WHERE run_id = json_extract(span.value, '$[0]') AND step >= {low} AND step < {low} + ?)))
        FROM json_each(?) AS span"""
    return query, list(columns)


def from_texts(texts: str | None) -> list[tuple[float | None, ...]]:
    """The numbers of `of_spans`, bit for bit."""

    def format_number(text: str | None, difference: str | None) -> float | None:
        return None if text is None else float(text) + float(difference or 0)

    rows = json.loads(f"[{texts or ''}]")
    return [tuple(map(format_number, row[::2], row[1::2])) for row in rows]


def of_groups(table: str, by: str, metrics: Iterable[str], how: str) -> str:
    """A query for groups of rows `by` "step", "minibatch" or "whole" (all rows), with `pool_of` for each metric.

    Its values are run id, first and last step, and for updates lowest and highest mini-batch.
    """
    if (table, by) == ("steps", "step"):  # a row is a pool: nothing is grouped
        rows = ", ".join(f'"{metric}", {_weight_in_row(table, metric, how)}' for metric in metrics)
        return f"SELECT step, {rows} FROM steps {_window(table)} ORDER BY step"
    pools = ", ".join(pool_of(table, metric, how) for metric in metrics)
    return f"SELECT {by if by != 'whole' else 0} AS pool, {pools} FROM {table} {_window(table)} GROUP BY pool"


def _weight_in_row(table: str, metric: str, how: str) -> str:
    weight = RECORD_TABLES[table].column(metric).per if how == "own" else None
    known = "1" if weight is None else f'IFNULL("{weight}", 1)'
    return f'CASE WHEN "{metric}" IS NULL THEN 0 ELSE {known} END'


def of_entries(table: str, metric: str) -> str:
    """A query for the index and mean of each entry of a JSON list; values as for `of_groups`, then steps as JSON."""
    weight = f'IFNULL("{RECORD_TABLES[table].column(metric).per}", 1)'
    mean = f"TOTAL(entry.value * {weight}) / SUM({weight})"
    steps = "step IN (SELECT value FROM json_each(?)) AND entry.value IS NOT NULL"
    return (
        f'SELECT entry.key, {mean} FROM {table}, json_each("{metric}") AS entry {_window(table)} AND {steps} GROUP BY 1'
    )


def _window(table: str) -> str:
    indices = " AND minibatch BETWEEN ? AND ?" if table == "updates" else ""
    return f"WHERE run_id = ? AND step BETWEEN ? AND ?{indices}"
