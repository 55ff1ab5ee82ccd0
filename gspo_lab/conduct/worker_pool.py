"""The workers of one study, and what they leave: shown while they work, taken into the database, and mirrored."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

from rich.console import Console

from gspo_lab.conduct.scheduler import Interrupts, WorkItem, WorkItemResult, run_work_items
from gspo_lab.errors import LabError
from gspo_lab.exporters.mirror import Mirror
from gspo_lab.launch.base import Launcher, Slot
from gspo_lab.progress import ProgressView
from gspo_lab.states import State
from gspo_lab.store import ingest

INGEST_SECONDS = 0.5


@dataclass
class WorkerPool:
    """The workers of one study: puts work on slots, shows it, and takes the journals into the database. `with` it."""

    runs: Path
    console: Console
    launcher: Launcher
    slots: Sequence[Slot]
    view: ProgressView
    mirror: Mirror | None = None
    results: list[WorkItemResult] = field(default_factory=list)
    interrupts: Interrupts = field(default_factory=Interrupts)
    _stack: ExitStack = field(default_factory=ExitStack)
    _ingested: float = 0.0
    _behind: bool = False
    _told: set[str] = field(default_factory=set)

    def __enter__(self) -> Self:
        self._stack.enter_context(self.interrupts)
        self._stack.enter_context(self.view)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def work(self, stage: str, items: Sequence[WorkItem]) -> bool:
        """Do the work of one stage; whether all of it was finished."""
        if self.interrupts.count:
            return False
        if not items:
            return True
        self.view.begin(stage, [item.cell for item in items], len(self.slots))
        results = run_work_items(items, self.launcher, self.slots, self.view, self.interrupts, self._follow)
        self.results += results
        return len(results) == len(items) and all(result.state is State.FINISHED for result in results)

    def ingest(self) -> None:
        """Take everything that the journals hold into the database."""
        ingest(self.runs)
        self._ingested = time.monotonic()
        self._behind = False

    def end(self) -> None:
        """Take everything that the journals hold into the database, and from there into the mirrors."""
        self.ingest()
        if self.mirror is not None:
            self._try("the mirror is behind", self.mirror.finish)

    def _try(self, trouble: str, action: Callable[[], None]) -> None:
        """The journals are the truth: where the database or a mirror fails, training goes on, and the failure is told
        once. The last `ingest` raises if it stays."""
        try:
            action()
        except (LabError, OSError) as error:
            line = f"{trouble}: {error}"
            if line not in self._told:
                self._told.add(line)
                self.view.say(line)

    def _follow(self, news: bool) -> None:
        self._behind |= news
        due = self._behind and time.monotonic() - self._ingested >= INGEST_SECONDS
        if due:
            self._ingested = time.monotonic()
            self._try("the database is behind", self.ingest)
        if self.mirror is not None:
            self._try("the mirror is behind", partial(self.mirror.follow, due))
