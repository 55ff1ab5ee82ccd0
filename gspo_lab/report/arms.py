"""The table that decides: a row per arm, its interval drawn over the margin, and any arm as the baseline by a click.

Plain HTML, CSS and a drawing of percentages per row: it stands without a script, on paper and in a mail.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gspo_lab.findings import Findings
from gspo_lab.findings.answer import Answer
from gspo_lab.findings.clipped import NO_CLIP, clips
from gspo_lab.findings.outcomes import NOT_JUDGED, RunOutcome
from gspo_lab.readings import average, summarise
from gspo_lab.readings.named import CLIP, DEVICE_SECONDS, PEAK_MEMORY
from gspo_lab.report.interval import interval, reach
from gspo_lab.report.markup import NOT_MEASURED, Html, h, join, number, percent, slug, unbroken
from gspo_lab.report.palette import colour_name
from gspo_lab.stats import PairedT

SHORT = {
    "better beyond margin": ("better", "decided"),
    "practically equivalent": ("equivalent", "decided"),
    "better, size not resolved against the margin": ("better, size open", "leaning"),
    "not resolved": ("not resolved", "open"),
    "withheld": ("withheld", "against"),
    "more stable": ("more stable", "decided"),
    "less stable": ("less stable", "decided"),
    "as stable": ("as stable", "decided"),
}
"""A word as the table has it, and how it looks."""

HEAD = ("arm", "score", "difference, each seed a dot, over the margin", "fell", "clipped", "time, memory", "word")


class Row(NamedTuple):
    """An arm against the baseline: what decides, and in which word."""

    arm: str
    against: str
    paired: PairedT | None
    word: str
    better: bool | None
    margin: float


def arms_table(found: Findings, answer: Answer) -> Html | None:
    """One table per baseline, the declared one shown first; None where no score decides. What is withheld is red only
    where the answer is."""
    if not found.decision.verdicts:
        return None
    declared = found.declaration.baseline
    order = [declared, *(arm for arm in found.arms if arm != declared)]
    key = f"against-{slug(found.label)}"
    parts: list[Html] = []
    for place, baseline in enumerate(order):
        own = found if baseline == declared else found.against(baseline)
        parts.append(h("label", h("input", type="radio", name=key, checked=place == 0), baseline))
        parts.append(_table(own, found, answer, declared=baseline == declared))
    legend = h("legend", "Baseline")
    return h("fieldset", legend, *parts, class_="arms")


def _table(own: Findings, found: Findings, answer: Answer, *, declared: bool) -> Html:
    rows = _rows(own)
    if declared and (pair := own.rules) is not None and own.declaration.baseline not in pair:
        rows += [row for row in _rows(found.against(pair[0])) if row.arm == pair[1]]
    wide = reach((row.paired for row in rows if row.paired is not None), rows[0].margin)
    stability = own.declaration.verdict.question == "stability"
    what = "Drop from best, relative to the gain: how much smaller" if stability else "Difference of final scores"
    told = "" if declared else " This baseline was not declared: its words are description."
    of_what = f"Numbers of an arm: {found.decision.runs.label()}."
    caption = f"{what}, against {own.declaration.baseline}. Shaded: the margin ±{rows[0].margin:.3g}. {of_what}{told}"
    head = h("thead", h("tr", *(h("th", name, scope="col") for name in HEAD)))
    base = _line(found, own.declaration.baseline, "", [h("span", "baseline", class_="soft"), ""])
    usual = own.declaration.baseline
    lines = [
        _line(found, row.arm, row.against if row.against != usual else "", _judged(found, row, answer, wide))
        for row in rows
    ]
    shown = h("table", head, h("tbody", base, *lines), class_="forest", aria_label=caption)
    return h("div", h("p", unbroken(caption), class_="caption"), shown, class_="variant table")


def _rows(found: Findings) -> list[Row]:
    baseline = found.declaration.baseline
    if found.declaration.verdict.question == "stability":
        return [
            Row(arm, baseline, one.lost.paired, one.word, None, one.lost.margin)
            for arm, one in found.steadiness.items()
        ]
    return [
        Row(arm, baseline, one.paired, one.word, None if one.better is None else one.better == arm, one.margin)
        for arm, one in found.decision.verdicts.items()
    ]


def _line(found: Findings, arm: str, against: str, judged: Sequence[Html | str]) -> Html:
    drawn, word = judged
    primary = found.declaration.primary
    seeds = found.decision.runs
    runs = [run for run in found.outcomes(primary) if run.arm == arm and seeds.has(run)]
    score = average(run.final for run in runs)
    seconds, memory = (
        summarise(found, DEVICE_SECONDS, arm, seeds).mean,
        summarise(found, PEAK_MEMORY, arm, seeds).largest,
    )
    spent = f"{_time(seconds)}, {_memory(memory)}" if seconds or memory else NOT_MEASURED
    clipped = percent(summarise(found, CLIP, arm, seeds).mean, 2) if clips(found.declaration, arm) else NO_CLIP
    name = join([h("i", class_=f"swatch {colour_name(found.arms.index(arm))}"), arm])
    beside = h("span", f" against {against}", class_="soft") if against else ""
    return h(
        "tr",
        h("th", name, beside, scope="row"),
        h("td", number(score), class_="n", data_head="score"),
        h("td", drawn, class_="drawn-cell"),
        h("td", fell(runs), class_="n", data_head="fell"),
        h("td", clipped, class_="n", data_head="clipped"),
        h("td", spent, class_="n", data_head="spent"),
        h("td", word),
    )


def fell(runs: Sequence[RunOutcome]) -> str:
    """How many runs fell, of those of which that can be told."""
    judged = [one.fell for one in runs if one.fall_judged]
    return f"{sum(judged)} of {len(judged)}" if judged else NOT_JUDGED


def _judged(found: Findings, row: Row, answer: Answer, wide: float) -> list[Html | str]:
    """The cells of the difference and of the word."""
    paired = row.paired
    short, look = SHORT[row.word]
    if row.better is False:
        short = short.replace("better", "worse")
    if row.word == "withheld" and answer.colour != "red":
        short, look = "not yet" if answer.word == "running" else short, "open"
    word = h("strong", short, class_=f"word {look}")
    if paired is None or paired.estimate is None:
        return [h("span", NOT_MEASURED, class_="missing"), word]
    return [interval(paired, found.arms.index(row.arm), wide, row.margin), word]


def _time(seconds: float | None) -> str:
    if seconds is None:
        return NOT_MEASURED
    size, unit = next((one for one in ((1, "s"), (60, "min")) if seconds < 90 * one[0]), (3600, "h"))
    return f"{number(seconds / size)} {unit}"


def _memory(size: float | None) -> str:
    return f"memory {NOT_MEASURED}" if size is None else f"{number(size / 2**30)} GiB"
