"""What imported runs logged, under names of the lab or their own."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gspo_lab.store.evidence import Evidence

LENGTH = "length, in steps"


def own_numbers(evidence: "Evidence", run: str) -> dict[str, float]:
    """Of a run's numbers under their own names the means over the last n // 5 of their n rows, at least of one."""
    query = (
        "SELECT key, AVG(value) FROM (SELECT key, value, COUNT(*) OVER (PARTITION BY key) AS count, "
        "ROW_NUMBER() OVER (PARTITION BY key ORDER BY step DESC) AS place FROM updates, json_each(engine_metrics) "
        "WHERE run_id = ? AND minibatch < 0) WHERE place <= MAX(1, count / 5) GROUP BY key"
    )
    return dict(evidence.rows(query, (run,)))


def ends(evidence: "Evidence", run: str, column: str | None, name: str) -> tuple[float, ...]:
    """The smallest and largest value of a run's number, a column of updates or under its own name; empty: no value."""
    value = f'"{column}"' if column else "(SELECT value FROM json_each(engine_metrics) WHERE key = :name)"
    query = f"SELECT MIN({value}), MAX({value}) FROM updates WHERE run_id = :run"
    [found] = evidence.rows(query, {"run": run} if column else {"run": run, "name": name})
    return tuple(float(end) for end in found if end is not None)


def lengths(evidence: "Evidence", study: str) -> dict[str, dict[str, float]]:
    """By what it is, per run id: its last logged step, and how many steps lie between two rows."""
    query = "SELECT MAX(step) + 1, (MAX(step) - MIN(step)) * 1.0 / (COUNT(*) - 1) FROM steps WHERE run_id = ?"
    found = {run.id: evidence.rows(query, (run.id,))[0] for run in evidence.chosen(study)}
    return {
        what: {run: row[place] for run, row in found.items() if row[place] is not None}
        for place, what in enumerate((LENGTH, "the interval of their rows, in steps"))
    }
