"""A sweep's section: collapsed runs and scores by swept value, and the value at which half of the runs collapse."""

from collections.abc import Callable
from typing import Any

from gspo_lab.findings.decision import decision
from gspo_lab.findings.dose_response import DosePoint, DoseResponse, dose_response
from gspo_lab.readings import Source
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.markup import NOT_MEASURED, Html, h, number, plain, table
from gspo_lab.report.section import Section
from gspo_lab.words import decided_sentences


def stability(found: Source) -> Section | None:
    """None for a study that sweeps nothing. What it says is the answer: no half collapse where runs are not matched."""
    doses, lines = dose_response(found), decided_sentences(decision(found))
    if doses is None:
        return None
    rows = [
        [
            one.arm,
            f"{point.dose:g}",
            f"{point.collapsed} of {point.runs}" if point.runs else NOT_MEASURED,
            number(point.score),
        ]
        for one in doses.arms
        for point in one.points
    ]
    body: tuple[Html | Chart, ...] = (
        h("ul", *(h("li", line) for line in lines)),
        h(
            "p",
            "Per arm a Firth-penalised logistic fit of collapse on log10 of the swept value; intervals from its "
            "profile, so that values at which all or none collapse still bound it. Runs count as independent.",
            class_="soft",
        ),
        *_charts(doses),
        table(["arm", doses.key, "collapsed", "final score"], rows, caption="Every value"),
    )
    return Section(
        "stability", "Stability margin", body, doses.to_json(), "\n".join(f"- {plain(line)}" for line in lines)
    )


def _charts(found: DoseResponse) -> tuple[Chart, ...]:
    """The share of runs that collapsed and the mean final score, value by value."""

    def chart(name: str, title: str, unit: str, value: Callable[[DosePoint], float | None], **look: Any) -> Chart:
        series = tuple(
            Series(arm.arm, tuple(f"{point.dose:g}" for point in arm.points), tuple(map(value, arm.points)))
            for arm in found.arms
        )
        return Chart(f"m-{name}-by-dose", title, found.key, unit, series, kind="dots", whole=True, **look)

    return (
        chart("collapsed", "Collapsed runs by swept value", "share of runs",
              lambda point: point.collapsed / point.runs if point.runs else None, share=True, reading="collapsed"),
        chart("score", "Final score by swept value", "score", lambda point: point.score, reading="score.final"),
    )  # fmt: skip
