"""Differences between arms, drawn in the cells of a table: plain SVG in per cent of its cell, without a script."""

from collections.abc import Iterable

from gspo_lab.report.markup import Html, between, h, signed
from gspo_lab.stats import PairedT


def reach(found: Iterable[PairedT], *more: float | None) -> float:
    """Half the width of the drawings of a column: all their values, and `more`, lie within."""
    ends = [*more, *(value for one in found for value in (one.low, one.high, *one.differences))]
    return 1.05 * max((abs(end) for end in ends if end is not None), default=0.0) or 1.0


def interval(paired: PairedT, arm: str, reach: float, margin: float | None = None) -> Html:
    """A difference in a cell, in the arm's colour: its interval over the margin, zero in the middle, a dot for each
    pair; below, its numbers."""
    return drawn(paired.estimate, (paired.low, paired.high), paired.differences, arm, reach, margin, paired.reason)


def drawn(
    estimate: float | None, ends: tuple[float | None, float | None], dots: Iterable[float], arm: str, reach: float,
    margin: float | None = None, reason: str | None = None, at_level: str = "",
) -> Html:  # fmt: skip
    """The drawing and its numbers, which screen readers read in its place. Without an interval it has no margin either:
    dots inside a margin would look like equivalence."""

    def at(value: float) -> str:
        return f"{50 + 50 * value / reach:.2f}%"

    low, high = ends
    width = None if low is None or high is None else high - low
    parts = [h("line", x1="50%", x2="50%", y1="0", y2="100%", class_="zero")]
    seeds = [h("circle", cx=at(dot), cy="50%", r="3", class_="seed") for dot in dots]
    if low is not None and high is not None:
        if margin is not None:
            wide = f"{100 * margin / reach:.2f}%"
            parts.insert(0, h("rect", x=at(-margin), width=wide, y="0", height="100%", class_="margin"))
        parts.append(h("line", x1=at(low), x2=at(high), y1="50%", y2="50%", class_="interval"))
        seeds.append(h("circle", cx=at(estimate or 0.0), cy="50%", r="5", class_="mean"))
    parts += seeds
    numbers = f"{signed(estimate, width)} ({at_level}{between(low, high, reason or 'no interval')})"
    svg = h("svg", *parts, class_="interval-of", data_arm=arm, aria_hidden="true")
    return h("div", svg, h("div", numbers, class_="n"), class_="drawn")
