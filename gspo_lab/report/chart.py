"""What a figure shows, as data: sections make charts. One chart becomes a Plotly figure, a sentence
and a table of its numbers, so that all three say the same."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

from gspo_lab.report.formats import NOT_MEASURED, format_number, percent

Position = float | str
Value = float | None
Kind = Literal["lines", "dots"]

DRAWN: dict[Kind, str] = {"lines": "Line chart", "dots": "Dot chart"}
"""What each kind is called in words."""

TABLE_ROWS = 60
"""A longer table of numbers shows every k-th row, and says so."""


@dataclass(frozen=True)
class Series:
    """Values of one arm (or rule). `seed` None: the mean over seeds; else one seed. `low`, `high`:
    the band of a mean.

    `x` is in training steps, or names categories. `at` holds the same points' positions on other x
    axes, each as long as `x`, by the axis's title: "prompts", "FLOPs". An axis that was not
    measured is left out. `colour` is a colour of the palette; None: that of the arm with this
    label.
    """

    label: str
    x: tuple[Position, ...]
    y: tuple[Value, ...]
    seed: int | None = None
    low: tuple[Value, ...] = ()
    high: tuple[Value, ...] = ()
    at: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    colour: int | None = None

    @property
    def named(self) -> str:
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

    lines     numbers; the only kind that other x axes (`Series.at`) apply to
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
    share: bool = False
    """Values are shares, shown in per cent."""
    whole: bool = False
    """Values count things, or are shares: the axis starts at zero."""
    steps: bool = False
    """Lines change at once, and stay until they change again."""
    small: bool = False
    note: str = ""
    finding: str = ""
    """What the figure shows of this study, in a sentence; its heading, above the title."""
    focus: tuple[str, ...] = ()
    """The arms that the figure is about: all others are grey. Empty: each arm has its colour."""
    reading: str = ""
    """The key of the reading (`readings.Reading.key`) that the values are."""
    references: tuple[Reference, ...] = ()
    """Values that were published for the same quantity; the axis holds them."""
    reach: tuple[float, float] | None = None
    """The study's first and last step: the axis of a line chart holds them, wherever its lines end.
    """

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
        return list(dict.fromkeys(str(x) for series in self.series for x in series.x))

    def values(self) -> list[float]:
        """Every number that is drawn along the value axis, ends of bands included."""
        return [
            v
            for s in self.series
            for column in (s.y, s.low, s.high)
            for v in column
            if v is not None
        ]

    @cached_property
    def axis(self) -> "Axis":
        """The axis of the values: holds all of them, and those that were published."""
        values = [*self.values(), *(reference.value for reference in self.references)]
        return log_axis(values) if self.log else linear_axis(values, whole=self.whole)

    def placed(self, values: Sequence[Value]) -> list[Value]:
        """Where values stand: on a logarithmic axis zero has a place of its own, below the lowest
        decade.
        """
        return [self.axis.zero if value == 0 and self.log else value for value in values]

    def format_value(self, value: Value, digits: int = 3) -> str:
        """A value as the chart tells it."""
        return (
            percent(value, digits)
            if self.share and value is not None
            else format_number(value, digits)
        )


@dataclass(frozen=True)
class Axis:
    """The ends of a value axis in its own numbers: of a logarithmic one, exponents of ten. There
    `zero` is the value at whose place zero is drawn: a row of its own below the lowest decade, GAP
    of the axis' length away from it.
    """

    low: float
    high: float
    zero: float | None = None
    ticks: tuple[float, ...] = ()
    """Of a logarithmic axis the values at its ticks."""

    GAP: ClassVar[float] = 0.12


def log_axis(values: list[float]) -> Axis:
    """From the decade of the smallest value above zero to that of the largest one, with up to seven
    ticks.
    """
    positive = [value for value in values if value > 0] or [1e-4, 1.0]
    first = math.floor(math.log10(min(positive)) + 1e-9)
    last = max(first + 1, math.ceil(math.log10(max(positive)) - 1e-9))
    ticks = tuple(10.0**power for power in range(first, last + 1, -(-(last - first) // 6)))
    if all(value != 0 for value in values):
        return Axis(first, last, None, ticks)
    bottom = first - (last - first) * Axis.GAP / (1 - Axis.GAP)
    return Axis(bottom, last, 10.0**bottom, (0.0, *ticks))


def linear_axis(values: list[float], *, whole: bool) -> Axis:
    """From the smallest to the largest value; Plotly finds its ticks."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if whole:
        low = min(low, 0.0)
    if high - low <= 1e-12 * max(1.0, abs(high)):
        return Axis(low, low + 1.0) if whole else Axis(low - 0.5, high + 0.5)
    return Axis(low, high)


def sentence(chart: Chart) -> str:
    """The figure in words, for those who do not see it."""
    if not chart.values():
        return f"{chart.title}: {NOT_MEASURED}."
    parts = []
    for series in chart.means or chart.seeds:
        known = [(x, y) for x, y in zip(series.x, series.y, strict=True) if y is not None]
        if not known:
            parts.append(f"{series.label} {NOT_MEASURED}")
        elif chart.kind == "lines":
            (first, start) = known[0]
            (last, end) = known[-1]
            begins = f"from {chart.format_value(start)} at {chart.x_title} {format_position(first)}"
            parts.append(
                f"{series.label} {begins} to {chart.format_value(end)} at {format_position(last)}"
            )
        else:
            values = ", ".join(f"{format_position(x)}: {chart.format_value(y)}" for x, y in known)
            parts.append(f"{series.label} {values}")
    return f"{DRAWN[chart.kind]}, {chart.title}: {'; '.join(parts)}."


def numbers(chart: Chart) -> tuple[list[str], list[list[Any]], str]:
    """Head, rows and a caption of the chart's numbers: the means of lines, every mean and seed of
    dots.
    """
    if chart.kind == "dots":
        return _by_category(chart)
    shown = chart.means or chart.seeds
    columns = [dict(zip(s.x, s.y, strict=True)) for s in shown]
    positions = sorted({float(x) for s in shown for x in s.x})
    caption = chart.y_title + (", mean over seeds" if chart.means else "")
    rows: list[list[Any]] = [[x, *(column.get(x) for column in columns)] for x in positions]
    if len(rows) > TABLE_ROWS:
        size = -(-(len(rows) - 1) // (TABLE_ROWS - 1))
        caption += f"; one point in {size}, and the last"
        rows = [*rows[:-1:size], rows[-1]]
    return [chart.x_title, *(s.named for s in shown)], rows, caption


def _by_category(chart: Chart) -> tuple[list[str], list[list[Any]], str]:
    """One row per category and series: its mean, then its seeds.

    A series that is its category is named once.
    """
    seeds = sorted({s.seed for s in chart.seeds if s.seed is not None})
    values = {
        (str(x), s.label, s.seed): y for s in chart.series for x, y in zip(s.x, s.y, strict=True)
    }
    labels = list(dict.fromkeys(s.label for s in chart.series))
    pairs = [(c, label) for c in chart.categories for label in labels if (c, label, None) in values]
    alone = all(category == label for category, label in pairs)
    head = [chart.x_title, *([] if alone else ["of"]), "mean", *(f"seed {seed}" for seed in seeds)]
    rows = [
        [c, *([] if alone else [label]), *(values.get((c, label, seed)) for seed in (None, *seeds))]
        for c, label in pairs
    ]
    return head, rows, chart.y_title


def format_position(position: Any) -> str:
    """A position on the horizontal axis, for people."""
    return f"{position:g}" if isinstance(position, float | int) else str(position)
