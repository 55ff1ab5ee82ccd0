"""Sort the numbers of a log by step: some logs list them metric by metric, or on several step axes.

A temporary SQLite database holds them. It needs little memory, sorts more than memory holds, and is deleted on close.
"""

import math
import sqlite3
from collections.abc import Iterator

from gspo_lab.errors import LabError
from gspo_lab.importers.base import LoggedRow

AT_ONCE = 1 << 14
"""Numbers that one SQLite call inserts."""


class MetricBuffer:
    """One run's numbers in log order.

    A later number of a step and metric replaces the earlier one. A metric whose steps go back is noted once. One that
    begins again belongs to another run: LabError.
    """

    def __init__(self, where: str, notes: list[str]) -> None:
        self._where, self._notes = where, notes
        self._firsts: dict[str, int] = {}
        self._last: dict[str, tuple[int, float]] = {}
        """Per metric its last step and number."""
        self._new: list[tuple[str, int, float]] = []
        self._at, self._rising = -1, True
        self._went_back = self._doubled = False
        self._database = sqlite3.connect("", check_same_thread=False)  # any thread may close it
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("CREATE TABLE numbers (name TEXT, step INTEGER, value REAL)")

    def __del__(self) -> None:
        self._database.close()

    @property
    def names(self) -> set[str]:
        """The names of the metrics."""
        return set(self._firsts)

    def add(self, name: str, step: int, value: float) -> None:
        """Add one number."""
        last = self._last.get(name)
        if last is None:
            self._firsts.setdefault(name, step)
        elif step < last[0]:
            self._check_step_order(name, last[0], step)
        elif step == last[0] and value != last[1]:
            self._note_duplicate(name, step, last[1], value)
        self._last[name] = step, value
        self._rising = self._rising and step >= self._at
        self._at = step
        self._new.append((name, step, value))
        if len(self._new) >= AT_ONCE:
            self._write()

    def drop(self, step: int) -> None:
        """Delete all numbers of this step and later steps."""
        self._write()
        self._database.execute("DELETE FROM numbers WHERE step >= ?", (step,))
        self._last = {name: (min(last, step - 1), value) for name, (last, value) in self._last.items()}

    def take(self, later: "MetricBuffer") -> None:
        """Append a later file of the run. It replaces this file's numbers from each metric's first step in it."""
        self._write()
        later._write()
        ends = later._firsts.items()
        self._database.executemany("DELETE FROM numbers WHERE name = ? AND step >= ?", ends)
        self._database.executemany("INSERT INTO numbers VALUES (?, ?, ?)", later._select("rowid"))
        self._firsts = {**later._firsts, **self._firsts}
        self._rising = False

    def rows(self) -> Iterator[LoggedRow]:
        """All numbers by step."""
        self._write()
        at: int | None = None
        row: dict[str, float] = {}
        for name, step, value in self._select("rowid" if self._rising else "step, rowid"):
            if step != at:
                if at is not None:
                    yield at, row
                at, row = step, {}
            if name not in row or (value is not None and math.isfinite(value)):
                row[name] = math.nan if value is None else value
        if at is not None:
            yield at, row

    def _write(self) -> None:
        self._database.executemany("INSERT INTO numbers VALUES (?, ?, ?)", self._new)
        self._new.clear()

    def _select(self, order: str) -> Iterator[tuple[str, int, float | None]]:
        """The numbers; SQLite has NULL for NaN."""
        return iter(self._database.execute(f"SELECT name, step, value FROM numbers ORDER BY {order}"))

    def _check_step_order(self, name: str, last: int, step: int) -> None:
        if step <= self._firsts[name] < last:
            raise LabError(
                f"{self._where}: {name} begins again at step {step}, after step {last}: two runs in one log; part them"
            )
        if not self._went_back:
            self._notes.append(f"{name} goes back from step {last} to {step}: of one step the later number counts")
        self._went_back = True

    def _note_duplicate(self, name: str, step: int, before: float, value: float) -> None:
        if not self._doubled and math.isfinite(before) and math.isfinite(value):
            self._notes.append(
                f"{name} is logged twice at step {step}, {before:g} and {value:g}: the later number counts"
            )
            self._doubled = True
