"""What a figure shows, as data: sections make charts, and one chart becomes a Plotly figure, a sentence and a table of
its numbers, so that all three always say the same."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

from gspo_lab.report.markup import NOT_MEASURED, number, percent

Position = float | str
Value = float | None
Kind = Literal["lines", "bars", "stack"]

DRAWN: dict[Kind, str] = {
    "lines": "Line chart",
    "bars": "Bar chart",
    "stack": "Stacked shares",
}
"""What each kind is called where it is told in words."""

TABLE_ROWS = 60
"""A longer table of numbers shows means over equal groups of its rows, and says so."""


@dataclass(frozen=True)
class Series:
    """Values of one arm (or rule). `seed` None: the mean over seeds; else one seed. `low`, `high`: an envelope.

    `x` is in training steps; `at` holds the same points' positions on other x axes, each as long as `x`, by the axis's
    title: "prompts", "response tokens", "FLOPs", "device seconds". An axis that was not measured is left out.
    """

    label: str
    colour: int
    x: tuple[Position, ...]
    y: tuple[Value, ...]
    seed: int | None = None
    low: tuple[Value, ...] = ()
    high: tuple[Value, ...] = ()
    at: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    @property
    def named(self) -> str:
        """Its name among all lines of a chart."""
        return self.label if self.seed is None else f"{self.label}, seed {self.seed}"


@dataclass(frozen=True)
class Reference:
    """A published value of the quantity that a chart shows, with the scale at which it was measured."""

    value: float
    label: str


@dataclass(frozen=True)
class Chart:
    """One figure; seeds are thin lines or dots beside their mean. `kind`, by what `x` is:

    lines     numbers; the only kind that other x axes (`Series.at`) apply to
    bars      categories side by side
    stack     categories one below the other: shares that fill a row
    """

    id: str
    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    kind: Kind = "lines"
    log: bool = False
    note: str = ""
    finding: str = ""
    """What the figure shows of this study, in a sentence; its heading, above the title."""
    references: tuple[Reference, ...] = ()
    """Values that were published for the same quantity; the axis holds them."""
    small: bool = False
    whole: bool = False
    """Values count things, or are shares: the axis starts at zero."""
    reach: tuple[float, float] | None = None
    """The study's first and last step: the axis of a line chart holds them, wherever its lines end."""

    @cached_property
    def means(self) -> list[Series]:
        """The lines over all seeds."""
        return [series for series in self.series if series.seed is None]

    @cached_property
    def seeds(self) -> list[Series]:
        """The lines of single seeds."""
        return [series for series in self.series if series.seed is not None]

    @cached_property
    def categories(self) -> list[str]:
        """The places of bars, in the order in which they first appear."""
        return list(dict.fromkeys(str(x) for series in self.series for x in series.x))

    def values(self) -> list[float]:
        """Every number that is drawn along the value axis, ends of intervals included."""
        return [v for s in self.series for column in (s.y, s.low, s.high) for v in column if v is not None]

    @cached_property
    def drawn_alone(self) -> set[str]:
        """The labels of which some seed is a line of its own."""
        return {series.label for series in self.seeds if len(series.x) > 1}

    @cached_property
    def axis(self) -> "Axis":
        """The axis of the values: holds all of them, and those that were published."""
        own = [*self.values(), *(one.value for one in self.references)]
        axis = value_axis(own, log=self.log, whole=self.whole)
        return replace(axis, ticks=tuple((t, f"{100 * t:.6g} %") for t, _ in axis.ticks)) if self.share else axis

    @property
    def share(self) -> bool:
        """The values are shares, which are told in per cent."""
        return self.y_title.startswith("share of") and self.kind != "stack"

    def shown(self, value: Value, digits: int = 3) -> str:
        """A value as the chart tells it."""
        if value is None or not self.share:
            return number(value, digits)
        return percent(value, digits)


@dataclass(frozen=True)
class Axis:
    """A value axis. On a log axis zero has a row of its own, below a gap that is GAP of the axis' length."""

    low: float
    high: float
    log: bool
    zero: bool
    ticks: tuple[tuple[float, str], ...]

    GAP: ClassVar[float] = 0.12

    @property
    def zero_value(self) -> float:
        """Where zero is drawn on a logarithmic scale that knows no gap: the value at the lower end of this axis."""
        return float(self.low / (self.high / self.low) ** (self.GAP / (1 - self.GAP)))


def value_axis(values: Sequence[float], *, log: bool, whole: bool = False) -> Axis:
    """An axis that holds all values, with four to seven ticks."""
    if log:
        positive = [value for value in values if value > 0] or [1e-4, 1.0]
        first = math.floor(math.log10(min(positive)) + 1e-9)
        last = max(first + 1, math.ceil(math.log10(max(positive)) - 1e-9))
        zero = any(value == 0 for value in values)
        stride = -(-(last - first) // 6)
        ticks = [(10.0**power, number(10.0**power, 1)) for power in range(first, last + 1, stride)]
        return Axis(10.0**first, 10.0**last, True, zero, tuple([(0.0, "0")] * zero + ticks))
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if whole:
        low = min(low, 0.0)
    if high - low <= 1e-12 * max(1.0, abs(high)):
        low, high = (low, low + 1.0) if whole else (low - 0.5, high + 0.5)
    step = _nice((high - low) / 4)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    count = round((high - low) / step)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    places = [low + i * step for i in range(count + 1)]
    if decimals > 4:
        ticks = [(place, number(0.0 if abs(place) < step / 2 else place, 2)) for place in places]
    else:
        ticks = [(place, f"{place:.{decimals}f}".replace("-", "−")) for place in places]
    return Axis(low, high, False, False, tuple(ticks))


def _nice(step: float) -> float:
    base = 10.0 ** math.floor(math.log10(step))
    return next(base * factor for factor in (1, 2, 5, 10) if base * factor >= step * 0.999)


def sentence(chart: Chart) -> str:
    """The figure in words, for those who do not see it."""
    if not chart.values():
        return f"{chart.title}: {NOT_MEASURED}."
    said = []
    for series in chart.means or chart.seeds:
        known = [(x, y) for x, y in zip(series.x, series.y, strict=True) if y is not None]
        if not known:
            said.append(f"{series.label} {NOT_MEASURED}")
        elif chart.kind == "lines":
            (first, start), (last, end) = known[0], known[-1]
            said.append(
                f"{series.label} from {chart.shown(start)} at {chart.x_title} {_at(first)} "
                f"to {chart.shown(end)} at {_at(last)}"
            )
        else:
            said.append(f"{series.label} " + ", ".join(f"{_at(x)}: {chart.shown(y)}" for x, y in known))
    return f"{DRAWN[chart.kind]}, {chart.title}: {'; '.join(said)}."


def numbers(chart: Chart) -> tuple[list[str], list[list[Any]], str]:
    """Head, rows and a caption of the chart's numbers: the means of lines, every mean and seed of bars."""
    if chart.kind != "lines":
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
    """One row per category and series: its mean, then its seeds. A series that is its category is named once."""
    seeds = sorted({s.seed for s in chart.seeds if s.seed is not None})
    found = {
        (category, s.label, s.seed): y for s in chart.series for category, y in zip(map(str, s.x), s.y, strict=True)
    }
    labels = list(dict.fromkeys(s.label for s in chart.series))
    pairs = [(c, label) for c in chart.categories for label in labels if (c, label, None) in found]
    alone = all(category == label for category, label in pairs)
    head = [chart.x_title, *([] if alone else ["of"]), "mean", *(f"seed {seed}" for seed in seeds)]
    rows = [
        [c, *([] if alone else [label]), *(found.get((c, label, seed)) for seed in (None, *seeds))]
        for c, label in pairs
    ]
    return head, rows, chart.y_title


def _at(position: Any) -> str:
    return f"{position:g}" if isinstance(position, float | int) else str(position)
