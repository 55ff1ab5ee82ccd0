"""The table that decides: a row per arm, its interval drawn over the margin, and any arm as the
baseline by a click.

Plain HTML, CSS and a drawing of percentages per row: it stands without a script, on paper and in a
mail.
"""

from collections.abc import Iterable, Sequence

from gspo_lab.analysis.findings.answer import StudyAnswer
from gspo_lab.analysis.findings.clip_fractions import NO_CLIP, clips, rule_arms
from gspo_lab.analysis.findings.decision import against as against_of
from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.run_outcomes import NOT_JUDGED, RunOutcome, outcomes
from gspo_lab.analysis.findings.stability import stability_verdicts
from gspo_lab.analysis.readings import Source, average, summarise
from gspo_lab.analysis.readings.reading import CLIP, DEVICE_SECONDS, PEAK_MEMORY
from gspo_lab.analysis.stats import PairedT, Verdict
from gspo_lab.common.text import level
from gspo_lab.report.markup import (
    NONE,
    NOT_MEASURED,
    Html,
    between,
    format_number,
    h,
    join,
    markdown_table,
    percent,
    plain,
    signed,
    slug,
    unbroken,
)
from gspo_lab.report.section import Both
from gspo_lab.report.words import tone
from gspo_lab.study.contrast import formula, sides

HEAD = (
    "arm",
    "score",
    "difference (dots: seeds; shaded: margin)",
    "unstable",
    "clipped",
    "time, memory",
    "verdict",
)
SHADED = "Shaded: the margin"
Cells = tuple[Html | str, ...]
"""A row of the table, a cell for each column of `HEAD`."""


def arms_table(study: Source, answer: StudyAnswer) -> Both | None:
    """One table per baseline, the declared one shown first, and that as Markdown; None where no
    score decides. What is withheld is red only where the answer is."""
    if not decision(study).verdicts:
        return None
    declared = study.declaration.baseline
    order = [declared, *(arm for arm in study.arms if arm != declared)]
    key = f"against-{slug(study.label)}"
    tables = [
        _rows(study if arm == declared else against_of(study, arm), study, answer) for arm in order
    ]
    parts: list[Html] = []
    for baseline, (caption, rows) in zip(order, tables, strict=True):
        checked = baseline == declared
        parts.append(
            h(
                "label",
                h("input", type="radio", name=key, value=baseline, checked=checked),
                baseline,
            )
        )
        parts.append(_table(caption, rows))
    caption, rows = tables[0]
    head = (*HEAD[:2], "difference", *HEAD[3:])  # Markdown has no drawing
    markdown = f"{markdown_table(head, rows)}\n\n{plain(caption.replace(SHADED, 'The margin is'))}"
    return Both(h("fieldset", h("legend", "Baseline"), *parts, class_="arms"), markdown)


def _rows(rebased: Source, study: Source, answer: StudyAnswer) -> tuple[str, list[Cells]]:
    """Caption and rows of the table whose baseline is that of `rebased`."""
    usual = rebased.declaration.baseline
    rule = rebased.declaration.verdict
    declared = rebased is study
    rows = _of_arms(rebased)
    contrast = decision(rebased).contrast if declared else None
    if declared and (pair := rule_arms(rebased)) is not None and usual not in pair:
        rows += [row for row in _of_arms(against_of(study, pair[0])) if row.subject == pair[1]]
    margin = rows[0].margin or rule.margin
    rows += [contrast] if contrast is not None else []
    judged = {row.paired: row.interval or () for row in rows if row.paired is not None}
    wide = axis_half_width(judged, margin, *(end for ends in judged.values() for end in ends))
    what = f"Difference of final scores to {usual}"
    if rule.question == "stability":
        what = (
            f"By how much the drop from best, relative to the gain, is smaller than that of {usual}"
        )
    shared = f"; several arms share the {100 * rule.alpha:g} % error" if len(rows) > 1 else ""
    caption = (
        f"{what}. {SHADED} ±{margin:.3g}. Intervals are {level(rule.alpha)} unless another level"
        f" stands beside them{shared}. Numbers of an arm: {decision(study).runs.label()}."
    )
    if not declared:
        caption += " This baseline was not declared: its verdicts are descriptive."
    if contrast is not None:
        first, second = map(formula, sides(rule.contrast or {}))
        caption += (
            " The last row is the declared contrast, which answers the question; the arms'"
            f" verdicts are secondary. It compares {second} with {first}."
        )
    lines = [_row(study, usual, "", h("span", "baseline", class_="soft"), "")]
    for row in rows:
        second = "" if row.baseline in (None, usual) and row is not contrast else str(row.baseline)
        lines.append(_row(study, row.subject, second, *_judged(study, row, answer, wide)))
    return caption, lines


def _table(caption: str, rows: Iterable[Cells]) -> Html:
    looks: dict[str, dict[str, str]] = {HEAD[2]: {"class_": "drawn-cell"}, HEAD[-1]: {}}
    lines = []
    for name, *cells in rows:
        columns = zip(HEAD[1:], cells, strict=True)
        data = (
            h("td", cell, **looks.get(head, {"class_": "n", "data_head": head}))
            for head, cell in columns
        )
        lines.append(h("tr", h("th", name, scope="row"), *data))
    head = h("thead", h("tr", *(h("th", name, scope="col") for name in HEAD)))
    shown = h("table", head, h("tbody", *lines), class_="forest", aria_label=caption)
    return h("div", h("p", unbroken(caption), class_="caption"), shown, class_="variant table")


def _of_arms(study: Source) -> list[Verdict]:
    """The verdict on every arm: on its stability where that is the question, else on its final
    score.
    """
    stability = study.declaration.verdict.question == "stability"
    return list((stability_verdicts(study) if stability else decision(study).verdicts).values())


def _row(study: Source, subject: str, against: str, difference: Html, word: Html | str) -> Cells:
    """The row of an arm, or of a contrast, which has no numbers of its own."""
    cells = (NONE,) * 4
    name = unbroken(subject)
    if subject in study.arms:
        seeds = decision(study).runs
        runs = [
            run
            for run in outcomes(study, study.declaration.primary)
            if run.arm == subject and seeds.has(run)
        ]
        seconds = summarise(study, DEVICE_SECONDS, subject, seeds).mean
        memory = summarise(study, PEAK_MEMORY, subject, seeds).largest
        share = summarise(study, CLIP, subject, seeds).mean
        size = NOT_MEASURED if memory is None else f"{format_number(memory / 2**30)} GiB"
        time = NOT_MEASURED
        if seconds is not None:
            scale, unit = (
                (1, "s") if seconds < 90 else (60, "min") if seconds < 5400 else (3600, "h")
            )
            time = f"{format_number(seconds / scale)} {unit}"
        spent = (
            f"{time}, {'memory ' * (memory is None)}{size}" if seconds or memory else NOT_MEASURED
        )
        clipped = percent(share, 2) if clips(study.declaration, subject) else NO_CLIP
        cells = (
            format_number(average(run.final for run in runs)),
            count_unstable(runs),
            clipped,
            spent,
        )
        name = join([h("i", class_="swatch", data_arm=subject), name])
    title = join([name, h("span", f" against {against}", class_="soft") if against else ""])
    return title, cells[0], difference, *cells[1:], word


def count_unstable(runs: Sequence[RunOutcome]) -> str:
    """How many runs were unstable, of those that could be judged."""
    judged = [run.unstable for run in runs if run.stability_judged]
    return f"{sum(judged)} of {len(judged)}" if judged else NOT_JUDGED


def _judged(study: Source, row: Verdict, answer: StudyAnswer, wide: float) -> tuple[Html, Html]:
    """The cells of the difference and of the verdict, which stands in its subject's row."""
    text: str = row.word
    look = str(tone(row))
    if answer.word == "all collapsed":
        text = "collapsed"
    elif row.word == "no verdict":
        text = "not yet" if answer.word == "running" else text
        look = "against" if answer.colour == "red" else look
    word = h("strong", text, class_=f"word {look}")
    paired = row.paired
    if paired is None or row.margin is None or paired.estimate is None:
        return h("span", NOT_MEASURED, class_="missing"), word
    ends = row.interval or (paired.low, paired.high)
    adjusted = (
        f"{level(row.level)}: "
        if row.interval and row.level < study.declaration.verdict.alpha
        else ""
    )
    cell = drawn(
        paired.estimate,
        ends,
        paired.differences,
        row.subject,
        wide,
        row.margin,
        paired.reason,
        adjusted,
    )
    return cell, word


def axis_half_width(tests: Iterable[PairedT], *more: float | None) -> float:
    """Half the width of the drawings of a column: all their values, and `more`, lie within."""
    ends = [*more, *(value for test in tests for value in (test.low, test.high, *test.differences))]
    return 1.05 * max((abs(end) for end in ends if end is not None), default=0.0) or 1.0


def drawn(
    estimate: float | None,
    ends: tuple[float | None, float | None],
    dots: Iterable[float],
    arm: str,
    reach: float,
    margin: float | None = None,
    reason: str | None = None,
    at_level: str = "",
) -> Html:
    """The drawing and its numbers, which screen readers read in its place. Without an interval it
    has no margin either: dots inside a margin would look like equivalence."""

    def at(value: float) -> str:
        return f"{50 + 50 * value / reach:.2f}%"

    low, high = ends
    parts = [h("line", x1="50%", x2="50%", y1="0", y2="100%", class_="zero")]
    seeds = [h("circle", cx=at(dot), cy="50%", r="3", class_="seed") for dot in dots]
    if low is not None and high is not None:
        if margin is not None:
            wide = f"{100 * margin / reach:.2f}%"
            parts.insert(
                0, h("rect", x=at(-margin), width=wide, y="0", height="100%", class_="margin")
            )
        parts.append(h("line", x1=at(low), x2=at(high), y1="50%", y2="50%", class_="interval"))
        seeds.append(h("circle", cx=at(estimate or 0.0), cy="50%", r="5", class_="mean"))
    parts += seeds
    numbers = (
        f"{signed(estimate, low, high)}"
        f" ({at_level}{between(low, high, reason or 'no interval', margin)})"
    )
    svg = h("svg", *parts, class_="interval-of", data_arm=arm, aria_hidden="true")
    return h("div", svg, h("div", numbers, class_="n"), class_="drawn")
