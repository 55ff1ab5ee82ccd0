"""What imported runs logged, under names of the lab or their own."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gspo_lab.store.evidence import Evidence


def own_numbers(evidence: "Evidence", run: str, last: float) -> dict[str, float]:
    """Of a run's numbers under their own names the means over the last share of its steps."""
    since = "(SELECT MAX(step) * (1 - :last) FROM updates WHERE run_id = :run)"
    query = (
        "SELECT key, AVG(value) FROM updates, json_each(engine_metrics) "
        f"WHERE run_id = :run AND minibatch < 0 AND step >= {since} GROUP BY key"
    )
    return dict(evidence.rows(query, {"run": run, "last": last}))


def largest(evidence: "Evidence", run: str, column: str | None, name: str) -> float | None:
    """The largest value of a run's number: a column of updates, else under its own name."""
    value = f'"{column}"' if column else "(SELECT value FROM json_each(engine_metrics) WHERE key = :name)"
    query = f"SELECT MAX({value}) FROM updates WHERE run_id = :run"
    [(found,)] = evidence.rows(query, {"run": run} if column else {"run": run, "name": name})
    return None if found is None else float(found)


def lengths(evidence: "Evidence", study: str) -> dict[str, dict[str, float]]:
    """By what it is, per run id: its last logged step, and how many steps lie between two rows."""
    query = "SELECT MAX(step) + 1, (MAX(step) - MIN(step)) * 1.0 / (COUNT(*) - 1) FROM steps WHERE run_id = ?"
    found = {run.id: evidence.rows(query, (run.id,))[0] for run in evidence.chosen(study)}
    return {
        what: {run: row[place] for run, row in found.items() if row[place] is not None}
        for place, what in enumerate(("length, in steps", "the interval of their rows, in steps"))
    }
