"""The workers of one study, and what they leave: shown while they work, taken into the database, and mirrored."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console

from gspo_lab.conduct.live import open_view
from gspo_lab.conduct.work import Errand, ErrandEnd, Interrupts, work_off
from gspo_lab.errors import LabError
from gspo_lab.exporters.mirror import Mirror
from gspo_lab.launch.base import Launcher, Slot
from gspo_lab.states import State
from gspo_lab.store import ingest

INGEST_SECONDS = 0.5


@dataclass
class Crew:
    """The workers of one study: puts errands on slots, shows them, and takes their journals into the database."""

    runs: Path
    console: Console
    live: bool
    launcher: Launcher
    slots: Sequence[Slot]
    interrupts: Interrupts
    mirror: Mirror | None = None
    endings: list[ErrandEnd] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _ingested: float = 0.0
    _behind: bool = False
    _trouble: str | None = None
    _untaken: str | None = None

    def work(self, title: str, errands: Sequence[Errand]) -> bool:
        """Work the errands off; whether all of them finished."""
        if self.interrupts.count:
            return False
        if not errands:
            return True
        with ExitStack() as stack:
            view = open_view(stack, self.console, title, errands, self.slots, self.live, self._began)
            endings = work_off(errands, self.launcher, self.slots, view, self.interrupts, self._follow)
        self.endings += endings
        return len(endings) == len(errands) and all(ending.state is State.FINISHED for ending in endings)

    def ingest(self) -> None:
        """Take everything that the journals hold into the database."""
        ingest(self.runs)
        self._ingested = time.monotonic()
        self._behind = False

    def end(self) -> None:
        """Take everything that the journals hold into the database, and from there into the mirrors."""
        self.ingest()
        if self.mirror is not None:
            self._reflect(self.mirror.finish)

    def _reflect(self, bring: Callable[[], None]) -> None:
        """Nothing of the study depends on its mirrors: where one fails it is told, and tried again."""
        try:
            bring()
        except (LabError, OSError) as error:
            if self._untaken != str(error):
                self._untaken = str(error)
                self.console.print(f"the mirror is behind: {error}", markup=False)

    def _follow(self, news: bool) -> None:
        self._behind |= news
        due = self._behind and time.monotonic() - self._ingested >= INGEST_SECONDS
        if due:
            try:
                self.ingest()
            except LabError as error:
                # The journals are the truth: training goes on, and the last ingest tells if the trouble stays.
                self._ingested = time.monotonic()
                if self._trouble != str(error):
                    self._trouble = str(error)
                    self.console.print(f"the database is behind: {error}", markup=False)
        if self.mirror is not None:
            self._reflect(partial(self.mirror.follow, due))
