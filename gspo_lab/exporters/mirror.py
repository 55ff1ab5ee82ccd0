"""A study in other programs while it runs (`[record] mirror`): rows as they come, as `gspo-lab export` has them.

    mirror.follow(news)   each run's rows that are whole, behind those that are there
    mirror.finish()       every row that was recorded

A run that the conductor has not seen yet, or whose worker has started again since, is begun anew: what its mirror holds
of other rows than the records in force goes. So each row is there once, whoever was killed in between.
"""

import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from gspo_lab.errors import LabError
from gspo_lab.exporters import Target, Writer, logged
from gspo_lab.layout import MIRROR, database_of
from gspo_lab.states import State
from gspo_lab.store import Evidence
from gspo_lab.store.traces import read_starts

LEAST_SECONDS = 5.0
SHARE = 20
"""One part in so many of the conductor's time goes into mirrors, however long a study is."""


class Mirror:
    """A study's mirrors, by their programs' names. To be entered once the study's folder is the conductor's."""

    def __init__(self, runs: Path, study: str, targets: Mapping[str, Target]) -> None:
        self._runs, self._study, self._targets = runs, study, targets
        self._writers: list[Writer] = []
        self._open = ExitStack()
        self._starts: Counter[str] = Counter()
        """Per run how often a worker had started when its mirror was begun."""
        self._next: dict[str, int] = {}
        """Per run the first step that its mirror lacks."""
        self._behind = False
        self._due = 0.0

    def __enter__(self) -> "Mirror":
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def follow(self, news: bool) -> None:
        """Add what is new, at most now and then; `news`: there is some. LabError where a program does not take it."""
        self._behind |= news
        if self._behind and time.monotonic() >= self._due:
            self._bring(at_end=False)

    def finish(self) -> None:
        """Add all that is left, rows of runs that are not over among it. LabError as above."""
        self._bring(at_end=True)

    def _bring(self, at_end: bool) -> None:
        began = time.monotonic()
        try:
            if not self._writers:
                self._writers = [
                    self._open.enter_context(target.writer(self._study, self._folder(name)))
                    for name, target in self._targets.items()
                ]
            with Evidence.open(database_of(self._runs), self._runs) as evidence:
                if self._study in evidence.studies():
                    self._take(evidence, at_end)
            self._behind = False
        except BaseException:
            self._starts.clear()  # what was written of which run is not known: all are begun again, by new writers
            self._writers.clear()
            self._open.close()
            raise
        finally:
            now = time.monotonic()
            self._due = now + max(LEAST_SECONDS, SHARE * (now - began))

    def _take(self, evidence: Evidence, at_end: bool) -> None:
        starts = Counter(map(str, read_starts(evidence, self._study)["run_id"]))
        states = {str(row["run_id"]): row["state"] for row in evidence.runs(self._study).to_dict("records")}
        again = {run for run, count in starts.items() if self._starts[run] != count}
        since = {run: 0 if run in again else self._next[run] for run in starts}
        for one in logged(evidence, self._study, since):
            rows = list(one.rows())
            if states[one.id] == State.RUNNING and not at_end:
                del rows[-1:]  # more may come of its step
            for writer in self._writers:
                writer.add(one, rows[writer.begin(one, rows) :] if one.id in again else rows)
            self._starts[one.id] = starts[one.id]
            self._next[one.id] = rows[-1][0] + 1 if rows else since[one.id]

    def _folder(self, name: str) -> Path:
        folder = self._runs / self._study / MIRROR / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LabError(f"{folder}: cannot be made ({error.strerror})") from error
        return folder
