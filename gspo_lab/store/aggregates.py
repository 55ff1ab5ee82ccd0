"""What is made of many rows inside SQLite: the sums, as SQL, that `Evidence` asks for run by run.

Each query keeps to one run and a range of its steps, which is the order that its table is stored in: nothing is sorted
but the few mini-batches of a step, and no row becomes a Python object.
"""

from collections.abc import Collection, Iterable, Sequence

from gspo_lab.store.schema import RECORD_TABLES

TOKENS = {"share of response tokens": "response_tokens", "share of active tokens": "active_tokens"}
"""By the unit of a share the column that counts what it is a share of."""


def mean_of(table: str, metric: str) -> str:
    """The mean of a metric over rows: a share of tokens over their tokens (1 where nobody counted them)."""
    weight = TOKENS.get(RECORD_TABLES[table].column(metric).unit)
    return f'AVG("{metric}")' if weight is None else weighted_mean(metric, weight)


def weighted_mean(metric: str, weight: str) -> str:
    """Rows without the metric do not count; those without the weight count as 1. One row's is its own, to the digit."""
    several = f'TOTAL("{metric}" * IFNULL("{weight}", 1)) / {weight_of(metric, weight)}'
    return f'CASE COUNT("{metric}") WHEN 1 THEN MAX("{metric}") ELSE {several} END'


def weight_of(metric: str, weight: str) -> str:
    """What weighs a metric's measurements, NULL if there are none."""
    return f'SUM(IFNULL("{weight}", 1)) FILTER (WHERE "{metric}" IS NOT NULL)'


def of_a_span(
    table: str, metrics: Iterable[str], extremes: Collection[str], totals: Collection[str]
) -> tuple[str, list[str]]:
    """One row (run id, first step, step after the last) and its columns: x, means or sums, lows and highs."""
    columns = {"x": "(MIN(step) + MAX(step)) / 2.0"}
    columns |= {name: f'SUM("{name}")' if name in totals else mean_of(table, name) for name in metrics}
    for name in extremes:
        columns |= {f"{name}.low": f'MIN("{name}")', f"{name}.high": f'MAX("{name}")'}
    query = f"SELECT {', '.join(columns.values())} FROM {table} WHERE run_id = ? AND step >= ? AND step < ?"
    return query, list(columns)


def of_minibatches(weights: Sequence[tuple[str, str]]) -> str:
    """Rows (run id, first step) of minibatch and, metric by metric, its weighted mean and the sum of its weights."""
    sums = ", ".join(
        f"{weighted_mean(metric, weight)}, IFNULL({weight_of(metric, weight)}, 0)" for metric, weight in weights
    )
    return f"SELECT minibatch, {sums} FROM updates WHERE run_id = ? AND step >= ? GROUP BY minibatch"


def of_first_minibatches(metrics: Iterable[str]) -> str:
    """One row (run id) over the updates with minibatch 0: how many have all metrics, whether any metric of any is not
    0, and the first step at which all are recorded and one is not 0."""
    names = [f'"{name}"' for name in metrics]
    known, odd = " AND ".join(f"{name} IS NOT NULL" for name in names), " OR ".join(f"{name} <> 0" for name in names)
    return (
        f"SELECT COUNT(*) FILTER (WHERE {known}), COUNT(*) FILTER (WHERE {odd}), "
        f"MIN(step) FILTER (WHERE {known} AND ({odd})) FROM updates WHERE run_id = ? AND minibatch = 0"
    )


PROMPT_STREAM = "SELECT COUNT(prompt_digest), GROUP_CONCAT(step || ':' || prompt_digest) FROM steps WHERE run_id = ?"
"""Put together in the order of the key, (run_id, step), in which it is read."""
