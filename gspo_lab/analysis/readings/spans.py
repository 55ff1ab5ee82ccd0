"""Means over spans of steps, for curves and for other programs.

They are made inside SQLite, run by run, in the order in which the table is stored: SQLite sorts
only the few mini-batches of a step, and no row of a table becomes a Python object.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from gspo_lab.analysis.readings.reading import row_weight, weighted_mean
from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.common.errors import LabError
from gspo_lab.recording.store.evidence import Evidence, RunKey, arrays
from gspo_lab.recording.store.schema import CHOSEN, metric_columns


def span_width(evidence: Evidence, study: str, buckets: int = 250) -> int:
    """How many steps each of at most `buckets` spans holds, so that they cover the study's longest
    run.
    """
    if buckets < 1:
        raise LabError(f"buckets: at least 1, got {buckets}")
    return max(1, math.ceil((_last_step(evidence, study) + 1) / buckets))


def read_spans(
    evidence: Evidence,
    study: str,
    table: str,
    metrics: Sequence[str],
    *,
    buckets: int = 250,
    extremes: Collection[str] = (),
    totals: Collection[str] = (),
    since: Mapping[str, int] | None = None,
) -> dict[RunKey, dict[str, Floats]]:
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
    query, names = _span_query(table, means, ends, totals)
    end = _last_step(evidence, study) + 1
    firsts = since if since is not None else {run.id: 0 for run in evidence.chosen(study)}
    steps_by_run = {
        run: range(firsts[run.id], end, width) for run in evidence.chosen(study) if run.id in firsts
    }
    out = {}
    for run, lows in steps_by_run.items():
        spans = [evidence.rows(query, (run.id, low, low + width))[0] for low in lows]
        out[run] = arrays(spans, names)
    return out


def _last_step(evidence: Evidence, study: str) -> int:
    """The last step that any run of the study has in either table, -1 if none."""
    ends = ", ".join(
        f"IFNULL((SELECT MAX(step) FROM {table} WHERE {table}.run_id = chosen.run_id), -1)"
        for table in ("steps", "updates")
    )
    query = f"{CHOSEN} SELECT IFNULL(MAX(MAX({ends})), -1) FROM chosen"
    return evidence.once((query, study), lambda: int(evidence.rows(query, (study,))[0][0]))


def _span_query(
    table: str, metrics: Iterable[str], extremes: Collection[str], totals: Collection[str]
) -> tuple[str, list[str]]:
    """A query for one span of steps, and its columns: x, means or sums, lowest and highest values.

    Its values are run id, first step, and the first step behind the span.
    """
    columns = {"x": "(MIN(step) + MAX(step)) / 2.0"}
    for name in metrics:
        weight = row_weight(table, name)
        plain = f'SUM("{name}")' if name in totals else f'AVG("{name}")'
        columns[name] = plain if weight is None or name in totals else weighted_mean(name, weight)
    for name in extremes:
        columns |= {f"{name}.low": f'MIN("{name}")', f"{name}.high": f'MAX("{name}")'}
    selected = ", ".join(columns.values())
    query = f"SELECT {selected} FROM {table} WHERE run_id = ? AND step >= ? AND step < ?"
    return query, list(columns)
