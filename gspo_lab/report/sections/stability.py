"""A sweep's section: collapsed runs and scores by swept value, and the value at which half of the runs collapse."""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from gspo_lab.findings.decision import decision
from gspo_lab.findings.dose_response import DosePoint, DoseResponse, dose_response
from gspo_lab.findings.length_scaling import PUBLISHED, QUANTITIES, LengthMeasurement, Lengths
from gspo_lab.findings.length_scaling import lengths as lengths_of
from gspo_lab.readings import Source, average
from gspo_lab.report.chart import Chart, Section, Series
from gspo_lab.report.markup import NOT_MEASURED, Html, format_number, h, markdown_table, percent, plain, table
from gspo_lab.report.sections.curves import CLIPPED
from gspo_lab.report.series import DOTS, dots_of
from gspo_lab.words import decided_sentences
from gspo_lab.words.decision import bounds, interval

FITTED = (
    "Per arm a Firth-penalised logistic fit of collapse on log10 of the swept value; intervals from its profile, so "
    "that values at which all or none collapse still bound it. Runs count as independent."
)


def stability(study: Source) -> Section | None:
    """None for a study that sweeps nothing. What it says is the answer: no half collapse where runs are not matched."""
    doses, lines = dose_response(study), decided_sentences(decision(study))
    if doses is None:
        return None
    rows = []
    for arm in doses.arms:
        for point in arm.points:
            collapsed = f"{point.collapsed} of {point.runs}" if point.runs else NOT_MEASURED
            rows.append([arm.arm, f"{point.dose:g}", collapsed, format_number(point.score)])
    body: tuple[Html | Chart, ...] = (
        h("ul", *(h("li", line) for line in lines)),
        h("p", FITTED, class_="soft"),
        *_charts(doses),
        table(["arm", doses.key, "collapsed", "final score"], rows, caption="Every value"),
    )
    markdown = "\n".join(f"- {plain(line)}" for line in lines)
    return Section("stability", "Stability margin", body, doses.to_json(), markdown)


def _charts(doses: DoseResponse) -> tuple[Chart, ...]:
    def chart(name: str, title: str, unit: str, value: Callable[[DosePoint], float | None], **look: Any) -> Chart:
        series = tuple(
            Series(arm.arm, tuple(f"{point.dose:g}" for point in arm.points), tuple(map(value, arm.points)))
            for arm in doses.arms
        )
        return Chart(f"m-{name}-by-dose", title, doses.key, unit, series, kind="dots", whole=True, **look)

    return (
        chart("collapsed", "Collapsed runs by swept value", "share of runs",
              lambda point: point.collapsed / point.runs if point.runs else None, share=True, reading="collapsed"),
        chart("score", "Final score by swept value", "score", lambda point: point.score, reading="score.final"),
    )  # fmt: skip


EVERY_LENGTH = ("arm", "limit", "length", *QUANTITIES.values(), "reward at the start", "gain")
LAWS_HEAD = ("y ~ L^exponent", "exponent", "95 % interval over seeds", "per seed")
RULE = (
    "A law is a straight line of log y on log L through a seed's runs; its interval is the t interval of the seeds' "
    "slopes. Independent token log-ratios would give the spread of log s over that of l_t the exponent −1/2; the "
    "expected l_t is −KL at every length, a drift that averaging does not shrink."
)
EXTRAPOLATED = (
    "Extrapolated seed by seed from the longest answers: their log s, spread by that seed's law, the drift as it is, "
    "both moved so far that GRPO's range clips the published {share} ({moved} times as far as here)."
)
NOT_EXTRAPOLATED = (
    "Nothing is extrapolated: GRPO's range from a quarter to four times its width does not clip the published share "
    "on every seed, or a seed lacks a length."
)


def lengths(study: Source) -> Section | None:
    """None for a study that does not sweep the answers' limit, and while no run of it has finished."""
    laws, lines = lengths_of(study), decided_sentences(decision(study))
    if laws is None or not any(laws.runs.values()):
        return None
    rows = [
        (family, f"{limit:g}", *_means(runs)) for family, limits in laws.runs.items() for limit, runs in limits.items()
    ]
    fitted = []
    for law in laws.laws:
        ends = bounds(law.exponent).strip("[]") or law.exponent.reason or NOT_MEASURED
        by_seed = ", ".join(map(format_number, law.exponent.differences))
        fitted.append(
            (f"{law.family}: {QUANTITIES[law.quantity]}", format_number(law.exponent.estimate), ends, by_seed)
        )
    moved = NOT_EXTRAPOLATED
    if laws.moved is not None:
        moved = EXTRAPOLATED.format(share=percent(PUBLISHED["grpo"]), moved=interval(laws.moved))
    body: tuple[Html | Chart, ...] = (
        h("ul", *(h("li", line) for line in lines)),
        h("p", RULE, class_="soft"),
        *_length_charts(laws),
        h("p", moved, class_="soft"),
        table(LAWS_HEAD, fitted, caption="The laws"),
        table(EVERY_LENGTH, rows, caption="Every length, means over seeds; log-ratios in nats, of mini-batches ≥ 1"),
    )
    markdown = "\n".join(f"- {plain(line)}" for line in lines) + f"\n\n{markdown_table(LAWS_HEAD, fitted)}"
    return Section("lengths", "Response length", body, laws.to_json(), markdown)


def _means(runs: Mapping[int, LengthMeasurement]) -> list[str]:
    shares = ("clipped_grpo", "clipped_gspo")
    names = ("length", *QUANTITIES, "reward_first", "gain")
    means = {name: average(getattr(run, name) for run in runs.values()) for name in names}
    return [
        NOT_MEASURED if y is None else percent(y) if name in shares else format_number(y) for name, y in means.items()
    ]


def _length_charts(laws: Lengths) -> tuple[Chart, ...]:
    """The two spreads and the clipped shares, length by length; the last one goes on to the extrapolated lengths."""
    spread = [line for name in laws.runs for line in _of_family(laws, name, name, attrgetter("spread"), None)]
    clipped = [
        line
        for colour, (rule, family) in enumerate(zip(PUBLISHED, laws.rules or (), strict=False))
        for line in _of_family(laws, family, f"{rule.upper()}'s range", attrgetter(f"clipped_{rule}"), colour)
    ]
    if laws.predicted:
        x = [f"{share.length:,.0f}" for share in laws.predicted]
        by_seed = zip(*(share.share.differences for share in laws.predicted), strict=True)
        seeds = {seed: dict(zip(x, y, strict=True)) for seed, y in enumerate(by_seed)}
        clipped += dots_of("GSPO's range, extrapolated", x, seeds, 2)
    return (
        Chart("m-spread-by-length", "Spread of log s by length", "tokens", "nats", tuple(spread), kind="dots", log=True,
              note=DOTS, reading="spread.by-length"),
        Chart("m-clip-by-length", "Clipped tokens by length", "tokens", "share of tokens", tuple(clipped), kind="dots",
              log=True, share=True, references=CLIPPED, reading="clip_fraction_tokens.by-length",
              note=f"Each rule on its own arm's batches, all mini-batches. {DOTS} Dotted: the GSPO paper's values."),
    )  # fmt: skip


def _of_family(
    laws: Lengths, family: str, label: str, value: Callable[[LengthMeasurement], float], colour: int | None
) -> list[Series]:
    limits = laws.runs[family]
    seeds = sorted({seed for runs in limits.values() for seed in runs})
    by_seed = {
        seed: {f"{limit:,.0f}": value(runs[seed]) if seed in runs else None for limit, runs in limits.items()}
        for seed in seeds
    }
    return dots_of(label, [f"{limit:,.0f}" for limit in limits], by_seed, colour)
