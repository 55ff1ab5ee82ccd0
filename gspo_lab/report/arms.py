"""The table that decides: a row per arm, its interval drawn over the margin, and any arm as the baseline by a click.

Plain HTML, CSS and a drawing of percentages per row: it stands without a script, on paper and in a mail.
"""

from collections.abc import Sequence

from gspo_lab.findings.answer import Answer
from gspo_lab.findings.clipped import NO_CLIP, clips, rule_arms
from gspo_lab.findings.decision import against as against_of
from gspo_lab.findings.decision import decision
from gspo_lab.findings.outcomes import NOT_JUDGED, RunOutcome, outcomes
from gspo_lab.findings.stability import steadiness
from gspo_lab.readings import Source, average, summarise
from gspo_lab.readings.named import CLIP, DEVICE_SECONDS, PEAK_MEMORY
from gspo_lab.report.interval import drawn, reach
from gspo_lab.report.markup import NONE, NOT_MEASURED, Html, h, join, number, percent, slug, unbroken
from gspo_lab.stats import Verdict
from gspo_lab.words import short, tone
from gspo_lab.words.text import level

HEAD = ("arm", "score", "difference (dots: seeds; shaded: margin)", "unstable", "clipped", "time, memory", "verdict")


def arms_table(found: Source, answer: Answer) -> Html | None:
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


def _table(own: Source, found: Source, answer: Answer, *, declared: bool) -> Html:
    rows, contrast = _of_arms(own), decision(own).contrast if declared else None
    if declared and (pair := rule_arms(own)) is not None and own.declaration.baseline not in pair:
        rows += [row for row in _of_arms(against_of(found, pair[0])) if row.subject == pair[1]]
    margin = rows[0].margin or own.declaration.verdict.margin
    judged = [row for row in (*rows, contrast) if row is not None and row.paired is not None]
    wide = reach(
        [row.paired for row in judged if row.paired], margin, *(end for row in judged for end in row.interval or ())
    )
    stability = own.declaration.verdict.question == "stability"
    what = "Drop from best, relative to the gain: smaller by, than" if stability else "Difference of final scores to"
    told = "" if declared else " This baseline was not declared: its verdicts are descriptive."
    of = f"that of {own.declaration.baseline}" if stability else own.declaration.baseline
    of_what = f"Numbers of an arm: {decision(found).runs.label()}."
    rest = f"Intervals: {level(own.declaration.verdict.alpha)}, where several arms share alpha as stated."
    caption = f"{what} {of}. Shaded: the margin ±{margin:.3g}. {rest} {of_what}{told}"
    head = h("thead", h("tr", *(h("th", name, scope="col") for name in HEAD)))
    base = _line(found, own.declaration.baseline, "", [h("span", "baseline", class_="soft"), ""])
    usual = own.declaration.baseline
    lines = [
        _line(
            found,
            row.subject,
            "" if row.baseline in (None, usual) else str(row.baseline),
            _judged(found, row, answer, wide),
        )
        for row in rows
    ]
    if contrast is not None:
        caption += (
            " The last row is the declared contrast, which answers the question; the arms' verdicts are secondary."
        )
        lines.append(_line(found, contrast.subject, str(contrast.baseline), _judged(found, contrast, answer, wide)))
    shown = h("table", head, h("tbody", base, *lines), class_="forest", aria_label=caption)
    return h("div", h("p", unbroken(caption), class_="caption"), shown, class_="variant table")


def _of_arms(found: Source) -> list[Verdict]:
    """The verdict on every arm: on its stability where that is the question, else on its final score."""
    stability = found.declaration.verdict.question == "stability"
    return list((steadiness(found) if stability else decision(found).verdicts).values())


def _line(found: Source, subject: str, against: str, judged: Sequence[Html | str]) -> Html:
    """The row of an arm, or of a contrast, which has no numbers of its own."""
    difference, word = judged
    beside = h("span", f" against {against}", class_="soft") if against else ""
    cells = dict.fromkeys(("score", "unstable", "clipped", "spent"), NONE)
    name = unbroken(subject)
    if subject in found.arms:
        seeds = decision(found).runs
        runs = [run for run in outcomes(found, found.declaration.primary) if run.arm == subject and seeds.has(run)]
        seconds = summarise(found, DEVICE_SECONDS, subject, seeds).mean
        memory = summarise(found, PEAK_MEMORY, subject, seeds).largest
        share = summarise(found, CLIP, subject, seeds).mean
        cells = {
            "score": number(average(run.final for run in runs)),
            "unstable": fell(runs),
            "clipped": percent(share, 2) if clips(found.declaration, subject) else NO_CLIP,
            "spent": f"{_time(seconds)}, {_memory(memory)}" if seconds or memory else NOT_MEASURED,
        }
        name = join([h("i", class_="swatch", data_arm=subject), name])
    score, *rest = (h("td", value, class_="n", data_head=head) for head, value in cells.items())
    return h(
        "tr", h("th", name, beside, scope="row"), score, h("td", difference, class_="drawn-cell"), *rest, h("td", word)
    )


def fell(runs: Sequence[RunOutcome]) -> str:
    """How many runs were unstable, of those that could be judged."""
    judged = [one.fell for one in runs if one.fall_judged]
    return f"{sum(judged)} of {len(judged)}" if judged else NOT_JUDGED


def _judged(found: Source, row: Verdict, answer: Answer, wide: float) -> list[Html | str]:
    """The cells of the difference and of the verdict, which stands in its subject's row."""
    text = short(row)
    look: str = tone(row)
    if answer.word == "all collapsed":
        text = "collapsed"
    elif row.word == "withheld":
        text = "not yet" if answer.word == "running" else text
        look = "against" if answer.colour == "red" else look
    word = h("strong", text, class_=f"word {look}")
    if row.paired is None or row.margin is None or row.paired.estimate is None:
        return [h("span", NOT_MEASURED, class_="missing"), word]
    ends = row.interval or (row.paired.low, row.paired.high)
    adjusted = f"{level(row.level)}: " if row.interval and row.level < found.declaration.verdict.alpha else ""
    dots, reason = row.paired.differences, row.paired.reason
    return [drawn(row.paired.estimate, ends, dots, row.subject, wide, row.margin, reason, adjusted), word]


def _time(seconds: float | None) -> str:
    if seconds is None:
        return NOT_MEASURED
    size, unit = next((one for one in ((1, "s"), (60, "min")) if seconds < 90 * one[0]), (3600, "h"))
    return f"{number(seconds / size)} {unit}"


def _memory(size: float | None) -> str:
    return f"memory {NOT_MEASURED}" if size is None else f"{number(size / 2**30)} GiB"
