"""How far a command is, on stderr: bars in a terminal, dated lines anywhere else."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINE_SECONDS = 5.0
"""At least so long lies between two lines; the first and the last are always told."""
PACE_SECONDS = 60.0
"""The pace is that of so long a time: answers that were there before would make it look too good."""

Advance = Callable[[str, int], None]


@contextmanager
def progress(totals: Mapping[str, int]) -> Iterator[Advance]:
    """Show how much of each thing is done; what it yields is told a thing's name and how many more there are."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(totals, lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True))
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bars:
        tasks = {name: bars.add_task(name, total=total) for name, total in totals.items()}
        yield lambda name, more: bars.advance(tasks[name], more)


class Lines:
    """A line whenever there is something new and the last one is `LINE_SECONDS` old: done, all, and the time left."""

    def __init__(
        self, totals: Mapping[str, int], say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._totals = totals
        self._done = dict.fromkeys(totals, 0)
        self._all = sum(totals.values())
        self._say = say
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque([(clock(), 0)])
        self._told: float | None = None

    def __call__(self, name: str, more: int) -> None:
        """Count `more` answers to the benchmark `name`; say a line where one is due."""
        self._done[name] += more
        if not more:
            return
        now, done = self._clock(), sum(self._done.values())
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] >= PACE_SECONDS:
            self._seen.popleft()
        if self._told is None or now - self._told >= LINE_SECONDS or done == self._all:
            self._told = now
            self._say(f"{time.strftime('%H:%M:%S')} {name}: {self._line(name, done)}{self._left(done)}")

    def _line(self, name: str, done: int) -> str:
        own = f"{self._done[name]:,} of {self._totals[name]:,}"
        return own if len(self._totals) == 1 else f"{own}; all: {done:,} of {self._all:,}"

    def _left(self, done: int) -> str:
        (began, had), (now, _) = self._seen[0], self._seen[-1]
        if done in (had, self._all) or now == began:
            return ""
        from gspo_lab.conduct.live import duration  # with all that conducts a study: not where nothing is told

        return f", {duration((self._all - done) * (now - began) / (done - had))} left"
