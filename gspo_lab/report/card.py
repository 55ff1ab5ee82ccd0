"""What a verdict rests on: the facts behind the table's rows, a sentence for a terminal, data for the .json."""

from collections.abc import Mapping, Sequence
from typing import Any

from gspo_lab.report.markup import NOT_MEASURED, Html, h, number, signed, table
from gspo_lab.stats import TwoWay
from gspo_lab.stats.verdict import Verdict


def grounds(
    verdicts: Sequence[Verdict],
    planned: int,
    missing: Mapping[str, Sequence[str]],
    new_problems: Mapping[str, TwoWay],
) -> Html:
    """What each word rests on, fact by fact, with the notes: folded below the table that has the gist."""
    facts = {one.labels[1]: _facts(one, planned, new_problems.get(one.labels[1])) for one in verdicts}
    names = list(next(iter(facts.values())))
    rows = [[name, *(facts[arm].get(name, "–") for arm in facts)] for name in names]
    told = [h("p", f"{one.sentence} {_noted(one, missing.get(one.labels[1], ()))}") for one in verdicts]
    return h("details", h("summary", "What each word rests on"), table(["", *facts], rows), *told, class_="grounds")


def _facts(verdict: Verdict, planned: int, wider: TwoWay | None) -> dict[str, str]:
    paired = verdict.paired
    interval = f"{NOT_MEASURED}: {paired.reason or 'too few pairs'}"
    if paired.low is not None:
        interval = f"{signed(paired.low)} to {signed(paired.high)}"
    return {
        f"difference to {verdict.labels[0]}": signed(paired.estimate),
        f"{_level(verdict.alpha)} interval, these problems": interval,
        "the word rests on": f"{rests} ({_level(verdict.level)})" if (rests := _shared(verdict)) else "the same",
        "the same, new problems too": _new_problems(wider),
        "margin of equivalence": f"±{verdict.margin:g}",
        "pairs of runs": f"{paired.n} of {planned}",
        "sd of a pair, by answers alone": f"{number(paired.sd, 2)}, {number(paired.items_sd, 2)}",
        "smallest detectable effect": _detectable(verdict),
    }


def _noted(verdict: Verdict, missing: Sequence[str]) -> str:
    notes = [*_notes(verdict), *([f"runs without a final score: {', '.join(missing)}"] if missing else [])]
    return " ".join(note[0].upper() + note[1:] + "." for note in notes)


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
