"""Export a study to other programs while it runs (`[record] mirror`), with the rows of `gspo-lab
export`.

    mirror.follow(news)   append each run's complete rows
    mirror.finish()       append all recorded rows

A run that is new to this process, or whose worker restarted, is begun again: rows in its mirror
that differ from the records are deleted. So each row is there once, even after an interruption.
"""

import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import MIRROR, database_of
from gspo_lab.common.states import State
from gspo_lab.exchange.exporters import StudyWriter, Target, read_run_rows
from gspo_lab.recording.store import Evidence
from gspo_lab.recording.store.traces import read_starts

LEAST_SECONDS = 5.0
SHARE = 20
"""Mirrors take at most 1 / SHARE of the process's time."""


class Mirror:
    """A study's mirrors by program. Enter it when the study's folder is locked."""

    def __init__(self, runs: Path, study: str, targets: Mapping[str, Target]) -> None:
        self._runs = runs
        self._study = study
        self._targets = targets
        self._writers: list[StudyWriter] = []
        self._open = ExitStack()
        self._starts: Counter[str] = Counter()
        """Per run the number of worker starts when its mirror was begun."""
        self._next: dict[str, int] = {}
        """Per run the first step that is missing in its mirror."""
        self._behind = False
        self._due = 0.0

    def __enter__(self) -> "Mirror":
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def follow(self, has_changed: bool) -> None:
        """Add new rows, if there are some, at intervals. LabError if a program refuses them."""
        self._behind |= has_changed
        if self._behind and time.monotonic() >= self._due:
            self._write_new_rows(at_end=False)

    def finish(self) -> None:
        """Add all remaining rows, also of unfinished runs. LabError if a program refuses them."""
        self._write_new_rows(at_end=True)

    def _write_new_rows(self, at_end: bool) -> None:
        began = time.monotonic()
        try:
            if not self._writers:
                self._writers = [
                    self._open.enter_context(target.writer(self._study, self._folder(name)))
                    for name, target in self._targets.items()
                ]
            with Evidence.open(database_of(self._runs), self._runs) as evidence:
                if self._study in evidence.studies():
                    self._write_rows(evidence, at_end)
            self._behind = False
        except BaseException:
            self._starts.clear()  # it is unknown which rows were written: begin all runs again
            self._writers.clear()
            self._open.close()
            raise
        finally:
            ended = time.monotonic()
            self._due = ended + max(LEAST_SECONDS, SHARE * (ended - began))

    def _write_rows(self, evidence: Evidence, at_end: bool) -> None:
        starts = Counter(row["run_id"] for row in read_starts(evidence, self._study))
        states = {row["run_id"]: row["state"] for row in evidence.run_rows(self._study)}
        again = {run for run, count in starts.items() if self._starts[run] != count}
        since = {run: 0 if run in again else self._next[run] for run in starts}
        for run in read_run_rows(evidence, self._study, since):
            rows = list(run.rows())
            if states[run.id] == State.RUNNING and not at_end:
                del rows[-1:]  # its step may be incomplete
            for writer in self._writers:
                writer.add(run, rows[writer.begin(run, rows) :] if run.id in again else rows)
            self._starts[run.id] = starts[run.id]
            self._next[run.id] = rows[-1][0] + 1 if rows else since[run.id]

    def _folder(self, name: str) -> Path:
        folder = self._runs / self._study / MIRROR / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LabError(f"{folder}: cannot be made ({error.strerror})") from error
        return folder
