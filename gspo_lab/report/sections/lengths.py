"""Response length: the laws of a study whose arms differ in the length of their answers, and what they predict."""

from collections.abc import Callable, Mapping
from operator import attrgetter

from gspo_lab.findings.decision import decision
from gspo_lab.findings.lengths import PUBLISHED, QUANTITIES, LengthMeasurement, Lengths
from gspo_lab.findings.lengths import lengths as lengths_of
from gspo_lab.readings import Source, average
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.markup import NOT_MEASURED, Html, h, markdown_table, number, percent, plain, table
from gspo_lab.report.section import Section
from gspo_lab.report.sections.curves import CLIPPED
from gspo_lab.report.series import DOTS, dots_of
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
    spread = [one for name in laws.runs for one in _of_family(laws, name, name, attrgetter("spread"), None)]
    clipped = [
        one
        for colour, (rule, family) in enumerate(zip(PUBLISHED, laws.rules or (), strict=False))
        for one in _of_family(laws, family, f"{rule.upper()}'s range", attrgetter(f"clipped_{rule}"), colour)
    ]
    if laws.predicted:
        x = [f"{one.length:,.0f}" for one in laws.predicted]
        by_seed = zip(*(one.share.differences for one in laws.predicted), strict=True)
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
