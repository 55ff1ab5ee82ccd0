"""Every number that the study fixes beforehand as a difference to the baseline, pair by pair, with its interval."""

from gspo_lab.findings.compared import PairedComparison
from gspo_lab.findings.compared import compared as compared_of
from gspo_lab.readings import Source
from gspo_lab.report.interval import interval, reach
from gspo_lab.report.markup import NONE, between, markdown_table, number, signed, table
from gspo_lab.report.section import Section

HEAD = ("number", "arm", "difference", "interval", "pairs", "p", "p, adjusted")
DRAWN = ("number", "arm", "difference, each pair a dot", "pairs", "p", "p, adjusted")


def pairs(found: Source) -> Section | None:
    """A row per number and arm, scores over the margin and rewards on a scale of their own; None without two arms."""
    compared = compared_of(found)
    if found.declaration.sweep is not None or not compared:
        return None
    margin = found.declaration.verdict.margin
    margins = {True: margin, False: None}
    wide = {
        scored: reach((one.paired for one in compared if one.scalar.scored is scored), margins[scored])
        for scored in margins
    }
    rows = [_row(one) for one in compared]
    drawn = [
        (name, arm, interval(one.paired, arm, wide[one.scalar.scored], margins[one.scalar.scored]), *rest)
        for one, (name, arm, _, _, *rest) in zip(compared, rows, strict=True)
    ]
    caption = (
        f"Differences to {found.declaration.baseline}, paired by seed; shaded: the margin of scores, ±{margin:g}. Only "
        "the primary score carries the verdict; p of the others is adjusted over all of them by Holm's rule"
    )
    data = {
        "scalars": [
            {
                "number": one.scalar.title,
                "arm": one.arm,
                "primary": one.scalar.primary,
                **{name: getattr(one.paired, name) for name in ("estimate", "low", "high", "p", "reason")},
                "p_adjusted": one.p_adjusted,
                "pairs": one.paired.n,
                "reading": f"score.{one.scalar.bench}" if one.scalar.bench else f"reward_mean.{one.scalar.name}",
            }
            for one in compared
        ]
    }
    shown = table(DRAWN, drawn, caption=caption)
    return Section("pairs", "Pairs and differences", (shown,), data, f"{caption}.\n\n{markdown_table(HEAD, rows)}")


def _row(one: PairedComparison) -> tuple[str, ...]:
    paired, adjusted = one.paired, one.p_adjusted
    width = None if paired.low is None or paired.high is None else paired.high - paired.low
    p = [NONE if value is None else number(value, 2) for value in (paired.p, adjusted)]
    ends = between(paired.low, paired.high, paired.reason)
    decides = "decides" if one.scalar.primary else p[1]
    return (one.scalar.title, one.arm, signed(paired.estimate, width), ends, str(paired.n), p[0], decides)
