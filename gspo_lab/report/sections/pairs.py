"""The pairs one by one, and every declared number as a difference with its interval."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gspo_lab.findings import Findings
from gspo_lab.findings.compared import Compared, Scalar
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.frames import mean, value
from gspo_lab.report.markup import Html, h, markdown_table, number, signed, table
from gspo_lab.report.section import Section
from gspo_lab.report.titles import ahead

HEAD = ("number", "arm", "difference", "interval", "pairs", "p", "p, adjusted")


def pairs(found: Findings) -> Section | None:
    """A slope per seed for the primary score, and a forest of all scalars; None without two arms."""
    declared, order, compared = found.declaration, found.arms, found.compared
    if declared.sweep is not None or not compared:
        return None
    baseline = declared.baseline
    decided = next((scalar for scalar in found.scalars if scalar.primary), None)
    charts = (
        [] if decided is None else [_slope(decided, baseline, arm, declared.seeds, order) for arm in found.treatments]
    )
    scored = [one for one in compared if one.scalar.scored]
    others = [one for one in compared if not one.scalar.scored]
    forests = [
        _forest("m-forest-scores", "Scores", scored, baseline, order, declared.verdict.margin),
        _forest("m-forest-reward", "Rewards", others, baseline, order),
    ]
    rows = [_row(one) for one in compared]
    caption = (
        f"Differences to {baseline}, paired by seed. Only the primary score carries the verdict; p of the others is "
        "adjusted over all of them by Holm's rule"
    )
    data = {"scalars": [_data(one) for one in compared]}
    body: tuple[Html | Chart, ...] = (
        h("p", "One line per seed, from the baseline's score to the arm's: the pairs that the verdict rests on."),
        *(chart for chart in (*charts, *forests) if chart.values()),
        table(HEAD, rows, caption=caption),
    )
    return Section("pairs", "Pairs and differences", body, data, f"{caption}.\n\n{markdown_table(HEAD, rows)}")


def _slope(scalar: Scalar, baseline: str, arm: str, seeds: Sequence[int], order: Sequence[str]) -> Chart:
    colour = list(order).index(arm)
    both = [s for s in seeds if (baseline, s) in scalar.values and (arm, s) in scalar.values]
    ends = {seed: (scalar.values[baseline, seed], scalar.values[arm, seed]) for seed in both}
    lines = [Series(arm, colour, (baseline, arm), ends[seed], seed=seed) for seed in both]
    if len(both) > 1:
        middle = tuple(mean([ends[seed][side] for seed in both]) for side in (0, 1))
        lines.append(Series(arm, colour, (baseline, arm), middle))
    chart = Chart(
        f"m-pairs-{arm}",
        f"{baseline} → {arm}",
        "arm",
        "final score",
        tuple(lines),
        kind="slopes",
        small=True,
        span=tuple(scalar.values.values()),
    )
    return replace(chart, finding=ahead(chart, baseline, arm))


def _forest(
    id: str,
    title: str,
    own: Sequence[Compared],
    baseline: str,
    order: Sequence[str],
    margin: float | None = None,
) -> Chart:
    series = []
    for arm in dict.fromkeys(one.arm for one in own):
        rows = [one for one in own if one.arm == arm]
        names = tuple(one.scalar.name for one in rows)
        paired = [one.paired for one in rows]
        series.append(
            Series(
                arm,
                list(order).index(arm),
                names,
                tuple(value(one.estimate) for one in paired),
                low=tuple(value(one.low) for one in paired),
                high=tuple(value(one.high) for one in paired),
            )
        )
    shaded = "" if margin is None else f" Shaded: the margin of equivalence, ±{margin:g}."
    return Chart(
        id,
        f"{title}, difference to {baseline}",
        "number",
        "difference",
        tuple(series),
        kind="forest",
        note=f"Right of zero: higher than {baseline}. Lines: intervals over seeds.{shaded}",
        margin=margin,
    )


def _row(one: Compared) -> list[str]:
    paired, adjusted = one.paired, one.p_adjusted
    interval = paired.reason or f"{signed(paired.low)} to {signed(paired.high)}"
    shown = "decides" if one.scalar.primary else number(adjusted, 2) if adjusted is not None else "–"
    p = number(paired.p, 2) if paired.p is not None else "–"
    return [one.scalar.name, one.arm, signed(paired.estimate), interval, str(paired.n), p, shown]


def _data(one: Compared) -> dict[str, Any]:
    paired = one.paired
    return {
        "number": one.scalar.name,
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
