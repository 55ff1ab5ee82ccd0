"""Reading the database: labelled rows, and frames for Python users. Nothing here can write.

Evidence from elsewhere, an archive or another machine, is read through a database of its own that
is thrown away.
"""

import json
import sqlite3
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import starmap
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import DATABASE
from gspo_lab.common.plain_data import JsonMapping, JsonObject, OptionalFloat
from gspo_lab.common.registry import unlisted
from gspo_lab.recording.store.audit import runs_at_fault, study_at_fault
from gspo_lab.recording.store.database import DAMAGED, copied, explained, reading
from gspo_lab.recording.store.ingest import ingest_apart
from gspo_lab.recording.store.schema import CHOSEN, IN_ORDER, RUNS, quoted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pandas import DataFrame

    Floats: TypeAlias = NDArray[np.float64]

T = TypeVar("T")


RUN_COLUMNS = [*dict.fromkeys(("run_id", "study", "arm", "seed", *RUNS.names))]


class RunKey(NamedTuple):
    """The run of a frame's rows."""

    id: str
    arm: str
    seed: int


class Evidence:
    """What was recorded, as of the moment of `open`: all frames show the same state, however long
    they take to read.

    `with Evidence.open(Path("runs/lab.db")) as evidence: evidence.runs("moe_stability")`
    What was not measured is NaN (numbers) or missing (texts); JSON columns are their text.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, folder: Path) -> None:
        self._connection = connection
        self._path = path
        self.runs_folder = folder
        self._results: dict[Hashable, Any] = {}

    @classmethod
    def open(cls, path: Path, runs: Path | None = None) -> "Evidence":
        """Open read-only; `runs`: where the studies lie, if not beside it. LabError if there is no
        database, it is damaged, foreign, or of another version."""
        return cls(reading(path), path, path.parent if runs is None else runs)

    def __enter__(self) -> "Evidence":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if isinstance(error, Exception) and _is_damaged(
                self, refused=isinstance(error, LabError)
            ):
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

    def study(self, name: str) -> JsonObject:
        """The content of the study's study.json: one object for all who ask, so nobody may change
        it.
        """

        def read() -> JsonObject:
            rows = self.rows("SELECT content FROM studies WHERE study = ?", (name,))
            if not rows:
                raise LabError(f"{self._path}: no study {unlisted(name, self.studies(), 'it has')}")
            try:
                content: JsonObject = json.loads(rows[0][0])
            except ValueError as error:
                raise LabError(f"{self._path} {DAMAGED}") from error
            return content

        return self.once(("study", name), read)

    def runs(self, study: str) -> "DataFrame":
        """One row per run, in the order of the study's arms, then seeds.

        `settings` and `facts` are JSON text.
        """
        numbers = ("steps_done", "steps_planned", "started_at", "finished_at")
        rows = [tuple(row.values()) for row in self.run_rows(study)]
        return table_of(rows, RUN_COLUMNS, numbers)

    def run_rows(self, study: str) -> list[JsonObject]:
        """The study's runs as rows by column. All callers share one list: do not change it."""
        query = (
            f"SELECT {', '.join(RUN_COLUMNS)} FROM chosen JOIN (SELECT run_id, study,"
            f" {quoted(RUN_COLUMNS[4:])} FROM runs) USING (run_id) ORDER BY {IN_ORDER}"
        )
        return self.once((query, study), lambda: self.select(study, query))

    def select(self, study: str, query: str, *values: Any) -> list[JsonObject]:
        """The rows of one SELECT by column. It may join `chosen`: run_id, arm, seed and place of
        the study's runs.
        """
        self.study(study)
        with explained(self._path):
            cursor = self._connection.execute(CHOSEN + query, (study, *values))
            names = [entry[0] for entry in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    def table(self, query: str, *values: Any) -> "DataFrame":
        """The rows of one SELECT."""
        from pandas import DataFrame

        with explained(self._path):
            cursor = self._connection.execute(query, values)
            return DataFrame.from_records(
                cursor.fetchall(), columns=[entry[0] for entry in cursor.description]
            )

    def rows(self, query: str, values: Sequence[Any] | JsonMapping = ()) -> list[tuple[Any, ...]]:
        """The rows of a query as plain tuples."""
        with explained(self._path):
            return self._connection.execute(query, values).fetchall()

    def iter_rows(
        self, query: str, values: Sequence[Any] | JsonMapping = ()
    ) -> Iterator[tuple[Any, ...]]:
        """The rows of a query one by one, for results larger than memory."""
        with explained(self._path):
            yield from self._connection.execute(query, values)

    def once(self, key: Hashable, read: Callable[[], T]) -> T:
        """The result of `read`, which is called at most once, since the records do not change.

        Do not change it.
        """
        if key not in self._results:
            self._results[key] = read()
        answer: T = self._results[key]
        return answer

    def chosen(self, study: str) -> list[RunKey]:
        """The study's runs in order. LabError for a study that the database lacks."""
        self.study(study)
        query = f"{CHOSEN} SELECT run_id, arm, seed FROM chosen ORDER BY {IN_ORDER}"
        return self.once((query, study), lambda: list(starmap(RunKey, self.rows(query, (study,)))))


def _is_damaged(evidence: Evidence, refused: bool) -> bool:
    """Whether the file is broken, or differs from the files of a study that was read: an error is
    then neither a bug nor the user's mistake. Journals are read again only where the error is not
    `refused` input."""
    names = [key[1] for key in evidence._results if isinstance(key, tuple) and key[0] == "study"]
    try:
        if any(study_at_fault(evidence.runs_folder, name, evidence.study(name)) for name in names):
            return True
        if refused:
            return False
        if evidence.rows("PRAGMA quick_check(1)") != [("ok",)]:
            return True
        for name in names:
            runs = [run.id for run in evidence.chosen(name)]
            audited = runs_at_fault(evidence.iter_rows, evidence.runs_folder, runs)
            if any(faults for _, _, faults in audited):
                return True
        return False
    except Exception:  # it cannot even be compared
        return True


@contextmanager
def evidence_of_study(home: Path) -> Iterator[Evidence]:
    """One study's folder, as if it were all that its lab holds."""
    with TemporaryDirectory(prefix="gspo-lab-") as place:
        runs = Path(place, "runs")
        database = Path(place, DATABASE)
        runs.mkdir()
        (runs / home.name).symlink_to(home.resolve(), target_is_directory=True)
        ingest_apart(runs, database)
        with Evidence.open(database, runs) as evidence:
            yield evidence


@contextmanager
def evidence_of_database(path: Path) -> Iterator[Evidence]:
    """A lab.db, read from a copy. LabError where it is none, or of another version."""
    with TemporaryDirectory(prefix="gspo-lab-") as place:
        copy = Path(place, DATABASE)
        try:
            copied(path, copy)
        except LabError as error:
            raise LabError(str(error).replace(str(copy), str(path))) from error
        with Evidence.open(copy, path.parent) as evidence:
            yield evidence


def arrays(rows: Sequence[tuple[OptionalFloat, ...]], names: Sequence[str]) -> "dict[str, Floats]":
    """Rows of numbers as one array per column, NaN where nothing was measured."""
    import numpy as np

    block = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
    return dict(zip(names, np.ascontiguousarray(block.T), strict=True))


def table_of(
    rows: list[tuple[Any, ...]], columns: list[str], numbers: Iterable[str]
) -> "DataFrame":
    """A frame of rows. The columns `numbers` hold numbers, also where all values are NULL."""
    from pandas import DataFrame

    frame = DataFrame(rows, columns=columns)
    return frame.astype({name: "float64" for name in numbers if frame[name].dtype == object})
