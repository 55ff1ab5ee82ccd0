"""The table that decides: a row per arm, its interval drawn over the margin, and any arm as the baseline by a click.

Plain HTML, CSS and a drawing of percentages per row: it stands without a script, on paper and in a mail.
"""

from collections.abc import Iterable, Sequence

from gspo_lab.findings.answer import StudyAnswer
from gspo_lab.findings.clipped import NO_CLIP, clips, rule_arms
from gspo_lab.findings.decision import against as against_of
from gspo_lab.findings.decision import decision
from gspo_lab.findings.outcomes import NOT_JUDGED, RunOutcome, outcomes
from gspo_lab.findings.stability import stability_verdicts
from gspo_lab.readings import Source, average, summarise
from gspo_lab.readings.reading import CLIP, DEVICE_SECONDS, PEAK_MEMORY
from gspo_lab.report.markup import NONE, NOT_MEASURED, Html, between, h, join, number, percent, signed, slug, unbroken
from gspo_lab.stats import PairedT, Verdict
from gspo_lab.study.contrast import formula, sides
from gspo_lab.words import short, tone
from gspo_lab.words.text import level

HEAD = ("arm", "score", "difference (dots: seeds; shaded: margin)", "unstable", "clipped", "time, memory", "verdict")


def arms_table(found: Source, answer: StudyAnswer) -> Html | None:
    """One table per baseline, the declared one shown first; None where no score decides. What is withheld is red only
    where the answer is."""
    if not decision(found).verdicts:
        return None
    declared = found.declaration.baseline
    order = [declared, *(arm for arm in found.arms if arm != declared)]
    key = f"against-{slug(found.label)}"
    parts: list[Html] = []
    for place, baseline in enumerate(order):
        own = found if baseline == declared else against_of(found, baseline)
        parts.append(h("label", h("input", type="radio", name=key, value=baseline, checked=place == 0), baseline))
        parts.append(_table(own, found, answer, declared=baseline == declared))
    legend = h("legend", "Baseline")
    return h("fieldset", legend, *parts, class_="arms")


def _table(own: Source, found: Source, answer: StudyAnswer, *, declared: bool) -> Html:
    usual, rule = own.declaration.baseline, own.declaration.verdict
    rows, contrast = _of_arms(own), decision(own).contrast if declared else None
    if declared and (pair := rule_arms(own)) is not None and usual not in pair:
        rows += [row for row in _of_arms(against_of(found, pair[0])) if row.subject == pair[1]]
    margin = rows[0].margin or rule.margin
    rows += [contrast] if contrast is not None else []
    judged = {row.paired: row.interval or () for row in rows if row.paired is not None}
    wide = reach(judged, margin, *(end for ends in judged.values() for end in ends))
    what = f"Difference of final scores to {usual}"
    if rule.question == "stability":
        what = f"Drop from best, relative to the gain: smaller by, than that of {usual}"
    caption = (
        f"{what}. Shaded: the margin ±{margin:.3g}. Intervals: {level(rule.alpha)}, where several arms share alpha as "
        f"stated. Numbers of an arm: {decision(found).runs.label()}."
    )
    if not declared:
        caption += " This baseline was not declared: its verdicts are descriptive."
    if contrast is not None:
        first, second = map(formula, sides(rule.contrast or {}))
        caption += (
            " The last row is the declared contrast, which answers the question; the arms' verdicts are secondary. It "
            f"compares {second} with {first}."
        )
    lines = [_line(found, usual, "", h("span", "baseline", class_="soft"), "")]
    for row in rows:
        second = "" if row.baseline in (None, usual) and row is not contrast else str(row.baseline)
        lines.append(_line(found, row.subject, second, *_judged(found, row, answer, wide)))
    head = h("thead", h("tr", *(h("th", name, scope="col") for name in HEAD)))
    shown = h("table", head, h("tbody", *lines), class_="forest", aria_label=caption)
    return h("div", h("p", unbroken(caption), class_="caption"), shown, class_="variant table")


def _of_arms(found: Source) -> list[Verdict]:
    """The verdict on every arm: on its stability where that is the question, else on its final score."""
    stability = found.declaration.verdict.question == "stability"
    return list((stability_verdicts(found) if stability else decision(found).verdicts).values())


def _line(found: Source, subject: str, against: str, difference: Html, word: Html | str) -> Html:
    """The row of an arm, or of a contrast, which has no numbers of its own."""
    cells, name = dict.fromkeys(("score", "unstable", "clipped", "spent"), NONE), unbroken(subject)
    if subject in found.arms:
        seeds = decision(found).runs
        runs = [run for run in outcomes(found, found.declaration.primary) if run.arm == subject and seeds.has(run)]
        seconds = summarise(found, DEVICE_SECONDS, subject, seeds).mean
        memory = summarise(found, PEAK_MEMORY, subject, seeds).largest
        share = summarise(found, CLIP, subject, seeds).mean
        size = NOT_MEASURED if memory is None else f"{number(memory / 2**30)} GiB"
        cells = {
            "score": number(average(run.final for run in runs)),
            "unstable": fell(runs),
            "clipped": percent(share, 2) if clips(found.declaration, subject) else NO_CLIP,
            "spent": f"{_time(seconds)}, {'memory ' * (memory is None)}{size}" if seconds or memory else NOT_MEASURED,
        }
        name = join([h("i", class_="swatch", data_arm=subject), name])
    row = h("th", name, h("span", f" against {against}", class_="soft") if against else "", scope="row")
    score, *rest = (h("td", value, class_="n", data_head=head) for head, value in cells.items())
    return h("tr", row, score, h("td", difference, class_="drawn-cell"), *rest, h("td", word))


def fell(runs: Sequence[RunOutcome]) -> str:
    """How many runs were unstable, of those that could be judged."""
    judged = [one.unstable for one in runs if one.stability_judged]
    return f"{sum(judged)} of {len(judged)}" if judged else NOT_JUDGED


def _judged(found: Source, row: Verdict, answer: StudyAnswer, wide: float) -> tuple[Html, Html]:
    """The cells of the difference and of the verdict, which stands in its subject's row."""
    text, look = short(row), str(tone(row))
    if answer.word == "all collapsed":
        text = "collapsed"
    elif row.word == "withheld":
        text = "not yet" if answer.word == "running" else text
        look = "against" if answer.colour == "red" else look
    word, paired = h("strong", text, class_=f"word {look}"), row.paired
    if paired is None or row.margin is None or paired.estimate is None:
        return h("span", NOT_MEASURED, class_="missing"), word
    ends = row.interval or (paired.low, paired.high)
    adjusted = f"{level(row.level)}: " if row.interval and row.level < found.declaration.verdict.alpha else ""
    cell = drawn(paired.estimate, ends, paired.differences, row.subject, wide, row.margin, paired.reason, adjusted)
    return cell, word


def _time(seconds: float | None) -> str:
    if seconds is None:
        return NOT_MEASURED
    size, unit = next((one for one in ((1, "s"), (60, "min")) if seconds < 90 * one[0]), (3600, "h"))
    return f"{number(seconds / size)} {unit}"


def reach(found: Iterable[PairedT], *more: float | None) -> float:
    """Half the width of the drawings of a column: all their values, and `more`, lie within."""
    ends = [*more, *(value for one in found for value in (one.low, one.high, *one.differences))]
    return 1.05 * max((abs(end) for end in ends if end is not None), default=0.0) or 1.0


def drawn(
    estimate: float | None, ends: tuple[float | None, float | None], dots: Iterable[float], arm: str, reach: float,
    margin: float | None = None, reason: str | None = None, at_level: str = "",
) -> Html:  # fmt: skip
    """The drawing and its numbers, which screen readers read in its place. Without an interval it has no margin either:
    dots inside a margin would look like equivalence."""

    def at(value: float) -> str:
        return f"{50 + 50 * value / reach:.2f}%"

    low, high = ends
    parts = [h("line", x1="50%", x2="50%", y1="0", y2="100%", class_="zero")]
    seeds = [h("circle", cx=at(dot), cy="50%", r="3", class_="seed") for dot in dots]
    if low is not None and high is not None:
        if margin is not None:
            wide = f"{100 * margin / reach:.2f}%"
            parts.insert(0, h("rect", x=at(-margin), width=wide, y="0", height="100%", class_="margin"))
        parts.append(h("line", x1=at(low), x2=at(high), y1="50%", y2="50%", class_="interval"))
        seeds.append(h("circle", cx=at(estimate or 0.0), cy="50%", r="5", class_="mean"))
    parts += seeds
    numbers = f"{signed(estimate, low, high)} ({at_level}{between(low, high, reason or 'no interval')})"
    svg = h("svg", *parts, class_="interval-of", data_arm=arm, aria_hidden="true")
    return h("div", svg, h("div", numbers, class_="n"), class_="drawn")
