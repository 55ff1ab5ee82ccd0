"""Reading the database: labelled frames for statistics and reports. Nothing here can write."""

import json
import math
import sqlite3
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from gspo_lab.errors import LabError
from gspo_lab.registry import nearest
from gspo_lab.store.aggregates import from_texts, of_spans
from gspo_lab.store.audit import runs_at_fault, study_at_fault
from gspo_lab.store.columns import Run, arrays, framed, with_numbers
from gspo_lab.store.database import DAMAGED, explained, reading
from gspo_lab.store.schema import CHOSEN, IN_ORDER, RECORD_TABLES, RUNS, quoted

if TYPE_CHECKING:
    from pandas import DataFrame

    from gspo_lab.store.columns import Floats

Found = TypeVar("Found")


class Evidence:
    """What was recorded, as of the moment of `open`: all frames show the same state, however long they take to read.

    `with Evidence.open(Path("runs/lab.db")) as evidence: evidence.runs("moe_stability")`
    What was not measured is NaN (numbers) or missing (texts); JSON columns are their text.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, folder: Path) -> None:
        self._connection, self._path, self.runs_folder = connection, path, folder
        self._known: dict[Hashable, Any] = {}

    @classmethod
    def open(cls, path: Path, runs: Path | None = None) -> "Evidence":
        """Open read-only; `runs`: where the studies lie, if not beside it. LabError if there is no database, it is
        damaged, foreign, or of another version."""
        return cls(reading(path), path, path.parent if runs is None else runs)

    def __enter__(self) -> "Evidence":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(error, Exception) and _is_damaged(self, refused=isinstance(error, LabError)):
                raise LabError(f"{self._path} {DAMAGED}") from error
        finally:
            self.close()

    def close(self) -> None:
        """Let the database go; frames that were read stay."""
        self._connection.close()

    def studies(self) -> list[str]:
        """The studies' names, the one with the most recent activity last."""
        query = """
            SELECT study FROM studies LEFT JOIN runs USING (study)
            LEFT JOIN (SELECT run_id, MAX(at) AS at FROM statuses GROUP BY run_id) USING (run_id)
            GROUP BY study ORDER BY COALESCE(MAX(at), declared_at), study"""
        return [study for (study,) in self.rows(query)]

    def study(self, name: str) -> dict[str, Any]:
        """The content of the study's study.json: one object for all who ask, so nobody may change it."""

        def read() -> dict[str, Any]:
            found = self.rows("SELECT content FROM studies WHERE study = ?", (name,))
            if not found:
                known = self.studies()
                raise LabError(
                    f"no study '{name}'{nearest(name, known)} in {self._path}; it has {', '.join(known) or 'none'}"
                )
            try:
                content: dict[str, Any] = json.loads(found[0][0])
            except ValueError as error:
                raise LabError(f"{self._path} {DAMAGED}") from error
            return content

        return self.once(("study", name), read)

    def runs(self, study: str) -> "DataFrame":
        """One row per run, in the order of the study's arms, then seeds. `settings` and `facts` are JSON text."""
        rest = [name for name in RUNS.names if name not in ("run_id", "study", "arm", "seed")]
        frame = self.select(
            study,
            f"SELECT run_id, study, arm, seed, {quoted(rest)} FROM chosen "
            f"JOIN (SELECT run_id, study, {quoted(rest)} FROM runs) USING (run_id) ORDER BY {IN_ORDER}",
        )
        return with_numbers(frame, ("steps_done", "steps_planned", "started_at", "finished_at"))

    def steps(
        self, study: str, metrics: Sequence[str], *, run: str | None = None, at: Collection[int] | None = None
    ) -> "DataFrame":
        """run_id, arm, seed, step and the metrics of each rollout batch; `run` and `at` (steps) keep to some."""
        return self._records(study, "steps", ["step"], metrics, {"run_id": run}, at)

    def updates(
        self,
        study: str,
        metrics: Sequence[str],
        *,
        run: str | None = None,
        at: Collection[int] | None = None,
        minibatch: int | None = None,
        nonfinite: int | None = None,
    ) -> "DataFrame":
        """run_id, arm, seed, step, minibatch and the metrics of each update; the rest keeps to some of them."""
        only = {"run_id": run, "minibatch": minibatch, "nonfinite": nonfinite}
        return self._records(study, "updates", ["step", "minibatch"], metrics, only, at)

    def width(self, study: str, buckets: int = 250) -> int:
        """How many steps each of at most `buckets` spans holds, so that they cover the study's longest run."""
        if buckets < 1:
            raise LabError(f"buckets: at least 1, got {buckets}")
        return max(1, math.ceil((self._last(study) + 1) / buckets))

    def spans(
        self,
        study: str,
        table: str,
        metrics: Sequence[str],
        *,
        buckets: int = 250,
        extremes: Collection[str] = (),
        totals: Collection[str] = (),
        since: Mapping[str, int] | None = None,
    ) -> "dict[Run, dict[str, Floats]]":
        """Per run and metric its mean over each of at most `buckets` spans of steps, made in SQL, in one pass.

        Metrics in `extremes` also have columns `<metric>.low` and `<metric>.high`; of those in `totals` it is the sum.
        All runs and both tables share the spans: entry i is of the steps from i * `width` on, and a step is a span of
        its own while there are no more than `buckets`. Column `x` is the middle of the steps that a span holds. A share
        of tokens is that of all the span's.
        What was not measured is left out of the mean; a span without any measurement is NaN.
        `since` keeps to some runs, of each to its spans from a step on.
        """
        width = self.width(study, buckets)
        if table not in ("steps", "updates"):
            raise LabError(f"spans: from steps or updates, got '{table}'")
        means, ends = (self.columns(table, wanted, numbers=True) for wanted in (metrics, extremes))
        query, names = of_spans(table, means, ends, totals)
        end = self._last(study) + 1
        firsts = since if since is not None else {run.id: 0 for run in self.chosen(study)}
        wanted = {run: range(firsts[run.id], end, width) for run in self.chosen(study) if run.id in firsts}
        out = {}
        for run, lows in wanted.items():
            ((found,),) = self.rows(query, (width, json.dumps([(run.id, low) for low in lows])))
            out[run] = arrays(from_texts(found), names)
        return out

    def series(self, study: str, table: str, metric: str) -> "dict[str, tuple[Floats, Floats]]":
        """Per run id the steps and the values of every measurement of one number, for what SQL cannot say: medians."""
        self.columns(table, [metric], numbers=True)
        query = f'SELECT step, "{metric}" FROM {table} WHERE run_id = ? AND "{metric}" IS NOT NULL ORDER BY step'

        def read() -> "dict[str, tuple[Floats, Floats]]":
            found = {run.id: arrays(self.rows(query, (run.id,)), ("step", metric)) for run in self.chosen(study)}
            return {run: (columns["step"], columns[metric]) for run, columns in found.items()}

        return self.once((query, study), read)

    def select(self, study: str, query: str, *values: Any) -> "DataFrame":
        """The rows of one SELECT that may join `chosen`: run_id, arm, seed and place of the study's runs."""
        self.study(study)
        return self.table(CHOSEN + query, study, *values)

    def table(self, query: str, *values: Any) -> "DataFrame":
        """The rows of one SELECT."""
        from pandas import DataFrame

        with explained(self._path):
            cursor = self._connection.execute(query, values)
            return DataFrame.from_records(cursor.fetchall(), columns=[entry[0] for entry in cursor.description])

    def rows(self, query: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """The same, plain."""
        with explained(self._path):
            return self._connection.execute(query, values).fetchall()

    def each(self, query: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Iterator[tuple[Any, ...]]:
        """The same, one by one: of what memory may not hold."""
        with explained(self._path):
            yield from self._connection.execute(query, values)

    def once(self, key: Hashable, read: Callable[[], Found]) -> Found:
        """What `read` returns, which is read at most once: the moment does not change. Nobody may change it."""
        if key not in self._known:
            self._known[key] = read()
        found: Found = self._known[key]
        return found

    def _records(
        self,
        study: str,
        table: str,
        key: list[str],
        metrics: Sequence[str],
        only: Mapping[str, Any],
        at: Collection[int] | None,
    ) -> "DataFrame":
        """Rows of a record table; of `only` the entries that are not None pick rows."""
        runs = self.chosen(study)
        wanted = self.columns(table, (name for name in metrics if name not in key))
        picked = {name: value for name, value in only.items() if value is not None and name != "run_id"}
        where = "".join(f" AND {name} = ?" for name in picked)
        if at is not None:
            where += " AND step IN (SELECT value FROM json_each(?))"
            picked["step"] = json.dumps(sorted(at))
        query = f"SELECT {quoted([*key, *wanted])} FROM {table} WHERE run_id = ?{where} ORDER BY {', '.join(key)}"
        found = {run: self.rows(query, (run.id, *picked.values())) for run in runs if only["run_id"] in (None, run.id)}
        kinds = {name: RECORD_TABLES[table].column(name).type for name in wanted}
        types: dict[str, type] = {"TEXT": object, "REAL": float, "INTEGER": int}
        return framed(found, {**dict.fromkeys(key, int), **{name: types[kind] for name, kind in kinds.items()}})

    def chosen(self, study: str) -> list[Run]:
        """The study's runs in order. LabError for a study that the database lacks."""
        self.study(study)
        query = f"{CHOSEN} SELECT run_id, arm, seed FROM chosen ORDER BY {IN_ORDER}"
        return self.once((query, study), lambda: [Run(*row) for row in self.rows(query, (study,))])

    def _last(self, study: str) -> int:
        """The last step that any run of the study has in either table, -1 if none."""
        ends = ", ".join(
            f"IFNULL((SELECT MAX(step) FROM {table} WHERE {table}.run_id = chosen.run_id), -1)"
            for table in ("steps", "updates")
        )
        query = f"{CHOSEN} SELECT IFNULL(MAX(MAX({ends})), -1) FROM chosen"
        return self.once((query, study), lambda: int(self.rows(query, (study,))[0][0]))

    def columns(self, table: str, metrics: Iterable[str], *, numbers: bool = False) -> list[str]:
        """The metrics without repetition. LabError if one is not a column of the records or of this file; with
        `numbers` also if one is a text."""
        names = list(dict.fromkeys(metrics))
        recorded = RECORD_TABLES[table]
        present = {name for _, name, *_ in self.rows(f"PRAGMA table_info({table})")}
        for name in names:
            if name not in recorded.names:
                raise LabError(
                    f"no metric '{name}' in {table}{nearest(name, recorded.names)}; docs/reference/metrics.md has all"
                )
            if name not in present:
                raise LabError(f"{self._path} is older than the metric '{name}': gspo-lab rebuild")
            column = recorded.column(name)
            if numbers and column.type == "TEXT":
                raise LabError(f"{table}.{name} is {'JSON' if column.json else 'text'}, not a number")
        return names


def _is_damaged(evidence: Evidence, refused: bool) -> bool:
    """Whether the file is broken, or differs from the files of a study that was read: an error is then neither a bug
    nor the user's mistake. Journals are read again only where the error is not `refused` input."""
    names = [key[1] for key in evidence._known if isinstance(key, tuple) and key[0] == "study"]
    try:
        if any(study_at_fault(evidence.runs_folder, name, evidence.study(name)) for name in names):
            return True
        if refused:
            return False
        runs = [run.id for name in names for run in evidence.chosen(name)]
        broken = evidence.rows("PRAGMA quick_check(1)") != [("ok",)]
        return broken or any(faults for _, _, faults in runs_at_fault(evidence.each, evidence.runs_folder, runs))
    except Exception:  # it cannot even be compared
        return True
