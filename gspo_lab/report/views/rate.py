"""Score against a swept setting, each arm with its band: the figure of `[verdict] over`."""

from gspo_lab.analysis.findings.rate_curve import RateCurve
from gspo_lab.common.text import setting_name
from gspo_lab.report.chart import Chart, Series

NOTE = (
    "Faint: seeds. Thick: their mean. Shaded: the 95 % t interval at each value by itself. An arm's"
    " height is its score at the value that the other seeds choose."
)


def rate_chart(curve: RateCurve | None) -> Chart | None:
    """The curves of all arms; None before any is known."""
    if curve is None or not curve.curves:
        return None
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
        f"Score by {setting_name(curve.key)}",
        curve.key,
        "score",
        tuple(series),
        log_x=True,
        reach=(min(values), max(values)),
        note=NOTE,
        reading="score.final",
    )
