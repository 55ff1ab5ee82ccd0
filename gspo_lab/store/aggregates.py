"""What is made of many rows inside SQLite: means over spans of steps and over mini-batches, run by run.

Each query asks for a range of a table's own order, so that nothing is sorted and every row is read once.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gspo_lab.store.columns import Floats, Run, framed, pairs
from gspo_lab.store.schema import RECORD_TABLES
from gspo_lab.store.snapshot import Ask, Result, Snapshot

if TYPE_CHECKING:
    from pandas import DataFrame

Rows = dict[Run, list[tuple[Any, ...]]]
TOKENS = {"share of response tokens": "response_tokens", "share of active tokens": "active_tokens"}
"""By the unit of a share the column that counts what it is a share of."""


def mean_of(table: str, metric: str) -> str:
    """SQL for the mean of a metric over rows: a share of tokens over their tokens (1 where nobody counted them)."""
    weight = TOKENS.get(RECORD_TABLES[table].column(metric).unit)
    if weight is None:
        return f'AVG("{metric}")'
    return f'SUM("{metric}" * IFNULL({weight}, 1)) / SUM(IFNULL({weight}, 1)) FILTER (WHERE "{metric}" IS NOT NULL)'


def last_step(snapshot: Snapshot, table: str, run: Run) -> int:
    """The last step that a run has in a table, -1 if none."""
    [(last,)] = snapshot.rows(f"SELECT MAX(step) FROM {table} WHERE run_id = ?", (run.id,))
    return -1 if last is None else int(last)


def over_spans(snapshot: Snapshot, runs: Sequence[Run], table: str, columns: Mapping[str, str], width: int) -> Rows:
    """Per run rows of span, x and `columns` (name -> SQL aggregate) over every `width` steps."""
    chosen = ", ".join([f"low / {width}", "(MIN(step) + MAX(step)) / 2.0", *columns.values()])
    bounds = f"temp.spans_of_{width}"
    # SQLite walks through the spans and the rows of each in the order of both keys: nothing is sorted.
    query = (
        f"SELECT {chosen} FROM {bounds} CROSS JOIN {table} "
        f"WHERE run_id = ? AND step >= low AND step < low + {width} GROUP BY low"
    )

    def of_run(ask: Ask, run: Run) -> list[tuple[Any, ...]]:
        return ask(query, (run.id,))

    last = max((last_step(snapshot, table, run) for run in runs), default=-1)
    snapshot.everywhere(f"CREATE TABLE IF NOT EXISTS {bounds} (low INTEGER PRIMARY KEY)")
    snapshot.everywhere(
        f"WITH RECURSIVE spans(low) AS (VALUES (0) UNION ALL SELECT low + {width} FROM spans WHERE low + {width} <= ?) "
        f"INSERT OR IGNORE INTO {bounds} SELECT low FROM spans",
        (last,),
    )
    return _once(snapshot, (table, *columns.items(), width), runs, of_run)


def over_minibatches(
    snapshot: Snapshot, runs: Sequence[Run], weights: Mapping[str, str], since: Mapping[str, int]
) -> Rows:
    """Per run rows of minibatch and, metric by metric, its weighted mean and the sum of its weights."""
    sums = ", ".join(
        f'TOTAL("{metric}" * IFNULL("{weight}", 1)), TOTAL(IIF("{metric}" IS NULL, 0, IFNULL("{weight}", 1)))'
        for metric, weight in weights.items()
    )
    query = f"SELECT minibatch, {sums} FROM updates WHERE run_id = ? AND step >= ? GROUP BY minibatch"

    def of_run(ask: Ask, run: Run) -> list[tuple[Any, ...]]:
        return [
            (
                index,
                *(
                    part
                    for total, weight in zip(row[0::2], row[1::2], strict=True)
                    for part in (total / weight if weight else None, weight)
                ),
            )
            for index, *row in ask(query, (run.id, since.get(run.arm, 0)))
        ]

    return _once(snapshot, ("by mini-batch", *weights.items(), *sorted(since.items())), runs, of_run)


def first_minibatches(
    snapshot: Snapshot, runs: Sequence[Run], metrics: Iterable[str]
) -> dict[str, tuple[int, bool, int | None]]:
    """Per run id, of its updates with minibatch 0: how many have all metrics, whether any metric of any is not 0, and
    the first step at which all are recorded and one is not 0."""
    names = [f'"{name}"' for name in metrics]
    known, odd = " AND ".join(f"{name} IS NOT NULL" for name in names), " OR ".join(f"{name} <> 0" for name in names)
    query = (
        f"SELECT COUNT(*) FILTER (WHERE {known}), COUNT(*) FILTER (WHERE {odd}), "
        f"MIN(step) FILTER (WHERE {known} AND ({odd})) FROM updates WHERE run_id = ? AND minibatch = 0"
    )

    def of_run(ask: Ask, run: Run) -> tuple[int, bool, int | None]:
        [(count, broken, first)] = ask(query, (run.id,))
        return int(count), bool(broken), first

    found = _once(snapshot, ("first mini-batches", *names), runs, of_run)
    return {run.id: one for run, one in found.items()}


def prompt_streams(snapshot: Snapshot, runs: Sequence[Run]) -> dict[str, tuple[int, str | None]]:
    """Per run id how many steps have a prompt digest, and a fingerprint of all these steps and digests."""
    # Read in the order of the key, (run_id, step), which is the order in which they are put together.
    query = "SELECT COUNT(prompt_digest), GROUP_CONCAT(step || ':' || prompt_digest) FROM steps WHERE run_id = ?"

    def of_run(ask: Ask, run: Run) -> tuple[int, str | None]:
        [(count, text)] = ask(query, (run.id,))
        return int(count), None if text is None else hashlib.sha256(text.encode()).hexdigest()

    found = _once(snapshot, ("prompt streams",), runs, of_run)
    return {run.id: one for run, one in found.items()}


def series(snapshot: Snapshot, runs: Sequence[Run], table: str, metric: str) -> dict[str, tuple[Floats, Floats]]:
    """Per run id the steps and the values of every measurement of one number."""
    query = f'SELECT step, "{metric}" FROM {table} WHERE run_id = ? AND "{metric}" IS NOT NULL ORDER BY step'

    def of_run(ask: Ask, run: Run) -> tuple[Floats, Floats]:
        return pairs(ask(query, (run.id,)))

    return {run.id: found for run, found in _once(snapshot, ("series", table, metric), runs, of_run).items()}


def details(snapshot: Snapshot, runs: Iterable[Run], at: Collection[int]) -> "DataFrame":
    """run_id, arm, seed, step, minibatch and two lists (as JSON) of each update at these steps that has a detail.

    The lists are taken out in SQL: a record may hold every token's log-ratio too.
    """
    names = ("length", "sum_log_ratio")
    parts = ", ".join(f"json_extract(response_detail, '$.{name}')" for name in names)
    query = (
        f"SELECT step, minibatch, {parts} FROM updates WHERE run_id = ? AND response_detail IS NOT NULL "
        "AND step IN (SELECT value FROM json_each(?)) ORDER BY step, minibatch"
    )
    steps = json.dumps(sorted(at))
    found = {run: snapshot.rows(query, (run.id, steps)) for run in runs}
    return framed(found, {"step": int, "minibatch": int, **dict.fromkeys(names, object)})


def _once(
    snapshot: Snapshot, what: tuple[Any, ...], runs: Sequence[Run], of_run: Callable[[Ask, Run], Result]
) -> dict[Run, Result]:
    """`of_run` of every run, read at most once: `what` names all that it depends on."""
    return snapshot.once((what, tuple(runs)), lambda: dict(zip(runs, snapshot.each(runs, of_run), strict=True)))
