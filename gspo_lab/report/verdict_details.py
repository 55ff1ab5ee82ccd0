"""What a verdict rests on: facts for a table, a sentence for a terminal, data for the .json."""

from collections.abc import Sequence
from typing import Any

from gspo_lab.report.calibration_badge import uneven_line
from gspo_lab.report.markup import NOT_MEASURED, between, format_number, signed
from gspo_lab.stats import Comparison, TwoWay, Verdict
from gspo_lab.stats.stability import StabilityVerdict, comparison
from gspo_lab.words import because, label, reason_text, sentence
from gspo_lab.words.text import MINUS, capital, counted, difference, level


def facts(verdict: Verdict, planned: int, wider: TwoWay | None) -> dict[str, str]:
    """Name and value of each fact, for the table below the answer."""
    compared, stability = comparison(verdict), isinstance(verdict, StabilityVerdict)
    paired = compared.paired
    what = "drop from best, relative to the gain, smaller than that of" if stability else "difference to"
    missing = f"{NOT_MEASURED}: {paired.reason or 'too few pairs'}"
    out = {
        f"{what} {verdict.baseline}": signed(paired.estimate, paired.low, paired.high),
        f"{level(compared.alpha)} interval, these problems": between(paired.low, paired.high, missing),
    }
    if adjusted := _adjusted(compared):
        out["interval of the verdict"] = adjusted
    if isinstance(verdict, StabilityVerdict):
        beside = {"the same in points of score": verdict.points, "difference of final scores": verdict.final}
        out |= {name: signed(test.estimate, test.low, test.high) for name, test in beside.items()}
        for arm, share in zip((verdict.subject, verdict.baseline), reversed(verdict.unstable), strict=True):
            out["unstable runs" if arm == verdict.subject else f"unstable runs of {arm}"] = f"{share.k} of {share.n}"
    else:
        out["interval, new problems too"] = _new_problems(wider)
    return out | {
        "margin of equivalence": f"±{compared.margin:.3g}",
        "pairs of runs": f"{paired.n} of {planned}",
        "sd of a pair": format_number(paired.sd, 2),
        "sampling sd": format_number(paired.items_sd, 2),
        "smallest detectable effect": _detectable(compared),
    }


def notes(verdict: Verdict, missing: Sequence[str]) -> str:
    """What limits a verdict and what its pairs show one by one."""
    compared = comparison(verdict)
    paired = compared.paired
    # That one seed turns the sign already stands in a score's sentence.
    out = [
        reason_text(note)
        for note in compared.notes
        if compared is not verdict or note.code != "one seed turns the sign"
    ]
    if compared.word == "not resolved" and compared.more_seeds:
        more = counted(compared.more_seeds, "more seed")
        out.append(f"about {more} would settle it at the spread seen, itself uncertain")
    if compared is verdict and (uneven := uneven_line(compared)) is not None:
        out.append(uneven)
    if paired.n:
        ahead = sum(apart > 0 for apart in paired.differences)
        out.append(f"in {ahead} of {paired.n} pairs {compared.subject} is ahead")
        out.append(f"every pair's difference: {', '.join(signed(apart) for apart in paired.differences)}")
    if paired.low is None and paired.n:
        out.append("these numbers are descriptive; they have no verdict")
    if missing:
        out.append(f"runs without a final score: {', '.join(missing)}")
    return " ".join(f"{capital(note)}." for note in out)


def numbers(verdict: Verdict, wider: TwoWay | None = None) -> str:
    """The verdict's numbers in one sentence, for a terminal or a Markdown line; `wider` holds for new problems too."""
    compared, stability = comparison(verdict), isinstance(verdict, StabilityVerdict)
    paired = compared.paired
    if paired.estimate is None:
        return f"Difference: {NOT_MEASURED}."
    name = f"{compared.subject} {MINUS} {compared.baseline}:"
    if stability:
        name = (
            f"Drop from best of {compared.subject}, relative to the gain, smaller than that of {compared.baseline} by"
        )
    parts = [f"{name} {difference(paired.estimate, (paired.low, paired.high), compared.alpha)}"]
    if adjusted := _adjusted(compared):
        parts.append(f"interval of the verdict {adjusted}")
    if wider is not None and wider.low is not None and not stability:
        parts.append(f"new problems too {_new_problems(wider)}")
    parts += [f"margin ±{compared.margin:.3g}", counted(paired.n, "pair")]
    if compared.smallest_detectable is not None:
        parts.append(f"smallest detectable effect {_detectable(compared)}")
    uneven = uneven_line(compared) if compared is verdict else None
    return ", ".join(parts) + "." + (f" {capital(uneven)}." if uneven else "")


def _adjusted(verdict: Comparison) -> str | None:
    if verdict.interval is None or verdict.word == "withheld" or verdict.level >= verdict.alpha:
        return None
    return f"{between(*verdict.interval)} ({level(verdict.level)})"


def _detectable(verdict: Comparison) -> str:
    """With where it lies for any true spread that the pairs allow."""
    if verdict.detectable_range is None:
        return format_number(verdict.smallest_detectable, 2)
    low, high = verdict.detectable_range
    return f"{format_number(verdict.smallest_detectable, 2)} ({format_number(low, 2)} to {format_number(high, 2)})"


def _new_problems(wider: TwoWay | None) -> str:
    """The interval over seeds and problems, which decides nothing."""
    if wider is None or wider.low is None:
        return f"{NOT_MEASURED}: {'too few pairs' if wider is None else wider.reason}"
    return between(wider.low, wider.high)


def head(verdict: Verdict) -> dict[str, Any]:
    """What every surface states of a verdict, for the .json."""
    names = ("question", "subject", "baseline", "word", "direction", "estimate", "level")
    return {
        **_fields(verdict, names),
        "label": label(verdict),
        "sentence": sentence(verdict),
        "about": reason_text(verdict.about).strip() if verdict.about else None,
        "rests_on": verdict.interval,
        "reason": because(verdict),
        "reasons": [reason.code for reason in verdict.reasons],
        "reading": f"{verdict.question}.difference",
    }


LIMITS = ("estimate", "low", "high")


def summary(verdict: Verdict, wider: TwoWay | None = None) -> dict[str, Any]:
    """The verdict and all of its numbers for the .json."""
    if isinstance(verdict, StabilityVerdict):
        return {
            **head(verdict),
            "fell": [list(proportion) for proportion in verdict.unstable],
            "p": verdict.p,
            "loses_less": {
                **_fields(verdict.drop.paired, LIMITS), "margin": verdict.margin, "word": verdict.drop.word
            },
            "loses_less_points": _fields(verdict.points, LIMITS),
            "final": _fields(verdict.final, LIMITS),
        }  # fmt: skip
    verdict = comparison(verdict)
    paired, uneven = verdict.paired, uneven_line(verdict)
    names = ("better", "margin", "alpha", "smallest_detectable", "seeds_for_margin", "seeds_for_equivalence")
    return {
        **head(verdict),
        **_fields(paired, (*LIMITS, "p", "sd")),
        **_fields(verdict, names),
        "new_problems_too": None if wider is None or wider.low is None else [wider.low, wider.high],
        "sd_by_answers": paired.items_sd,
        "pairs": paired.n,
        "differences": list(paired.differences),
        "arms_judged_together": verdict.family,
        "looks": list(verdict.rule.looks) if len(verdict.rule.looks) > 1 else [],
        "smallest_detectable_range": verdict.detectable_range,
        "collapsed": None if verdict.collapsed is None else [list(share) for share in verdict.collapsed],
        "leave_one_out": None if verdict.leave_one_out is None else list(verdict.leave_one_out),
        "unstable": None if verdict.unstable is None else [list(counts) for counts in verdict.unstable],
        "notes": [*map(reason_text, verdict.notes), *([uneven] if uneven else [])],
    }


def _fields(of: object, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}
