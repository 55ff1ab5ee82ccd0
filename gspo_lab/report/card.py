"""The answer card: the verdict in a sentence, its numbers and its interval drawn, and the badges of its grounds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gspo_lab.matching import Certificate
from gspo_lab.report.calibration import calibration_lines
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.markup import NOT_MEASURED, Html, h, number, signed
from gspo_lab.report.palette import NEUTRAL_DARK
from gspo_lab.report.rows import draw_rows
from gspo_lab.stats import TwoWay
from gspo_lab.stats.verdict import Verdict, Word

TONES: dict[Word, str] = {
    "better beyond margin": "decided",
    "practically equivalent": "decided",
    "better, size not resolved against the margin": "leaning",
    "not resolved": "open",
    "withheld": "withheld",
}
"""How a card looks by its word; the word itself always stands there too."""


def badge_text(matched: Certificate) -> str:
    """Whether the runs are matched, in one line; an accepted mismatch is always said with its reason."""
    said = matched.headline.partition(": ")[2]
    return ". ".join([said[0].upper() + said[1:], *(f"Mismatch accepted: {one.reason}" for one in matched.acceptances)])


def badges(
    matched: Certificate, progress: str, verdicts: Sequence[Verdict] = (), executions: tuple[str, bool] | None = None
) -> Html:
    """The grounds to believe the card, each a link to its section: matched, calibrated, complete and, where the study
    was carried out again, what its `executions` say, with whether one takes a word back."""
    grade = "warn" if matched.undeclared else "good" if matched.pairs and not matched.unproven else "neutral"
    shown = [_badge("certificate", badge_text(matched), grade)]
    if verdicts and (calibrated := calibration_lines(verdicts)):
        shown.append(_badge("calibration", ". ".join(calibrated), "good"))
    shown.append(
        _badge("provenance", progress, "good" if progress.startswith(("All", "The one run is")) else "neutral")
    )
    if executions is not None:
        told, taken_back = executions
        shown.append(_badge("replications", told, "warn" if taken_back else "neutral"))
    return h("p", *shown, class_="badges")


def _badge(target: str, said: str, grade: str) -> Html:
    mark = {"good": "✓", "warn": "!", "neutral": "·"}[grade]
    return h(
        "a",
        h("b", mark, aria_hidden="true"),
        h("span", said.rstrip("."), "."),
        href=f"#{target}",
        class_=f"badge {grade}",
    )


def cards(
    verdicts: Sequence[Verdict],
    planned: int,
    missing: Mapping[str, Sequence[str]],
    new_problems: Mapping[str, TwoWay],
) -> Iterator[Html]:
    """One card per comparison; their intervals share one axis, so that they can be compared by eye."""
    span = [v for one in verdicts for v in (one.paired.low, one.paired.high, *one.paired.differences) if v is not None]
    for verdict in verdicts:
        arm = verdict.labels[1]
        yield _card(verdict, planned, missing.get(arm, ()), tuple(span), new_problems.get(arm))


def _card(
    verdict: Verdict, planned: int, missing: Sequence[str], span: tuple[float, ...], wider: TwoWay | None
) -> Html:
    paired = verdict.paired
    first, second = verdict.labels
    interval = f"{NOT_MEASURED}: {paired.reason or 'too few pairs'}"
    if paired.low is not None:
        interval = f"{signed(paired.low)} to {signed(paired.high)}"
    facts = [
        (f"difference, {second} − {first}", signed(paired.estimate)),
        (f"{_level(verdict.alpha)} interval, these problems", interval),
        *([(f"the word rests on {_level(verdict.level)}", rests)] if (rests := _shared(verdict)) else []),
        ("the same, new problems too", _new_problems(wider)),
        ("margin of equivalence", f"±{verdict.margin:g}"),
        ("pairs of runs", f"{paired.n} of {planned}"),
        ("sd of a pair, by answers alone", f"{number(paired.sd, 2)}, {number(paired.items_sd, 2)}"),
        ("smallest detectable effect", _detectable(verdict)),
    ]
    notes = [*_notes(verdict), *([f"runs without a final score: {', '.join(missing)}"] if missing else [])]
    return h(
        "div",
        h("p", verdict.sentence, class_="verdict"),
        h("div", h("dl", *(h("div", h("dt", name), _fact(shown)) for name, shown in facts)), _strip(verdict, span),
          class_="numbers"),
        h("p", " ".join(note[0].upper() + note[1:] + "." for note in notes), class_="notes") if notes else None,
        class_=f"card {TONES[verdict.word]}",
    )  # fmt: skip


def _shared(verdict: Verdict) -> str | None:
    """The interval that the word rests on, where several arms or looks make it wider than the plain one."""
    if verdict.rests_on is None or not verdict.resolved or verdict.level >= verdict.alpha:
        return None
    low, high = verdict.rests_on
    return f"{signed(low)} to {signed(high)}"


def _detectable(verdict: Verdict) -> str:
    """With where it lies for any true spread that the pairs allow."""
    if verdict.detectable_range is None:
        return number(verdict.smallest_detectable, 2)
    low, high = verdict.detectable_range
    return f"{number(verdict.smallest_detectable, 2)} ({number(low, 2)} to {number(high, 2)})"


def _new_problems(found: TwoWay | None) -> str:
    """The interval over seeds and problems, which decides nothing."""
    if found is None or found.low is None:
        return f"{NOT_MEASURED}: {'too few pairs' if found is None else found.reason}"
    return f"{signed(found.low)} to {signed(found.high)}"


def _fact(shown: str) -> Html:
    return h("dd", shown, class_="missing" if shown.startswith(NOT_MEASURED) else None)


def _strip(verdict: Verdict, span: tuple[float, ...]) -> Html | None:
    """The interval over the shaded margin, with a dot per pair."""
    paired = verdict.paired
    if paired.estimate is None:
        return None
    first, second = verdict.labels
    edges = ((paired.low,), (paired.high,)) if paired.low is not None else ((), ())
    chart = Chart(
        "strip",
        f"{second} − {first}",
        "",
        "dots: pairs, shaded: the margin",
        (
            *(Series("", NEUTRAL_DARK, ("",), (d,), seed=i) for i, d in enumerate(paired.differences)),
            Series("", NEUTRAL_DARK, ("",), (paired.estimate,), low=edges[0], high=edges[1]),
        ),
        kind="forest",
        small=True,
        span=span,
        margin=verdict.margin,
    )
    return draw_rows(chart, told=True)


def _notes(verdict: Verdict) -> list[str]:
    paired = verdict.paired
    # That one seed turns the sign already stands in the sentence.
    notes = [note for note in verdict.notes if not (verdict.flips and "leaving out one seed" in note)]
    if verdict.word == "not resolved" and verdict.more_seeds:
        more = "one more seed" if verdict.more_seeds == 1 else f"{verdict.more_seeds} more seeds"
        notes.append(f"about {more} would settle it at the spread seen, which is itself uncertain")
    if paired.n:
        notes.append(f"in {verdict.sign.k} of {verdict.sign.n} pairs {verdict.labels[1]} is ahead")
    if paired.differences:
        seen = ", ".join(signed(difference) for difference in paired.differences)
        notes.append(f"every pair's difference: {seen}")
    if paired.low is None and paired.n:
        notes.append("these numbers are description; they carry no verdict")
    return notes


def numbers(verdict: Verdict, wider: TwoWay | None = None) -> str:
    """The verdict's numbers in one sentence, for a terminal or a Markdown line; `wider` holds for new problems too."""
    paired = verdict.paired
    if paired.estimate is None:
        return f"Difference: {NOT_MEASURED}."
    first, second = verdict.labels
    parts = [f"{second} − {first} = {signed(paired.estimate)}"]
    if paired.low is not None:
        parts.append(f"{_level(verdict.alpha)} interval {signed(paired.low)} to {signed(paired.high)}")
    if rests := _shared(verdict):
        parts.append(f"the word rests on {_level(verdict.level)}, {rests}")
    if wider is not None and wider.low is not None:
        parts.append(f"new problems too {_new_problems(wider)}")
    parts += [f"margin ±{verdict.margin:g}", f"{paired.n} pair{'' if paired.n == 1 else 's'}"]
    if verdict.smallest_detectable is not None:
        parts.append(f"smallest detectable effect {_detectable(verdict)}")
    return ", ".join(parts) + "."


def summary(verdict: Verdict, wider: TwoWay | None = None) -> dict[str, Any]:
    """The verdict for the .json."""
    paired = verdict.paired
    return {
        "word": verdict.word,
        "sentence": verdict.sentence,
        "about": verdict.about.strip() or None,
        "reason": verdict.reason,
        "better": verdict.better,
        "estimate": paired.estimate,
        "low": paired.low,
        "high": paired.high,
        "p": paired.p,
        "level": verdict.level,
        "rests_on": verdict.rests_on,
        "new_problems_too": None if wider is None or wider.low is None else [wider.low, wider.high],
        "sd": paired.sd,
        "sd_by_answers": paired.items_sd,
        "pairs": paired.n,
        "differences": list(paired.differences),
        "margin": verdict.margin,
        "alpha": verdict.alpha,
        "arms_judged_together": verdict.family,
        "looks": list(verdict.rule.looks) if len(verdict.rule.looks) > 1 else [],
        "smallest_detectable": verdict.smallest_detectable,
        "smallest_detectable_range": verdict.detectable_range,
        "collapsed": None if verdict.collapsed is None else [list(one) for one in verdict.collapsed],
        "leave_one_out": None if verdict.leave_one_out is None else list(verdict.leave_one_out.estimates),
        "seeds_for_margin": verdict.seeds_for_margin,
        "seeds_for_equivalence": verdict.seeds_for_equivalence,
        "notes": list(verdict.notes),
    }


def _level(alpha: float) -> str:
    return f"{100 * (1 - alpha):.3g} %"
