"""Rows of `steps` and `updates`, as frames and as curves; what imported runs logged."""

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from gspo_lab.common.plain_data import JsonMapping, JsonObject, OptionalText
from gspo_lab.recording.store.evidence import arrays, table_of
from gspo_lab.recording.store.schema import RECORD_TABLES, metric_columns, quoted

if TYPE_CHECKING:
    from pandas import DataFrame

    from gspo_lab.recording.store.evidence import Evidence, Floats

LENGTH = "length, in steps"


def read_steps(
    evidence: "Evidence",
    study: str,
    metrics: Sequence[str],
    *,
    run: OptionalText = None,
    at_steps: Collection[int] | None = None,
) -> "DataFrame":
    """run_id, arm, seed, step and the metrics of each rollout batch; `run` and `at_steps` choose
    some.
    """
    return table_of(*_rows(evidence, study, "steps", ["step"], metrics, {"run_id": run}, at_steps))


def step_rows(
    evidence: "Evidence", study: str, metrics: Sequence[str], at_steps: Collection[int]
) -> list[JsonObject]:
    """The metrics of `read_steps` at some steps as rows by column, None if not measured."""
    rows, names, _ = _rows(evidence, study, "steps", ["step"], metrics, {"run_id": None}, at_steps)
    return [dict(zip(names, row, strict=True)) for row in rows]


def read_updates(
    evidence: "Evidence",
    study: str,
    metrics: Sequence[str],
    *,
    run: OptionalText = None,
    nonfinite: int | None = None,
) -> "DataFrame":
    """run_id, arm, seed, step, minibatch and the metrics of each update; `run` and `nonfinite` keep
    to some.
    """
    only = {"run_id": run, "nonfinite": nonfinite}
    return table_of(*_rows(evidence, study, "updates", ["step", "minibatch"], metrics, only, None))


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
    """The final means of a run's numbers, under their own names.

    Each is over the last n // 5 of the number's n rows, at least of one.
    """
    query = (
        "SELECT key, AVG(value) FROM (SELECT key, value, COUNT(*) OVER (PARTITION BY key) AS count,"
        " ROW_NUMBER() OVER (PARTITION BY key ORDER BY step DESC) AS place FROM updates,"
        " json_each(engine_metrics) WHERE run_id = ? AND minibatch < 0) WHERE place <= MAX(1, count"
        " / 5) GROUP BY key"
    )
    return dict(evidence.rows(query, (run,)))


def read_ends(evidence: "Evidence", run: str, column: OptionalText, name: str) -> tuple[float, ...]:
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
    """The lengths of imported runs: quantity -> run id -> number.

    They are a run's last logged step, and how many steps lie between two rows.
    """
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
) -> tuple[list[tuple[Any, ...]], list[str], list[str]]:
    """Rows of a record table, their columns, and which of these hold numbers; of `only` the entries
    that are not None pick rows."""
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
    rows: list[tuple[Any, ...]] = []
    for run in evidence.chosen(study):
        if only["run_id"] in (None, run.id):
            rows += [(*run, *row) for row in evidence.rows(query, (run.id, *picked.values()))]
    numbers = [name for name in columns if RECORD_TABLES[table].column(name).type != "TEXT"]
    return rows, ["run_id", "arm", "seed", *key, *columns], [*key, *numbers]
