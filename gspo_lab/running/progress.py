"""How far work is, for people: a table that renews itself in a terminal, a plain line now and then
anywhere else.

    arm   s0               s1                s2        reward  clipped
    grpo  finished 60/60   sampling 12/60    queued     0.412    0.58%
    gspo  evaluating 15/60 queued            queued     0.387   41.20%
    ━━━━━━━━━━━━━━━  2 of 6 finished, 4 min 10 s elapsed, about 6 min left

The table has a row per arm and a cell per seed.
"""

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from gspo_lab.common.plain_data import OptionalFloat, table_beside
from gspo_lab.common.states import Phase, State
from gspo_lab.common.text import duration, visible

REDRAW_SECONDS = 1.0
FIRST_LINE_SECONDS = 5.0
LAST_LINE_SECONDS = 60.0
"""Between two plain lines: the first after the former, later ones after a twentieth of the elapsed
time, up to the latter."""
PACE_SECONDS = 60.0
"""A count's pace is that of the last minute: what was stored before would make it look too good."""
RUNNING_NAMED = 4
"""A plain line names at most so many cells."""
BAR_WIDTH = 24
CELL_WIDTH = 19
"""Columns of the bar, and of a cell that names its state and its steps."""
WARM_STARTS = "warm starts"
TRIALS = "trials"
PILOTS = "pilots"
TRAINING = "training"
"""The stages of a study. Warm starts are not counted among the cells that finish: they are made for
runs.
"""
WARM_START_STEP = "step of a warm start"
"""The kind of work of a warm start."""

LOOKS: Mapping[str, tuple[str, str]] = table_beside(__file__, "progress.toml")
"""Phase or state -> its letter where many seeds share a line, and its colour."""
NUMBERS = {
    "reward": ("reward", ".3f"),
    "clipped": ("clip", ".2%"),
    "not graded": ("grader_errors", ".1%"),
}
"""Columns of means: the field of `Progress`, and the format."""
NONE_CORRECT = "no answer of its first step was correct"
NONE_CORRECT_ADVICE = (
    "scores are 0 until an answer is correct; where rewards stay below 1 let the mean reward"
    " decide, verdict.primary = 'NAME:reward'"
)
"""Said once for all runs."""

Kind = tuple[str, str]
"""A kind of work, and the arm that does it:

("step", "grpo"), ("start", "grpo"), ("bench aime24", "grpo").
"""


class VisibleConsole(Console):
    """A console that prints control characters and direction marks as marks (`visible`)."""

    def render_str(self, text: str, **options: Any) -> Any:
        """A text, with its marks counted in its width."""
        return super().render_str(visible(text), **options)

    def render(self, *arguments: Any, **options: Any) -> Iterator[Segment]:
        """The pieces of anything printed; styles are not part of their text."""
        for segment in super().render(*arguments, **options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(visible(segment.text), segment.style)


@dataclass
class Progress:
    """How far one worker is. `reward` and `clip`, the share of the step's tokens, are those of its
    last step.

    `detail` says what it does in its phase, such as which program it starts; `since` when that
    phase began. `grader_errors` is the share of responses so far on which the grader failed.
    `collapse` is the step and the cause of a collapse. `place` is the worker's place by its
    launcher. `resumed` is the step of a resume that is not shown yet. `spent` has seconds and the
    amount of work done in them, `left` the remaining amount.
    """

    steps: int
    step: int = 0
    state: State = State.QUEUED
    phase: Phase | None = None
    detail: str = ""
    since: float = 0.0
    place: str = ""
    reward: OptionalFloat = None
    clip: OptionalFloat = None
    grader_errors: OptionalFloat = None
    collapse: tuple[int, str] | None = None
    none_correct: bool = False
    resumed: int | None = None
    spent: dict[Kind, tuple[float, float]] = field(default_factory=dict, repr=False)
    left: dict[Kind, float] = field(default_factory=dict, repr=False)

    @property
    def doing(self) -> str:
        """Its phase while it runs, else its state."""
        return self.phase if self.phase is not None and self.state is State.RUNNING else self.state

    def spend(self, kind: Kind, seconds: float, amount: float) -> None:
        """Count `seconds` for so much work of a kind."""
        spent = self.spent.get(kind, (0.0, 0.0))
        self.spent[kind] = spent[0] + seconds, spent[1] + amount


@dataclass(frozen=True)
class ProgressCell:
    """One piece of work in the table.

    Stages follow each other; the cells of one run side by side.
    """

    stage: str
    row: str
    column: str
    progress: Progress

    @property
    def name(self) -> str:
        """As lines name it: grpo/s0."""
        return f"{self.row}/{self.column}" if self.column else self.row


def print_text(console: Console, text: str) -> None:
    """Print text as it is, without markup, colours or line breaks of the console's own."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


class Rates:
    """Seconds per unit of each kind of work: measured, or expected and corrected by what was
    measured.

    A kind that an arm has not done yet has the mean of the arms. If no arm has done it, it has the
    expected rate times the ratio of measured to expected time of the other kinds, starts aside.
    """

    def __init__(self, cells: Sequence[ProgressCell], expected: Mapping[Kind, float]) -> None:
        self._expected = expected
        spent: dict[Kind, tuple[float, float]] = {}
        measured = 0.0
        predicted = 0.0
        for cell in cells:
            for (kind, arm), (seconds, amount) in cell.progress.spent.items():
                for key in ((kind, arm), (kind, "")):
                    total = spent.get(key, (0.0, 0.0))
                    spent[key] = total[0] + seconds, total[1] + amount
                paced = kind != "start"  # a busy disk says nothing of the pace of training
                if paced and (rate := self._expected_rate(kind, arm)) and amount:
                    measured += seconds
                    predicted += rate * amount
        self._measured = {
            key: seconds / amount for key, (seconds, amount) in spent.items() if amount
        }
        self.correction = measured / predicted if predicted else 1.0

    def _expected_rate(self, kind: str, arm: str) -> OptionalFloat:
        rate = self._expected.get((kind, arm))
        return self._expected.get((kind, arm.partition("@")[0])) if rate is None else rate

    def rate(self, kind: str, arm: str) -> OptionalFloat:
        """Seconds per unit of this work; None: neither measured nor expected."""
        for key in ((kind, arm), (kind, "")):
            if key in self._measured:
                return self._measured[key]
        expected = self._expected_rate(kind, arm)
        return None if expected is None else expected * self.correction


def seconds_left(
    cells: Sequence[ProgressCell],
    slots: int,
    expected: Mapping[Kind, float] | None = None,
    stage_seconds: Mapping[str, float] | None = None,
) -> tuple[float, bool]:
    """Seconds until the last cell ends if each of `slots` takes the next one when it is free, and
    whether the pace of all steps is known.

    `expected` has seconds per unit of work, `stage_seconds` the expected time of stages that may
    have no cells yet.
    """
    rates = Rates(cells, expected or {})
    stages = dict.fromkeys(cell.stage for cell in cells)
    later = [seconds for stage, seconds in (stage_seconds or {}).items() if stage not in stages]
    total = rates.correction * sum(later)
    complete = True
    for stage in stages:
        jobs = []
        for state in (State.RUNNING, State.LOST, State.QUEUED):
            for cell in cells:
                if cell.stage != stage or cell.progress.state is not state:
                    continue
                seconds = 0.0
                for (kind, arm), amount in cell.progress.left.items():
                    rate = rates.rate(kind, arm)
                    seconds += amount * (rate or 0.0)
                    if rate is None and amount and kind.startswith("step"):
                        complete = False
                jobs.append(seconds)
        total += makespan(jobs, slots)
    return total, complete


def makespan(seconds: Sequence[float], workers: int) -> float:
    """When the last job ends if each worker takes the next one when it is free."""
    ends = [0.0 for _ in range(workers)]
    for job in seconds:
        heapq.heapreplace(ends, ends[0] + job)
    return max(ends)


class ProgressView:
    """Shows the cells of one piece of work while its context is open; `refresh_view` is to be
    called again and again.

    `by_reward`: the mean reward already decides, so no line advises that.
    """

    def __init__(
        self,
        console: Console,
        title: str,
        *,
        live: bool = True,
        waits_for: str = "",
        by_reward: bool = False,
    ) -> None:
        self._by_reward = by_reward
        self._console = console
        self._title = title
        self._waits_for = waits_for
        self._cells: list[ProgressCell] = []
        self._slots = 1
        self._expected: Mapping[Kind, float] = {}
        self._stage_seconds: dict[str, float] = {}
        self._began = time.monotonic()
        self._draw_time = 0.0
        self._line_time = self._began
        self._lost: set[str] = set()
        self._warned: set[str] = set()
        self._live = (
            Live(console=console, auto_refresh=False, transient=True)
            if live and console.is_terminal
            else None
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.update(self._table(time.monotonic()), refresh=True)
            self._live.stop()

    def add(self, cells: Sequence[ProgressCell]) -> None:
        """Show these too; a cell of the same name and stage takes the place of the earlier one."""
        by_name = {(cell.stage, cell.name): cell for cell in (*self._cells, *cells)}
        self._cells = list(by_name.values())

    def expect(self, rates: Mapping[Kind, float], stage_seconds: Mapping[str, float]) -> None:
        """Estimate what is not measured yet by these seconds per unit of work and per stage."""
        self._expected = rates
        self._stage_seconds = dict(stage_seconds)

    def begin(self, stage: str, cells: Sequence[ProgressCell], slots: int) -> None:
        """The work on these cells begins, on so many slots."""
        self.add(cells)
        self._slots = slots
        if self._live is None:
            self.print_line(f"{self._title}: {stage}, {len(cells)} to do, {slots} at a time")

    def show_state(self, cell: ProgressCell) -> None:
        """Its launcher reports a new state or place.

        A plain line says so; the table shows it when it is drawn next.
        """
        progress = cell.progress
        word: str = progress.state
        if progress.state is State.RUNNING:
            word = "running again" if cell.name in self._lost else "started"
            self._lost.discard(cell.name)
        elif progress.state is State.LOST:
            self._lost.add(cell.name)
        self._draw_time = 0.0
        if self._live is None or progress.state is State.LOST:
            step_text = (
                f" at step {progress.step}"
                if progress.step and progress.state is not State.RUNNING
                else ""
            )
            self.print_line(f"{cell.name}: {word}{step_text} on {progress.place}")

    def end(self, cell: ProgressCell, line: str) -> None:
        """A piece of work has ended, as `line` says."""
        self._draw_time = 0.0
        if self._live is None or cell.progress.state is State.FAILED:
            self.print_line(line)

    def finish(self) -> None:
        """All is done: a plain line says how much that was."""
        if self._live is None:
            counts_text = ", ".join(
                f"{cell.name}: {cell.progress.step:,} of {cell.progress.steps:,}"
                for cell in self._cells
            )
            self.print_line(f"{counts_text}, {self._summary(time.monotonic())}")

    def print_line(self, text: str) -> None:
        """A line above the table, or with the time of day before it."""
        time_of_day = "" if self._live is not None else f"{time.strftime('%H:%M:%S')} "
        self._console.print(
            time_of_day + text, markup=False, highlight=False, soft_wrap=self._live is None
        )

    def refresh_view(self, clock: float) -> None:
        """Some time has passed: warn of what has happened, and draw the table or say a line if one
        is due.
        """
        for cell in self._cells:
            self._warn(cell)
        if self._live is not None:
            if clock - self._draw_time >= REDRAW_SECONDS:
                self._draw_time = clock
                self._live.update(self._table(clock), refresh=True)
        elif clock - self._line_time >= min(
            max(FIRST_LINE_SECONDS, (clock - self._began) / 20), LAST_LINE_SECONDS
        ):
            self._line_time = clock
            self.print_line(self._line(clock))

    def _warn(self, cell: ProgressCell) -> None:
        progress = cell.progress
        if progress.resumed is not None:
            self.print_line(f"{cell.name}: resumes at step {progress.resumed}")
            progress.resumed = None
        warnings = [NONE_CORRECT] if progress.none_correct and not self._by_reward else []
        if progress.collapse is not None:
            warnings.append("collapsed at step {} ({})".format(*progress.collapse))
        lines = [f"{cell.name}: {warning}" for warning in warnings]
        lines += [NONE_CORRECT_ADVICE] if NONE_CORRECT in warnings else []
        for line in lines:
            if line not in self._warned:
                self._warned.add(line)
                self.print_line(line)

    def _visible_cells(self) -> list[ProgressCell]:
        """The cells of stages that are not over; all cells at the end."""
        open_stages = {
            cell.stage for cell in self._cells if cell.progress.state is not State.FINISHED
        }
        return [cell for cell in self._cells if not open_stages or cell.stage in open_stages]

    def _summary(self, clock: float) -> str:
        counted = [cell for cell in self._cells if cell.stage != WARM_STARTS] or self._cells
        finished = sum(cell.progress.state is State.FINISHED for cell in counted)
        text = f"{finished} of {len(counted)} finished, {duration(clock - self._began)} elapsed"
        seconds, complete = self._time_left()
        if seconds >= 1:
            bound = "about" if complete else "more than"
            text += f", {bound} {duration(seconds)} left"
        return text

    def _time_left(self) -> tuple[float, bool]:
        return seconds_left(self._cells, self._slots, self._expected, self._stage_seconds)

    def _share_done(self, clock: float) -> float:
        """The share of the whole time that has passed; of the steps if that is not known."""
        seconds, complete = self._time_left()
        elapsed = clock - self._began
        if complete and elapsed + seconds:
            return elapsed / (elapsed + seconds)
        steps_done = sum(min(cell.progress.step, cell.progress.steps) for cell in self._cells)
        return steps_done / max(1, sum(cell.progress.steps for cell in self._cells))

    def _line(self, clock: float) -> str:
        running = [cell for cell in self._visible_cells() if cell.progress.state is State.RUNNING]
        texts = [_cell_text(cell, clock) for cell in running[:RUNNING_NAMED]]
        if len(running) > RUNNING_NAMED:
            texts.append(f"{len(running) - RUNNING_NAMED} more running")
        if self._waits_for:
            texts.append(self._waits_for)
        return "; ".join([*texts, self._summary(clock)])

    def _table(self, clock: float) -> Group:
        cells = self._visible_cells()
        rows = list(dict.fromkeys(cell.row for cell in cells))
        columns = list(dict.fromkeys(cell.column for cell in cells if cell.column)) or [""]
        label_width = max(map(len, rows), default=0) + 20
        wide = self._console.width - label_width >= len(columns) * CELL_WIDTH
        table = Table(
            title=self._title, title_justify="left", title_style="bold", box=None, pad_edge=False
        )
        for column in ["", *(columns if wide else ["seeds", "finished"])]:
            table.add_column(column, no_wrap=True)
        numbers = _number_columns(cells)
        for name in numbers:
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            by_column = {
                cell.column or columns[0]: cell.progress for cell in cells if cell.row == row
            }
            texts = _wide_row(by_column, columns) if wide else _letter_row(by_column)
            means = [_mean(by_column.values(), name) for name in numbers]
            table.add_row(row, *texts, *means)
        summary = self._summary(clock)
        width = max(BAR_WIDTH // 3, min(BAR_WIDTH, self._console.width - len(summary) - 4))
        bar = Table.grid(padding=(0, 2))
        share = self._share_done(clock)
        bar.add_row(ProgressBar(total=1.0, completed=share, width=width), summary)
        legend = [] if wide else [_legend(cells)]
        details = [(cell, _detail(cell.progress, clock)) for cell in cells]
        detail_lines = [
            Text(f"{cell.name} {cell.progress.doing}{detail}") for cell, detail in details if detail
        ]
        return Group(table, *legend, *detail_lines[:RUNNING_NAMED], bar)


def _cell_text(cell: ProgressCell, now: float) -> str:
    """A running cell in a plain line."""
    progress = cell.progress
    text = f"{cell.name} {progress.doing} {progress.step:,}/{progress.steps:,}"
    text += _detail(progress, now)
    if progress.reward is not None:
        text += f", reward {progress.reward:.3f}"
    if progress.clip is not None:
        text += f", clipped {progress.clip:.2%}"
    if progress.grader_errors:
        text += f", not graded {progress.grader_errors:.1%}"
    return text


def _number_columns(cells: Sequence[ProgressCell]) -> list[str]:
    """The columns of means that have something to show."""
    names = []
    if any(cell.progress.reward is not None for cell in cells):
        names += ["reward", "clipped"]
    if any(cell.progress.grader_errors for cell in cells):
        names.append("not graded")
    return names


def _mean(row: Iterable[Progress], name: str) -> Text:
    key, form = NUMBERS[name]
    values = [value for progress in row if (value := getattr(progress, key)) is not None]
    return Text(format(fmean(values), form) if values else "")


def _wide_row(by_column: Mapping[str, Progress], columns: Sequence[str]) -> list[Text]:
    """A row whose cells name state and step."""
    texts = []
    for column in columns:
        progress = by_column.get(column)
        if progress is None:
            texts.append(Text())
            continue
        begun = progress.step or progress.state is State.RUNNING
        counts = f" {progress.step:,}/{progress.steps:,}" if begun else ""
        texts.append(Text(progress.doing + counts, LOOKS[progress.doing][1]))
    return texts


def _letter_row(by_column: Mapping[str, Progress]) -> list[Text]:
    """A row with a letter per cell."""
    letters = Text("")
    for progress in by_column.values():
        letters.append(*LOOKS[progress.doing])
    finished = sum(progress.state is State.FINISHED for progress in by_column.values())
    return [letters, Text(f"{finished}/{len(by_column)}")]


def _legend(cells: Sequence[ProgressCell]) -> Text:
    legend = Text()
    for doing, (letter, style) in LOOKS.items():
        if any(cell.progress.doing == doing for cell in cells):
            legend.append(f"{letter} {doing}  ", style)
    return legend


def _detail(progress: Progress, clock: float) -> str:
    is_shown = progress.detail and progress.state is State.RUNNING
    return f" {progress.detail}, {duration(clock - progress.since)}" if is_shown else ""


Advance = Callable[[str, int], None]


@contextmanager
def counting(title: str, totals: Mapping[str, int], waits_for: str = "") -> Iterator[Advance]:
    """Show on stderr how many of each thing are done; the function it yields takes a thing's name
    and how many more are done. `waits_for` says what is waited for while nothing comes."""
    counts = {name: Progress(total, state=State.RUNNING) for name, total in totals.items()}
    recent = {name: deque([(time.monotonic(), 0)]) for name in totals}
    ended = threading.Event()

    def advance(name: str, count: int) -> None:
        progress = counts[name]
        clock = time.monotonic()
        times = recent[name]
        progress.step += count
        times.append((clock, progress.step))
        while len(times) > 2 and clock - times[1][0] >= PACE_SECONDS:
            times.popleft()
        progress.spent = {("step", name): (clock - times[0][0], progress.step - times[0][1])}
        progress.left = {("step", name): progress.steps - progress.step}
        if progress.step >= progress.steps:
            progress.state = State.FINISHED

    with ProgressView(VisibleConsole(stderr=True), title, waits_for=waits_for) as view:
        view.add([ProgressCell(title, name, "", progress) for name, progress in counts.items()])

        def keep_showing() -> None:
            while not ended.wait(REDRAW_SECONDS / 2):
                view.refresh_view(time.monotonic())

        thread = threading.Thread(target=keep_showing, daemon=True)
        thread.start()
        try:
            yield advance
        finally:
            ended.set()
            thread.join()
        view.finish()
