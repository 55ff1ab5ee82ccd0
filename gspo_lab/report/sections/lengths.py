"""Response length: the laws of a study whose arms differ in the length of their answers, and what they predict."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter

from gspo_lab.findings.decision import decision
from gspo_lab.findings.lengths import PUBLISHED, QUANTITIES, LengthMeasurement, Lengths, Prediction
from gspo_lab.findings.lengths import lengths as lengths_of
from gspo_lab.readings import Source, average
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.markup import NOT_MEASURED, Html, h, markdown_table, number, percent, plain, table
from gspo_lab.report.published import CLIPPED, CLIPPED_ABOUT
from gspo_lab.report.section import Section
from gspo_lab.report.titles import each_from_first_to_last, over_length
from gspo_lab.words import decided_sentences
from gspo_lab.words.sweeps import bounds, interval

HEAD = ("arm", "limit", "length", *QUANTITIES.values(), "reward at the start", "gain")
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


def lengths(found: Source) -> Section | None:
    """None for a study that does not sweep the answers' limit, and while no run of it has finished."""
    laws = lengths_of(found)
    if laws is None or not any(laws.runs.values()):
        return None
    rows = [
        (family, f"{limit:g}", *_means(runs)) for family, limits in laws.runs.items() for limit, runs in limits.items()
    ]
    fitted = [
        (
            f"{law.family}: {QUANTITIES[law.quantity]}",
            number(law.exponent.estimate),
            bounds(law.exponent).strip("[]") or law.exponent.reason or NOT_MEASURED,
            ", ".join(number(one) for one in law.exponent.differences),
        )
        for law in laws.laws
    ]
    moved = (
        "" if laws.moved is None else EXTRAPOLATED.format(share=percent(PUBLISHED["grpo"]), moved=interval(laws.moved))
    )
    body: tuple[Html | Chart, ...] = (
        h("ul", *(h("li", line) for line in decided_sentences(decision(found)))),
        h("p", RULE, class_="soft"),
        *_charts(laws),
        h("p", moved or NOT_EXTRAPOLATED, class_="soft"),
        table(list(LAWS_HEAD), fitted, caption="The laws"),
        table(list(HEAD), rows, caption="Every length, means over seeds; log-ratios in nats, of mini-batches ≥ 1"),
    )
    lines = "\n".join(f"- {plain(line)}" for line in decided_sentences(decision(found)))
    return Section(
        "lengths", "Response length", body, laws.to_json(), f"{lines}\n\n{markdown_table(LAWS_HEAD, fitted)}"
    )


def _means(runs: Mapping[int, LengthMeasurement]) -> list[str]:
    shares = ("clipped_grpo", "clipped_gspo")
    names = ("length", *QUANTITIES, "reward_first", "gain")
    found = {name: average(getattr(run, name) for run in runs.values()) for name in names}
    return [NOT_MEASURED if y is None else percent(y) if name in shares else number(y) for name, y in found.items()]


def _charts(laws: Lengths) -> tuple[Chart, ...]:
    """The two spreads and the clipped shares, length by length; the last one goes on to the extrapolated lengths."""
    spread = tuple(
        series
        for colour, name in enumerate(laws.runs)
        for series in _of_family(laws, name, name, colour, attrgetter("spread"))
    )
    clipped = tuple(
        series
        for colour, (rule, family) in enumerate(zip(PUBLISHED, laws.rules or (), strict=False))
        for series in _of_family(laws, family, f"{rule.upper()}'s range", colour, attrgetter(f"clipped_{rule}"))
    )
    spreads = Chart("m-spread-by-length", "Spread of log s by length", "tokens", "nats", spread, kind="bars", log=True,
                    note="Bars: mean over seeds; dots: seeds.")  # fmt: skip
    clips = Chart("m-clip-by-length", "Clipped tokens by length", "tokens", "share of tokens", clipped, kind="bars",
                  log=True, references=CLIPPED,
                  note=f"Each rule on its own arm's batches, all mini-batches. {CLIPPED_ABOUT}")  # fmt: skip
    whole = (*clipped, *_extrapolated(laws.predicted, 2))
    return (
        replace(spreads, finding=over_length(spreads)),
        replace(clips, series=whole, finding=each_from_first_to_last(clips)),
    )


def _of_family(
    laws: Lengths, family: str, label: str, colour: int, value: Callable[[LengthMeasurement], float]
) -> list[Series]:
    limits = laws.runs[family]
    x = tuple(f"{limit:,.0f}" for limit in limits)
    seeds = sorted({seed for runs in limits.values() for seed in runs})
    by_seed = {seed: tuple(value(runs[seed]) if seed in runs else None for runs in limits.values()) for seed in seeds}
    means = tuple(average(column) for column in zip(*by_seed.values(), strict=True))
    return [*(Series(label, colour, x, y, seed=seed) for seed, y in by_seed.items()), Series(label, colour, x, means)]


def _extrapolated(predicted: tuple[Prediction, ...], colour: int) -> list[Series]:
    if not predicted:
        return []
    x = tuple(f"{one.length:,.0f}" for one in predicted)
    seeds = zip(*(one.share.differences for one in predicted), strict=True)
    label = "GSPO's range, extrapolated"
    means = tuple(one.share.estimate for one in predicted)
    return [*(Series(label, colour, x, y, seed=seed) for seed, y in enumerate(seeds)), Series(label, colour, x, means)]
