"""Score against a swept setting, each arm with its band: the first figure of `[verdict] over`."""

from dataclasses import dataclass

from gspo_lab.analysis.findings.rate_curve import RateCurve, rate_curve
from gspo_lab.analysis.readings import Source
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.views.view import View, by_id

NOTE = (
    "Faint: seeds. Thick: their mean. Shaded: the 95 % t interval at each value by itself. An arm's"
    " height is its score at the value that the other seeds choose."
)


@dataclass(frozen=True)
class RateView(View):
    """The curves of all arms; what they say stands in the answer."""

    id = "rate"
    title = "Score by swept value"
    curve: RateCurve
    figures: dict[str, Chart]
    reading: str = "score.final"


def rate_view(study: Source) -> RateView | None:
    """None for a study whose verdict is not over a swept key, and before any curve is known."""
    curve = rate_curve(study)
    if curve is None or not curve.curves:
        return None
    return RateView(curve, by_id(_chart(curve)))


def _chart(curve: RateCurve) -> Chart:
    series = []
    for arm in curve.curves:
        x = tuple(point.value for point in arm.points)
        for place, seed in enumerate(curve.seeds):
            scores = tuple(point.by_seed[place] for point in arm.points)
            series.append(Series(arm.arm, x, scores, seed=seed))
        series.append(
            Series(
                arm.arm,
                x,
                tuple(point.score for point in arm.points),
                low=tuple(point.low for point in arm.points),
                high=tuple(point.high for point in arm.points),
            )
        )
    values = [point.value for point in curve.curves[0].points]
    return Chart(
        "m-score-by-value",
        f"Final score by {curve.key}",
        curve.key,
        "score",
        tuple(series),
        log_x=True,
        reach=(min(values), max(values)),
        note=NOTE,
        reading="score.final",
    )
