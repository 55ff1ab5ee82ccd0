"""A sweep's section: collapsed runs and scores against the dose, and the dose at which half of the runs collapse."""

from collections.abc import Callable
from dataclasses import replace

from gspo_lab.findings.decision import decision
from gspo_lab.findings.dose_response import DosePoint, DoseResponse, dose_response
from gspo_lab.readings import Source
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.markup import NOT_MEASURED, Html, h, plain, table
from gspo_lab.report.section import Section
from gspo_lab.report.titles import each_best, first_above_zero
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
            NOT_MEASURED if point.score is None else f"{point.score:.3f}",
        ]
        for one in doses.arms
        for point in one.points
    ]
    body: tuple[Html | Chart, ...] = (
        h("ul", *(h("li", line) for line in lines)),
        h(
            "p",
            "Per arm a Firth-penalised logistic fit of collapse on log10 of the dose; intervals from its profile, so "
            "that doses at which all or none collapse still bound it. Runs count as independent, even with one seed.",
            class_="soft",
        ),
        *_charts(doses),
        table(["arm", doses.key, "collapsed", "final score"], rows, caption="Every dose"),
    )
    return Section(
        "stability", "Stability margin", body, doses.to_json(), "\n".join(f"- {plain(line)}" for line in lines)
    )


def _charts(found: DoseResponse) -> tuple[Chart, ...]:
    """The share of runs that collapsed and the mean final score, dose by dose."""

    def series(value: Callable[[DosePoint], float | None]) -> tuple[Series, ...]:
        return tuple(
            Series(one.arm, colour, tuple(f"{p.dose:g}" for p in one.points), tuple(value(p) for p in one.points))
            for colour, one in enumerate(found.arms)
        )

    fell = Chart(
        "m-collapsed-by-dose",
        "Collapsed runs by dose",
        found.key,
        "share of runs",
        series(lambda point: point.collapsed / point.runs if point.runs else None),
        kind="bars",
        whole=True,
    )
    score = Chart(
        "m-score-by-dose",
        "Final score by dose",
        found.key,
        "score",
        series(lambda p: p.score),
        kind="bars",
        whole=True,
    )
    return replace(fell, finding=first_above_zero(fell)), replace(score, finding=each_best(score))
