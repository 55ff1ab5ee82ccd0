"""Differences between arms, drawn in the cells of a table: plain SVG in per cent of its cell, without a script."""

from collections.abc import Iterable

from gspo_lab.report.markup import Html, h, signed
from gspo_lab.report.palette import colour_name
from gspo_lab.stats import PairedT


def reach(found: Iterable[PairedT], margin: float | None = None) -> float:
    """Half the width of the drawings of a column: all their values, and the margin, lie within."""
    ends = [margin, *(value for one in found for value in (one.low, one.high, *one.differences))]
    return 1.05 * max((abs(one) for one in ends if one is not None), default=0.0) or 1.0


def interval(paired: PairedT, colour: int, reach: float, margin: float | None = None) -> Html:
    """A difference in a cell: its interval over the margin, zero in the middle, a dot for each pair; below, its
    numbers."""
    known = paired.low is not None and paired.high is not None
    told = f"{signed(paired.low)} to {signed(paired.high)}" if known else paired.reason or "no interval"
    drawn, numbers = _drawing(paired, colour, reach, margin), f"{signed(paired.estimate)} ({told})"
    return h("div", drawn, h("div", numbers, class_="n"), class_="drawn")


def _drawing(paired: PairedT, colour: int, reach: float, margin: float | None) -> Html:
    """Its numbers stand beside it, so nobody reads it out."""

    def at(value: float) -> str:
        return f"{50 + 50 * value / reach:.2f}%"

    parts = [h("line", x1="50%", x2="50%", y1="0", y2="100%", class_="zero")]
    if margin is not None:
        wide = f"{100 * margin / reach:.2f}%"
        parts.insert(0, h("rect", x=at(-margin), width=wide, y="0", height="100%", class_="margin"))
    if paired.low is not None and paired.high is not None:
        parts.append(h("line", x1=at(paired.low), x2=at(paired.high), y1="50%", y2="50%", class_="interval"))
    parts += [h("circle", cx=at(one), cy="50%", r="3", class_="seed") for one in paired.differences]
    parts.append(h("circle", cx=at(paired.estimate or 0.0), cy="50%", r="5", class_="mean"))
    return h("svg", *parts, class_=f"interval-of {colour_name(colour)}", aria_hidden="true")
