"""What a figure shows, as data: sections make charts. One chart becomes a Plotly figure, a sentence
and a table of its numbers, so that all three say the same."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

from gspo_lab.common.plain_data import Interval, OptionalFloat, OptionalInt, Strings
from gspo_lab.report.templating import NOT_MEASURED, format_number, percent

Position = float | str
Kind = Literal["lines", "dots"]

DRAWN: dict[Kind, str] = {"lines": "Line chart", "dots": "Dot chart"}
"""What each kind is called in words."""

TABLE_ROWS = 60
"""A longer table of numbers shows every k-th row, and says so."""


@dataclass(frozen=True)
class Series:
    """Values of one arm (or rule). `seed` None: the mean over seeds; else one seed. `low`, `high`:
    the band of a mean.

    `x` is in training steps, or names categories. `positions` holds the same points' positions
    on other x axes, each as long as `x`, by the axis's title: "prompts", "FLOPs". An axis that was
    not measured is left out. `colour` is a colour of the palette; None: that of the arm with this
    label.
    """

    label: str
    x: tuple[Position, ...]
    y: tuple[OptionalFloat, ...]
    seed: OptionalInt = None
    low: tuple[OptionalFloat, ...] = ()
    high: tuple[OptionalFloat, ...] = ()
    positions: Mapping[str, tuple[OptionalFloat, ...]] = field(default_factory=dict)
    colour: OptionalInt = None

    @property
    def full_name(self) -> str:
        """Its name among all lines of a chart."""
        return self.label if self.seed is None else f"{self.label}, seed {self.seed}"


@dataclass(frozen=True)
class Reference:
    """A published value of the quantity that a chart shows, with the scale at which it was
    measured.
    """

    value: float
    label: str


@dataclass(frozen=True)
class Chart:
    """One figure. `kind`, by what `x` is:

    lines     numbers; the only kind that other x axes (`Series.positions`) apply to
    dots      categories side by side, each with a dot per seed and a larger one for their mean
    """

    id: str
    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    kind: Kind = "lines"
    log: bool = False
    log_x: bool = False
    """Positions are drawn on a logarithmic axis, with a tick at each of them."""
    from_zero: bool = False
    """The axis starts at zero, as that of shares always does."""
    steps: bool = False
    """Lines change at once, and stay until they change again."""
    small: bool = False
    note: str = ""
    finding: str = ""
    """What the figure shows of this study, in a sentence; its heading, above the title."""
    focus: Strings = ()
    """The arms that the figure is about: all others are grey. Empty: each arm has its colour."""
    reading: str = ""
    """The key of the reading (`readings.Reading.key`) that the values are."""
    references: tuple[Reference, ...] = ()
    """Values that were published for the same quantity; the axis holds them."""
    reach: Interval | None = None
    """The study's first and last step: the axis of a line chart holds them, wherever its lines end.
    """

    @property
    def share(self) -> bool:
        """Whether values are shares, by their unit: they are shown in per cent, from zero on."""
        return self.y_title.startswith("share")

    @cached_property
    def means(self) -> list[Series]:
        """The series over all seeds."""
        return [series for series in self.series if series.seed is None]

    @cached_property
    def seeds(self) -> list[Series]:
        """The series of single seeds."""
        return [series for series in self.series if series.seed is not None]

    @cached_property
    def categories(self) -> list[str]:
        """The places of dots, in the order in which they first appear."""
        places: dict[str, None] = {}
        for series in self.series:
            places |= dict.fromkeys(map(str, series.x))
        return list(places)

    @property
    def places(self) -> list[float]:
        """Every place on a numeric horizontal axis at which a series has a point, in order."""
        return sorted(set().union(*(map(float, series.x) for series in self.series)))

    def values(self) -> list[float]:
        """Every number that is drawn along the value axis, ends of bands included."""
        numbers_drawn: list[float] = []
        for series in self.series:
            for column in (series.y, series.low, series.high):
                numbers_drawn += [value for value in column if value is not None]
        return numbers_drawn

    @cached_property
    def axis(self) -> "Axis":
        """The axis of the values: holds all of them, and those that were published."""
        values = [*self.values(), *(reference.value for reference in self.references)]
        if self.log:
            return log_axis(values)
        return linear_axis(values, from_zero=self.from_zero or self.share)

    def placed(self, values: Sequence[OptionalFloat]) -> list[OptionalFloat]:
        """Where values stand: on a logarithmic axis zero has a place of its own, below the lowest
        decade.
        """
        return [self.axis.zero if value == 0 and self.log else value for value in values]

    def format_value(self, value: OptionalFloat, digits: int = 3) -> str:
        """A value as the chart tells it."""
        return (
            percent(value, digits)
            if self.share and value is not None
            else format_number(value, digits)
        )


@dataclass(frozen=True)
class Axis:
    """The ends of a value axis in its own numbers: of a logarithmic one, exponents of ten.

    On a logarithmic axis `zero` is the value at whose place zero is drawn. It has a row of its own
    below the lowest decade, GAP of the axis' length away from it."""

    low: float
    high: float
    zero: OptionalFloat = None
    ticks: tuple[float, ...] = ()
    """The values at the ticks of a logarithmic axis."""

    GAP: ClassVar[float] = 0.12


def log_axis(values: list[float]) -> Axis:
    """From the decade of the smallest value above zero to that of the largest one, with up to seven
    ticks.
    """
    positive = [value for value in values if value > 0] or [1e-4, 1.0]
    lowest = math.floor(math.log10(min(positive)) + 1e-9)
    last = max(lowest + 1, math.ceil(math.log10(max(positive)) - 1e-9))
    ticks = tuple(10.0**power for power in range(lowest, last + 1, -(-(last - lowest) // 6)))
    if all(value != 0 for value in values):
        return Axis(lowest, last, None, ticks)
    bottom = lowest - (last - lowest) * Axis.GAP / (1 - Axis.GAP)
    return Axis(bottom, last, 10.0**bottom, (0.0, *ticks))


def linear_axis(values: list[float], *, from_zero: bool) -> Axis:
    """From the smallest to the largest value; Plotly finds its ticks."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if from_zero:
        low = min(low, 0.0)
    if high - low <= 1e-12 * max(1.0, abs(high)):
        return Axis(low, low + 1.0) if from_zero else Axis(low - 0.5, high + 0.5)
    return Axis(low, high)


def sentence(chart: Chart) -> str:
    """The figure in words, for those who do not see it."""
    if not chart.values():
        return f"{chart.title}: {NOT_MEASURED}."
    texts = []
    for series in chart.means or chart.seeds:
        points = [(x, y) for x, y in zip(series.x, series.y, strict=True) if y is not None]
        if not points:
            texts.append(f"{series.label} {NOT_MEASURED}")
        elif chart.kind == "lines":
            (begin, start) = points[0]
            (last, end) = points[-1]
            begins = f"from {chart.format_value(start)} at {chart.x_title} {format_position(begin)}"
            texts.append(
                f"{series.label} {begins} to {chart.format_value(end)} at {format_position(last)}"
            )
        else:
            values = ", ".join(f"{format_position(x)}: {chart.format_value(y)}" for x, y in points)
            texts.append(f"{series.label} {values}")
    return f"{DRAWN[chart.kind]}, {chart.title}: {'; '.join(texts)}."


def numbers(chart: Chart) -> tuple[list[str], list[list[Any]], str]:
    """Head, rows and a caption of the chart's numbers: the means of lines, every mean and seed of
    dots.
    """
    if chart.kind == "dots":
        return _by_category(chart)
    drawn = chart.means or chart.seeds
    columns = [dict(zip(s.x, s.y, strict=True)) for s in drawn]
    positions = sorted(set().union(*columns))
    caption = chart.y_title + (", mean over seeds" if chart.means else "")
    rows: list[list[Any]] = [[x, *(column.get(x) for column in columns)] for x in positions]
    if len(rows) > TABLE_ROWS:
        size = -(-(len(rows) - 1) // (TABLE_ROWS - 1))
        caption += f"; one point in {size}, and the last"
        rows = [*rows[:-1:size], rows[-1]]
    return [chart.x_title, *(s.full_name for s in drawn)], rows, caption


def _by_category(chart: Chart) -> tuple[list[str], list[list[Any]], str]:
    """One row per category and series: its mean, then its seeds.

    A series that is its category is named once.
    """
    seeds = sorted({s.seed for s in chart.seeds if s.seed is not None})
    values: dict[str, dict[tuple[str, OptionalInt], OptionalFloat]] = {}
    for series in chart.series:
        for x, y in zip(series.x, series.y, strict=True):
            values.setdefault(str(x), {})[series.label, series.seed] = y
    rows: list[list[Any]] = []
    for category, of_category in values.items():
        for label in dict.fromkeys(series.label for series in chart.means):
            if (label, None) in of_category:
                numbers_of = [of_category.get((label, seed)) for seed in (None, *seeds)]
                rows.append([category, label, *numbers_of])
    head = [chart.x_title, "of", "mean", *(f"seed {seed}" for seed in seeds)]
    if all(row[0] == row[1] for row in rows):
        head.remove("of")
        rows = [[row[0], *row[2:]] for row in rows]
    return head, rows, chart.y_title


def format_position(position: Any) -> str:
    """A position on the horizontal axis, for people."""
    return f"{position:g}" if isinstance(position, float | int) else str(position)
