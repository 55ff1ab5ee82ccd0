"""Final scores per arm and benchmark: every seed, where they started, what they gained."""

from typing import TYPE_CHECKING, Any

from gspo_lab.claims.outcomes import Outcome, outcomes
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.frames import arms, mean
from gspo_lab.report.markup import NOT_MEASURED, Html, h, markdown_table, number, signed, table
from gspo_lab.report.section import Section

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

HEAD = ["arm", "final score", "each seed", "start", "gain", "collapsed", "runs finished", "answers not graded"]


def scores(evidence: "Evidence", study: str) -> Section | None:
    """One table and one dot chart per benchmark."""
    content = evidence.study(study)
    order = arms(evidence, study)
    benches = sorted(set(evidence.scores(study)["bench"]))
    if not benches:
        return Section("scores", "Final scores", (h("p", NOT_MEASURED, class_="missing"),))
    tables: list[Html] = []
    charts: list[Chart] = []
    data: dict[str, Any] = {}
    markdown = []
    for bench in benches:
        ended = outcomes(evidence, study, bench)
        by_arm = {arm: [one for one in ended if one.arm == arm] for arm in order}
        rows = [_row(arm, runs, len(content["seeds"])) for arm, runs in by_arm.items()]
        caption = (
            f"{bench}: mean of the last {content['verdict']['last']} evaluations of a finished run, mean over seeds"
        )
        tables.append(table(HEAD, rows, caption=caption))
        charts.append(_chart(bench, by_arm))
        data[bench] = {arm: _data(runs) for arm, runs in by_arm.items()}
        markdown.append(f"{caption}\n\n{markdown_table(HEAD, rows)}")
    return Section("scores", "Final scores", (*tables, *charts), {"benches": data}, "\n\n".join(markdown))


def _row(arm: str, runs: list[Outcome], planned: int) -> list[Any]:
    judged = [one for one in runs if one.stability is not None and (one.stability.judged or one.collapsed)]
    return [
        arm,
        number(mean([one.final for one in runs])),
        ", ".join(_seed(one) for one in runs) or "not begun",
        number(mean([one.start for one in runs])),
        signed(mean([one.gain for one in runs])),
        f"{sum(one.collapsed for one in judged)} of {len(judged)}" if judged else NOT_MEASURED,
        f"{sum(one.state == 'finished' for one in runs)} of {planned}",
        str(sum(one.errors for one in runs)),
    ]


def _seed(one: Outcome) -> str:
    if one.final is not None:
        return number(one.final)
    return f"({one.state}{'' if one.latest is None else f', at {number(one.latest)}'})"


def _data(runs: list[Outcome]) -> dict[str, Any]:
    return {
        "final": mean([one.final for one in runs]),
        "start": mean([one.start for one in runs]),
        "gain": mean([one.gain for one in runs]),
        "seeds": {
            str(one.seed): {
                "state": one.state,
                "start": one.start,
                "final": one.final,
                "latest": one.latest,
                "collapse_step": None if one.stability is None else one.stability.collapse,
                "collapse_cause": None if one.stability is None else one.stability.cause,
                "carried": one.carried,
                "errors": one.errors,
            }
            for one in runs
        },
    }


def _chart(bench: str, by_arm: dict[str, list[Outcome]]) -> Chart:
    series: list[Series] = []
    for colour, (arm, runs) in enumerate(by_arm.items()):
        finals = {one.seed: one.final for one in runs if one.final is not None}
        if len(finals) > 1:
            series += [Series(arm, colour, (arm,), (final,), seed=seed) for seed, final in finals.items()]
        series.append(Series(arm, colour, (arm,), (mean(list(finals.values())),)))
    note = "Dots: runs, side by side in the order of their seeds. Line: their mean. The axis need not start at zero."
    return Chart(f"m-final-{bench}", f"Final scores on {bench}", "arm", "score", tuple(series), kind="dots", note=note)
