"""What a verdict rests on: the facts behind the table's rows, a sentence for a terminal, data for the .json."""

from collections.abc import Mapping, Sequence
from typing import Any

from gspo_lab.report.calibration import uneven_line
from gspo_lab.report.markup import NOT_MEASURED, Html, h, number, signed, table
from gspo_lab.stats import Comparison, PairedT, TwoWay, Verdict
from gspo_lab.stats.binary import Proportion
from gspo_lab.stats.stability import StabilityVerdict, comparison
from gspo_lab.words import because, label, say, sentence
from gspo_lab.words.text import capital, level


def grounds(
    verdicts: Sequence[Verdict],
    planned: int,
    missing: Mapping[str, Sequence[str]],
    new_problems: Mapping[str, TwoWay],
) -> Html:
    """What each verdict rests on, fact by fact, with the notes: folded below the table that has the gist."""
    facts = {one.subject: _facts(one, planned, new_problems.get(one.subject)) for one in verdicts}
    names = list(next(iter(facts.values())))
    rows = [[name, *(facts[arm].get(name, "–") for arm in facts)] for name in names]
    told = [h("p", f"{sentence(one)} {_noted(one, missing.get(one.subject, ()))}") for one in verdicts]
    return h("details", h("summary", "What each verdict rests on"), table(["", *facts], rows), *told, class_="grounds")


def _facts(verdict: Verdict, planned: int, wider: TwoWay | None) -> dict[str, str]:
    one = comparison(verdict)
    paired = one.paired
    interval = f"{NOT_MEASURED}: {paired.reason or 'too few pairs'}"
    if paired.low is not None:
        interval = f"{signed(paired.low)} to {signed(paired.high)}"
    stability = isinstance(verdict, StabilityVerdict)
    what = "drop from best, relative to the gain, smaller than that of" if stability else "difference to"
    facts = {
        f"{what} {verdict.baseline}": signed(paired.estimate),
        f"{level(one.alpha)} interval, these problems": interval,
        "interval of the verdict": f"{adjusted} ({level(one.level)})" if (adjusted := _adjusted(one)) else "the same",
    }
    if isinstance(verdict, StabilityVerdict):
        facts["the same in points of score"] = signed(verdict.points.estimate)
        facts["difference of final scores"] = signed(verdict.final.estimate)
        facts["unstable runs"] = _of(verdict.unstable[1])
        facts[f"unstable runs of {verdict.baseline}"] = _of(verdict.unstable[0])
    else:
        facts["interval, new problems too"] = _new_problems(wider)
    return facts | {
        "margin of equivalence": f"±{one.margin:.3g}",
        "pairs of runs": f"{paired.n} of {planned}",
        "sd of a pair, sampling sd": f"{number(paired.sd, 2)}, {number(paired.items_sd, 2)}",
        "smallest detectable effect": _detectable(one),
    }


def _of(share: Proportion) -> str:
    return f"{share.k} of {share.n}"


def _noted(verdict: Verdict, missing: Sequence[str]) -> str:
    notes = [*_notes(verdict), *([f"runs without a final score: {', '.join(missing)}"] if missing else [])]
    return " ".join(f"{capital(note)}." for note in notes)


def _adjusted(verdict: Comparison) -> str | None:
    """The interval of the verdict, where several arms or looks make it wider than the plain one."""
    if verdict.interval is None or verdict.word == "withheld" or verdict.level >= verdict.alpha:
        return None
    low, high = verdict.interval
    return f"{signed(low)} to {signed(high)}"


def _detectable(verdict: Comparison) -> str:
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
    one = comparison(verdict)
    paired = one.paired
    # That one seed turns the sign already stands in a score's sentence.
    notes = [say(note) for note in one.notes if one is not verdict or note.code != "one seed turns the sign"]
    if one.word == "not resolved" and one.more_seeds:
        more = "one more seed" if one.more_seeds == 1 else f"{one.more_seeds} more seeds"
        notes.append(f"about {more} would settle it at the spread seen, which is itself uncertain")
    if one is verdict and (uneven := uneven_line(one)) is not None:
        notes.append(uneven)
    if paired.n:
        notes.append(f"in {one.sign.k} of {one.sign.n} pairs {one.subject} is ahead")
    if paired.differences:
        seen = ", ".join(signed(difference) for difference in paired.differences)
        notes.append(f"every pair's difference: {seen}")
    if paired.low is None and paired.n:
        notes.append("these numbers are descriptive; they have no verdict")
    return notes


def numbers(verdict: Verdict, wider: TwoWay | None = None) -> str:
    """The verdict's numbers in one sentence, for a terminal or a Markdown line; `wider` holds for new problems too."""
    one = comparison(verdict)
    paired = one.paired
    if paired.estimate is None:
        return f"Difference: {NOT_MEASURED}."
    stability = isinstance(verdict, StabilityVerdict)
    what = f"drop from best, relative to the gain, of {one.subject} smaller than that of {one.baseline} by "
    parts = [
        what + signed(paired.estimate) if stability else f"{one.subject} − {one.baseline} = {signed(paired.estimate)}"
    ]
    if paired.low is not None:
        parts.append(f"{level(one.alpha)} interval {signed(paired.low)} to {signed(paired.high)}")
    if adjusted := _adjusted(one):
        parts.append(f"interval of the verdict {adjusted} ({level(one.level)})")
    if wider is not None and wider.low is not None and not stability:
        parts.append(f"new problems too {_new_problems(wider)}")
    parts += [f"margin ±{one.margin:.3g}", f"{paired.n} pair{'' if paired.n == 1 else 's'}"]
    if one.smallest_detectable is not None:
        parts.append(f"smallest detectable effect {_detectable(one)}")
    uneven = uneven_line(one) if one is verdict else None
    told = ", ".join(parts) + "." + (f" {capital(uneven)}." if uneven else "")
    return capital(told) if stability else told


def head(verdict: Verdict) -> dict[str, Any]:
    """What every surface states of a verdict, for the .json."""
    return {
        "question": verdict.question,
        "subject": verdict.subject,
        "baseline": verdict.baseline,
        "word": verdict.word,
        "direction": verdict.direction,
        "label": label(verdict),
        "sentence": sentence(verdict),
        "about": say(verdict.about).strip() if verdict.about else None,
        "estimate": verdict.estimate,
        "rests_on": verdict.interval,
        "level": verdict.level,
        "reason": because(verdict),
        "reasons": [reason.code for reason in verdict.reasons],
    }


def summary(verdict: Verdict, wider: TwoWay | None = None) -> dict[str, Any]:
    """The verdict and all of its numbers for the .json."""
    if isinstance(verdict, StabilityVerdict):
        return {
            **head(verdict),
            "fell": [list(proportion) for proportion in verdict.unstable],
            "p": verdict.p,
            "loses_less": {**_limits(verdict.lost.paired), "margin": verdict.margin, "word": verdict.lost.word},
            "loses_less_points": _limits(verdict.points),
            "final": _limits(verdict.final),
        }
    verdict = comparison(verdict)
    paired = verdict.paired
    return {
        **head(verdict),
        "better": verdict.better,
        "low": paired.low,
        "high": paired.high,
        "p": paired.p,
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
        "unstable": None if verdict.unstable is None else [list(counts) for counts in verdict.unstable],
        "notes": [*map(say, verdict.notes), *([uneven] if (uneven := uneven_line(verdict)) else [])],
    }


def _limits(paired: PairedT) -> dict[str, Any]:
    return {"estimate": paired.estimate, "low": paired.low, "high": paired.high}
