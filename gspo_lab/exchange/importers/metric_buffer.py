"""One run's numbers, sorted by step: the one place where rows of every source are joined."""

import json
import math
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping
from gspo_lab.common.text import first_few
from gspo_lab.exchange.importers.base import MOST_STEPS, parse_number
from gspo_lab.exchange.importers.secrets import is_secret_name, word_set

ROWS_AT_ONCE = 1 << 10
"""Rows that one SQLite call inserts."""
ROUNDED_ZERO = re.compile(r"-?0\.00+")
"""A zero that was printed with a fixed number of decimals."""
UNDERSCORED = re.compile(r"-?\d+(_\d+)+(\.\d+)?")
"""A number as Python's source writes it, which no log means."""
GAPS = """
WITH distances AS (
    SELECT before, step, step - before AS distance FROM (
        SELECT step, LAG(step) OVER (ORDER BY step) AS before FROM (SELECT DISTINCT step FROM rows)
    ) WHERE before IS NOT NULL
), usual AS (
    SELECT distance, COUNT(*) AS count FROM distances GROUP BY distance
    ORDER BY count DESC, distance LIMIT 1
)
SELECT before || ' and ' || step FROM distances
WHERE distance > (SELECT distance FROM usual WHERE count > 1) ORDER BY step
"""
"""The steps around each distance that is larger than the usual one of a log."""
ANSWERS = word_set("prompt prompts input completion completions response output answer text")
"""Names of the texts in rows of rollouts, one per answer."""
MISSING = word_set("n/a na null - -- ? missing #n/a")
"""Texts for a missing number, which a note may repeat; Python's own would look like a fault."""

Number = float | str
"""A number; a zero that the program rounded stays the text that it printed, "0.000"."""
Numbers = dict[str, Number]
"""Numbers by name."""


def as_number(value: Number) -> float:
    """The number itself, of a rounded zero 0."""
    return 0.0 if isinstance(value, str) else value


class MetricBuffer:
    """One run's numbers by step, whatever their order in the log.

    A temporary SQLite database holds the rows: it needs little memory, and sorts more than memory
    holds. Of one step and metric the later number counts. A resumed run's numbers beyond the step
    where the log ends are dropped. A log that begins again at its first step holds two runs:
    LabError.
    """

    def __init__(self, where: str, notes: list[str]) -> None:
        self._where = where
        self._notes = notes
        self.first_steps: dict[str, int] = {}
        """The step of each metric's first number."""
        self._last: dict[str, int] = {}
        self.last_values: Numbers = {}
        self._highest: dict[str, int] = {}
        """Per metric that went back its highest step before."""
        self._resumed: tuple[str, int, int] | None = None
        self._doubled: Counter[str] = Counter()
        self._first_double = ""
        self._texts: dict[str, tuple[int, Any, int]] = {}
        """Per name with a text in place of a number: its first step and text, and how many."""
        self._pending: list[tuple[int, str]] = []
        self._lowest = MOST_STEPS
        self._top = -1
        self._rising = True
        self._finite = False
        self.left_out: set[str] = set()
        """Names that look like secrets; their numbers are not kept."""
        self._database = sqlite3.connect("", check_same_thread=False)  # any thread may close it
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("CREATE TABLE rows (step INTEGER, content TEXT)")

    def __del__(self) -> None:
        self._database.close()

    def add(self, step: int, entries: JsonMapping) -> None:
        """Add a row's numbers; its other entries are left out."""
        row = self._numbers(step, entries)
        if not row:
            return
        if step <= self._top:
            self._check_order(step, row)
        self._rising = self._rising and step >= self._top
        self._lowest = min(self._lowest, step)
        self._top = max(self._top, step)
        for name in row.keys() - self.first_steps.keys():
            self.first_steps[name] = step
        self._last.update(dict.fromkeys(row, step))
        self.last_values.update(row)
        self._pending.append((step, json.dumps(row)))
        if len(self._pending) >= ROWS_AT_ONCE:
            self._write()

    def _numbers(self, step: int, entries: JsonMapping) -> Numbers:
        row: Numbers = {}
        for name, value in entries.items():
            if value is None or value == "":
                continue
            number = parse_number(value)
            if number is None:
                first_step, text, count = self._texts.get(name, (step, value, 0))
                self._texts[name] = (first_step, text, count + 1)
            elif name in self.left_out or (name not in self.first_steps and is_secret_name(name)):
                self.left_out.add(name)
            elif number == 0 and isinstance(value, str) and ROUNDED_ZERO.fullmatch(value):
                row[name] = value
            else:
                row[name] = number
            self._finite = self._finite or math.isfinite(number or 0)
        return row

    def _check_order(self, step: int, row: Mapping[str, Number]) -> None:
        """Note what a row repeats. LabError if the log begins again."""
        for name in row.keys() & self._last.keys():
            last = self._last[name]
            if step > last:
                continue  # a metric with steps of its own
            if step == last:
                self._note_double(name, step, row[name])
                continue
            if step <= self.first_steps[name] <= self._lowest:
                raise LabError(
                    f"{self._where}: {name} begins again at step {step}, after step {last}: two"
                    " runs in one log; part them"
                )
            self._resumed = self._resumed or (name, last, step)
            self._highest[name] = max(self._highest.get(name, 0), last)

    def _note_double(self, name: str, step: int, value: Number) -> None:
        previous = as_number(self.last_values[name])
        number = as_number(value)
        if previous == number or not math.isfinite(previous - number):
            return
        self._doubled[name] += 1
        self._first_double = self._first_double or (
            f"{name} is logged twice at step {step}, {previous:g} and {number:g}"
        )

    def finish(self) -> None:
        """Complete the notes. LabError if the log holds no number, or two runs side by side."""
        self._write()
        if self._top < 0:
            texts = f"; {first_few(sorted(self._texts))} hold text" if self._texts else ""
            raise LabError(
                f"{self._where}: it has no number to import: steps, seeds, and names that look like"
                f" secrets or begin with '_' are left out{texts}"
            )
        if not self._finite:
            raise LabError(
                f"{self._where}: every number in it is NaN or infinite; nothing to import"
            )
        self._check_rows()
        if self._resumed:
            name, last, step = self._resumed
            self._notes.append(
                f"{name} goes back from step {last} to {step} (resumed?): of one step the later"
                " number counts"
            )
        abandoned = sorted(
            name for name, highest in self._highest.items() if highest > self._last[name]
        )
        if abandoned:
            self._notes.append(
                f"numbers of steps that the resumed run did not reach again are left out:"
                f" {first_few(abandoned)}, beyond step {self._last[abandoned[0]]}"
            )
        for name, (step, text, count) in self._texts.items():
            if name in self.first_steps or UNDERSCORED.fullmatch(str(text)):
                stripped = str(text).strip()
                value = f" ({stripped})" if stripped.lower() in MISSING else ""
                self._notes.append(
                    f"{name} has a text in place of a number{value} at step {step}: {count} left"
                    " out"
                )

    def _note_gaps(self, steps: int) -> None:
        """Note the steps that are missing in a log with regular distances.

        With more than one gap in ten steps it has no regular distance.
        """
        gaps = [gap for (gap,) in self._database.execute(GAPS)]
        if 0 < len(gaps) <= max(1, steps // 10):
            self._notes.append(f"no steps between {first_few(gaps)}: lost, or of another log?")

    def _check_rows(self) -> None:
        [(rows, steps)] = self._database.execute("SELECT COUNT(*), COUNT(DISTINCT step) FROM rows")
        self._note_gaps(steps)
        texts = sorted((self._texts.keys() | self.first_steps.keys()) & ANSWERS)
        if texts and rows >= 2 * steps:
            raise LabError(
                f"{self._where}: {rows} rows at {steps} steps, with {first_few(texts)}: a row per"
                " answer, as rollouts have; give the trainer's log, with a row per step, or"
                " answers to a benchmark as the source items"
            )
        if not self._doubled:
            return
        _, most = self._doubled.most_common(1)[0]
        if most > 1 and 2 * most > steps:
            raise LabError(
                f"{self._where}: {self._first_double}, and so at {most} of {steps} steps: two runs"
                " in one log? Part them, or name the column that tells them apart, --map run=NAME"
            )
        self._notes.append(f"{self._first_double}: the later number counts")

    def rows(self) -> Iterator[tuple[int, Numbers]]:
        """All numbers by step. Of one step and metric the later finite number counts."""
        order = "rowid" if self._rising else "step, rowid"
        ends = {
            name: self._last[name]
            for name, highest in self._highest.items()
            if highest > self._last[name]
        }
        current: int | None = None
        merged: Numbers = {}
        query = f"SELECT step, content FROM rows ORDER BY {order}"
        for step, content in self._database.execute(query):
            if step != current:
                if merged and current is not None:
                    yield current, merged
                current = step
                merged = {}
            row: Numbers = json.loads(content)
            for name, value in row.items():
                counts = name not in merged or math.isfinite(as_number(value))
                if counts and step <= ends.get(name, step):
                    merged[name] = value
        if merged and current is not None:
            yield current, merged

    def _write(self) -> None:
        self._database.executemany("INSERT INTO rows VALUES (?, ?)", self._pending)
        self._pending.clear()
