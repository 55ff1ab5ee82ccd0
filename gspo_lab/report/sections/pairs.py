"""Every number that the study fixes beforehand as a difference to the baseline, pair by pair, with its interval."""

from typing import Any

from gspo_lab.findings.compared import PairedComparison
from gspo_lab.findings.compared import compared as compared_of
from gspo_lab.readings import Source
from gspo_lab.report.interval import interval, reach
from gspo_lab.report.markup import Html, markdown_table, number, signed, table
from gspo_lab.report.section import Section

HEAD = ("number", "arm", "difference", "interval", "pairs", "p", "p, adjusted")
DRAWN = ("number", "arm", "difference, each pair a dot", "pairs", "p", "p, adjusted")


def pairs(found: Source) -> Section | None:
    """A row per number and arm, scores over the margin and rewards on a scale of their own; None without two arms."""
    compared = compared_of(found)
    if found.declaration.sweep is not None or not compared:
        return None
    margin = found.declaration.verdict.margin
    wide = {
        scored: reach((one.paired for one in compared if one.scalar.scored is scored), margin if scored else None)
        for scored in (True, False)
    }
    rows = [(one, _row(one)) for one in compared]
    drawn = [[name, arm, _drawn(found, one, wide, margin), *rest] for one, (name, arm, _, _, *rest) in rows]
    caption = (
        f"Differences to {found.declaration.baseline}, paired by seed; shaded: the margin of scores, ±{margin:g}. Only "
        "the primary score carries the verdict; p of the others is adjusted over all of them by Holm's rule"
    )
    data = {"scalars": [_data(one) for one in compared]}
    markdown = markdown_table(HEAD, [row for _, row in rows])
    return Section("pairs", "Pairs and differences", (table(DRAWN, drawn, caption=caption),), data,
                   f"{caption}.\n\n{markdown}")  # fmt: skip


def _drawn(found: Source, one: PairedComparison, wide: dict[bool, float], margin: float) -> Html:
    scored = one.scalar.scored
    return interval(one.paired, found.arms.index(one.arm), wide[scored], margin if scored else None)


def _row(one: PairedComparison) -> list[str]:
    paired, adjusted = one.paired, one.p_adjusted
    told = paired.reason or f"{signed(paired.low)} to {signed(paired.high)}"
    shown = "decides" if one.scalar.primary else number(adjusted, 2) if adjusted is not None else "–"
    p = number(paired.p, 2) if paired.p is not None else "–"
    return [one.scalar.title, one.arm, signed(paired.estimate), told, str(paired.n), p, shown]


def _data(one: PairedComparison) -> dict[str, Any]:
    paired = one.paired
    return {
        "number": one.scalar.title,
        "arm": one.arm,
        "primary": one.scalar.primary,
        "estimate": paired.estimate,
        "low": paired.low,
        "high": paired.high,
        "p": paired.p,
        "p_adjusted": one.p_adjusted,
        "pairs": paired.n,
        "reason": paired.reason,
    }
