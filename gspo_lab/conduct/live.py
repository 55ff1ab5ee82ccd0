"""What people see while a study runs: a table that renews itself in a terminal, dated lines anywhere else."""

import heapq
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack

from rich.console import Console
from rich.live import Live
from rich.table import Table

from gspo_lab.conduct.work import Errand, ErrandEnd, View
from gspo_lab.launch.base import Slot
from gspo_lab.readings import average
from gspo_lab.states import State

REDRAW_SECONDS = 1.0
CLOCK_SECONDS = 5.0
"""How often the time that is gone is shown anew while nothing else changes."""
MOST_ROWS = 24
NONE_CORRECT = (
    "no answer of its first step was correct, and scores are 0 until one is; where rewards stay below 1 let the mean "
    "reward decide, verdict.primary = 'NAME:reward'"
)

LINES_PER_RUN = 10
LINE_SECONDS = 5.0
"""A run shorter than this has its first and its last line only."""


def open_view(
    stack: ExitStack,
    console: Console,
    title: str,
    errands: Sequence[Errand],
    slots: Sequence[Slot],
    live: bool,
    began: float,
) -> View:
    """A live table where `console` is a terminal and `live` is wished, else lines; closed with `stack`. `title` names
    the phase, `began` is when the first one began, by the monotonic clock."""
    if live and console.is_terminal:
        return stack.enter_context(LiveView(console, title, errands, slots, began))
    console.print(f"{title}: {len(errands)} to do, {len(slots)} at once", markup=False, highlight=False, soft_wrap=True)
    return LineView(console, errands, len(slots), began)


class LineView:
    """One dated line when a run starts, is queued or lost, at about every tenth of it, and when it ends."""

    def __init__(self, console: Console, errands: Sequence[Errand], slots: int, began: float | None = None) -> None:
        self._console = console
        self._errands = errands
        self._slots = slots
        self._began = time.monotonic() if began is None else began
        self._collapsed: set[str] = set()
        self._told = {errand.name: _tenth(errand) for errand in errands}
        self._when: dict[str, float] = {}
        self._lost: set[str] = set()

    def place(self, errand: Errand) -> None:
        """Say what its launcher says of an errand, and where it is. The step at which a worker begins is only known
        once it says so: `tick` shows it."""
        self._when[errand.name] = time.monotonic()
        progress = errand.watch.progress
        word: str = progress.state
        if progress.state is State.RUNNING:
            word = "at work again" if errand.name in self._lost else "started"
            self._lost.discard(errand.name)
        elif progress.state is State.LOST:
            self._lost.add(errand.name)
        at = f" at step {progress.step}" if progress.step and progress.state is not State.RUNNING else ""
        self.say(f"{errand.name}: {word}{at} on {progress.place}")

    def tick(self, now: float) -> None:
        """Say which runs have collapsed since, and how far errands are that have come a tenth further."""
        for line in _fallen(self._errands, self._collapsed):
            self.say(line)
        for errand in self._errands:
            if (step := errand.watch.progress.resumed) is not None:
                errand.watch.progress.resumed = None
                self.say(f"{errand.name}: goes on at step {step}")
            tenth = _tenth(errand)
            due = errand.watch.progress.state is State.RUNNING and now - self._when[errand.name] >= LINE_SECONDS
            if due and self._told[errand.name] != tenth < LINES_PER_RUN:
                self._told[errand.name] = tenth
                self._when[errand.name] = now
                left = time_left(self._errands, self._slots)
                rest = f"; all: {duration(now - self._began)} gone"
                rest += f", {duration(left)} left" if left is not None else ""
                self.say(f"{errand.name}: {', '.join(cell for cell in _cells(errand) if cell)}{rest}")

    def end(self, ending: ErrandEnd) -> None:
        """Say how an errand ended."""
        self.say(ending.line)

    def say(self, text: str) -> None:
        """A line with the time of day before it."""
        self._console.print(f"{time.strftime('%H:%M:%S')} {text}", markup=False, highlight=False, soft_wrap=True)


class LiveView(AbstractContextManager["LiveView"]):
    """One row per run: step, reward, clip fraction, steps a minute, time left, and where if elsewhere; total below."""

    def __init__(
        self, console: Console, title: str, errands: Sequence[Errand], slots: Sequence[Slot], began: float | None = None
    ) -> None:
        self._began = time.monotonic() if began is None else began
        self._collapsed: set[str] = set()
        self._title = title
        self._errands = errands
        self._slots = len(slots)
        self._elsewhere = any(slot.host for slot in slots)
        self._live = Live(console=console, auto_refresh=False)
        self._drawn = 0.0
        self._shown: object = None

    def __enter__(self) -> "LiveView":
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._draw()
        self._live.stop()

    def place(self, errand: Errand) -> None:
        """Draw at the next tick."""
        self._drawn = 0.0

    def tick(self, now: float) -> None:
        """Draw the table anew, unless it was drawn just now."""
        if now - self._drawn >= REDRAW_SECONDS:
            self._drawn = now
            for line in _fallen(self._errands, self._collapsed):
                self.say(line)
            told = [errand.watch.progress for errand in self._errands]
            shown = ([(one.state, one.place, one.step) for one in told], (now - self._began) // CLOCK_SECONDS)
            if shown != self._shown:  # drawing is the dearest thing that the conductor does
                self._shown = shown
                self._draw()

    def end(self, ending: ErrandEnd) -> None:
        """Say what failed above the table, and draw at the next tick."""
        if ending.state is State.FAILED:
            self.say(ending.line)
        self._drawn = 0.0

    def say(self, text: str) -> None:
        """A line above the table."""
        self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _draw(self) -> None:
        table = Table(title=self._title, title_justify="left", box=None, pad_edge=False)
        table.add_column("run", no_wrap=True)
        rows = _most_telling(self._errands)
        failing = any(_not_graded(errand) for errand in rows)
        for name in ("step", "reward", "clip", "pace", "left", *(["not graded"] if failing else [])):
            table.add_column(name, justify="right", no_wrap=True)
        if self._elsewhere:
            table.add_column("where")
        for errand in rows:
            where = [errand.watch.progress.place] if self._elsewhere else []
            table.add_row(errand.name, *_columns(errand), *([_not_graded(errand)] if failing else []), *where)
        left = time_left(self._errands, self._slots)
        done = sum(errand.watch.progress.state is State.FINISHED for errand in self._errands)
        more = f", {len(self._errands) - len(rows)} not shown" if len(rows) < len(self._errands) else ""
        rest = f", {duration(time.monotonic() - self._began)} gone" + (f", {duration(left)} left" if left else "")
        table.caption = f"{done} of {len(self._errands)} finished{more}{rest}"
        table.caption_justify = "left"
        self._live.update(table, refresh=True)


def time_left(errands: Sequence[Errand], slots: int) -> float | None:
    """Seconds until the last errand ends, each slot taking the next one when free; None before any measurement."""
    known = [pace for errand in errands if (pace := errand.watch.progress.seconds_per_step) is not None]
    if not known:
        return None
    usual = average(known) or 0.0
    ends: list[float] = []
    for state in (State.RUNNING, State.LOST, State.QUEUED):
        for errand in errands:
            progress = errand.watch.progress
            if progress.state is state:
                seconds = (progress.seconds_per_step or usual) * max(0, progress.steps - progress.step)
                free = heapq.heappop(ends) if len(ends) >= slots else 0.0
                heapq.heappush(ends, free + seconds)
    return max(ends, default=0.0)


def _most_telling(errands: Sequence[Errand]) -> list[Errand]:
    if len(errands) <= MOST_ROWS:
        return list(errands)
    rank = [State.RUNNING, State.LOST, State.FAILED, State.STOPPED, State.QUEUED, State.FINISHED]
    chosen = sorted(range(len(errands)), key=lambda i: (rank.index(errands[i].watch.progress.state), i))[:MOST_ROWS]
    return [errands[i] for i in sorted(chosen)]


def _columns(errand: Errand) -> tuple[str, str, str, str, str]:
    progress = errand.watch.progress
    pace = progress.seconds_per_step
    running = progress.state is State.RUNNING
    return (
        f"{progress.step}/{progress.steps}",
        "" if progress.reward is None else f"{progress.reward:.3f}",
        "" if progress.clip is None else f"{progress.clip:.2%}",
        f"{60 / pace:.1f}/min" if pace and running else "",
        duration(pace * (progress.steps - progress.step)) if pace and running else progress.state,
    )


def _fallen(errands: Sequence[Errand], told: set[str]) -> list[str]:
    """A line for each run that began without a correct answer or has collapsed; `told` keeps what was said before."""
    lines = {}
    for errand in errands:
        progress = errand.watch.progress
        if progress.none_correct:
            lines[f"{errand.name} none"] = f"{errand.name}: {NONE_CORRECT}"
        if progress.collapse is not None:
            step, cause = progress.collapse
            lines[f"{errand.name} collapsed"] = f"{errand.name}: collapsed at step {step} ({cause})"
    new = lines.keys() - told
    told |= new
    return [line for key, line in lines.items() if key in new]


def _not_graded(errand: Errand) -> str:
    share = errand.watch.progress.grader_errors
    return f"{share:.1%}" if share else ""


def _cells(errand: Errand) -> tuple[str, ...]:
    step, reward, clip, pace, left = _columns(errand)
    failed = _not_graded(errand)
    return (
        f"step {step}",
        reward and f"reward {reward}",
        clip and f"clipped {clip}",
        failed and f"not graded {failed}",
        pace and f"{pace.removesuffix('/min')} steps/min",
        f"{left} left" if pace else "",
    )


def _tenth(errand: Errand) -> int:
    progress = errand.watch.progress
    return LINES_PER_RUN * progress.step // progress.steps if progress.steps else 0


def duration(seconds: float) -> str:
    """As people say it: 40 s, 3 min 20 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s" if whole < 600 else f"{round(whole / 60)} min"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
