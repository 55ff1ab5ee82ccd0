"""What a verdict rests on, as data and in sentences."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Literal

from gspo_lab.analysis.findings.sentences import sentence
from gspo_lab.analysis.stats import Comparison, PairedT, TwoWay, Verdict
from gspo_lab.analysis.stats.stability import StabilityVerdict, comparison
from gspo_lab.analysis.stats.verdict import NOT_SHOWN_BEYOND, ONE_SEED_TURNS
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.common.text import MINUS, capital, counted, difference, level
from gspo_lab.report.formats import NOT_MEASURED, between, format_number, signed
from gspo_lab.report.views.calibration import uneven_line

LIMITS = ("estimate", "low", "high")
Tone = Literal["decided", "leaning", "worse", "open", "missing"]


def tone(verdict: Verdict) -> Tone:
    """How the word of a verdict looks: never favourable where it speaks against its subject."""
    if verdict.word == "not testable here":
        return "missing"
    if not verdict.resolved:
        return "open"
    if verdict.direction < 0:
        return "worse"
    return "leaning" if verdict.word in NOT_SHOWN_BEYOND else "decided"


def facts(verdict: Verdict, planned: int, wider: TwoWay | None) -> dict[str, str]:
    """Name and value of each fact, for the table below the answer."""
    compared = comparison(verdict)
    paired = compared.paired
    stability = isinstance(verdict, StabilityVerdict)
    subject = "drop from best, relative to the gain, smaller than that of" if stability else None
    missing = f"{NOT_MEASURED}: {paired.reason or 'too few pairs'}"
    interval = between(paired.low, paired.high, missing, compared.margin)
    rows = {
        f"{subject or 'difference to'} {verdict.baseline}": _signed(paired),
        f"{level(compared.alpha)} interval, these problems": interval,
    }
    if adjusted := _adjusted(compared):
        rows["interval of the verdict"] = adjusted
    if isinstance(verdict, StabilityVerdict):
        of_baseline, of_subject = verdict.unstable
        rows["the same in points of score"] = _signed(verdict.points)
        rows["difference of final scores"] = _signed(verdict.final)
        rows["unstable runs"] = f"{of_subject.k} of {of_subject.n}"
        rows[f"unstable runs of {verdict.baseline}"] = f"{of_baseline.k} of {of_baseline.n}"
    else:
        rows["interval, new problems too"] = _wider_interval(compared, wider)
    return rows | {
        "margin of equivalence": f"±{compared.margin:.3g}",
        "pairs of runs": f"{paired.n} of {planned}",
        "sd of a pair": format_number(paired.sd, 2),
        "sd by all arms": format_number(paired.pooled_sd, 2),
        "sampling sd": format_number(paired.items_sd, 2),
        "smallest detectable effect": _detectable(compared),
    }


def _signed(test: PairedT) -> str:
    return signed(test.estimate, test.low, test.high)


def _wider_interval(compared: Comparison, wider: TwoWay | None) -> str:
    """The interval that holds for other problems too, or why there is none."""
    if wider is None:
        return f"{NOT_MEASURED}: too few pairs"
    missing = f"{NOT_MEASURED}: {wider.reason}"
    return between(wider.low, wider.high, missing, compared.margin)


def notes(verdict: Verdict, missing: Sequence[str]) -> str:
    """What limits a verdict and what its pairs show one by one."""
    compared = comparison(verdict)
    paired = compared.paired
    texts = []
    for note in compared.notes:
        # That one seed turns the sign already stands in a score's sentence.
        if compared is not verdict or note.code != ONE_SEED_TURNS:
            texts.append(note.text)
    if compared.word == "inconclusive" and compared.more_seeds:
        seeds = counted(compared.more_seeds, "more seed")
        texts.append(f"about {seeds} would settle it at the spread seen, itself uncertain")
    if compared is verdict and (uneven := uneven_line(compared)) is not None:
        texts.append(uneven)
    if paired.n:
        ahead = sum(pair > 0 for pair in paired.differences)
        texts.append(f"{compared.subject} is ahead in {ahead} of {paired.n} pairs")
        differences = ", ".join(signed(pair) for pair in paired.differences)
        texts.append(f"every pair's difference: {differences}")
    if paired.low is None and paired.n:
        texts.append("these numbers are descriptive; they have no verdict")
    if missing:
        texts.append(f"runs without a final score: {', '.join(missing)}")
    return " ".join(f"{capital(text)}." for text in texts)


def numbers(verdict: Verdict, wider: TwoWay | None = None) -> str:
    """The verdict's numbers in one sentence, for a terminal or a Markdown line; `wider` holds for
    new problems too.
    """
    compared = comparison(verdict)
    paired = compared.paired
    if paired.estimate is None:
        return f"Difference: {NOT_MEASURED}."
    subject = f"{compared.subject} {MINUS} {compared.baseline}:"
    stability = isinstance(verdict, StabilityVerdict)
    if stability:
        subject = (
            f"Drop from best of {compared.subject}, relative to the gain, smaller than that of"
            f" {compared.baseline} by"
        )
    ends = (paired.low, paired.high)
    estimate = difference(paired.estimate, ends, compared.alpha, compared.margin)
    texts = [f"{subject} {estimate}"]
    if adjusted := _adjusted(compared):
        texts.append(f"interval of the verdict {adjusted}")
    if wider is not None and wider.low is not None and not stability:
        interval = between(wider.low, wider.high, None, compared.margin)
        texts.append(f"new problems too {interval}")
    texts += [f"margin ±{compared.margin:.3g}", counted(paired.n, "pair")]
    if compared.smallest_detectable is not None:
        detectable = _detectable(compared)
        texts.append(f"a true difference of {detectable} would be found in 80 of 100 such studies")
    line = f"{', '.join(texts)}."
    uneven = uneven_line(compared) if compared is verdict else None
    return line if uneven is None else f"{line} {capital(uneven)}."


def _adjusted(verdict: Comparison) -> str | None:
    """The wider interval of a verdict that shares its error rate with others."""
    if verdict.interval is None or verdict.word == "no verdict" or verdict.level >= verdict.alpha:
        return None
    return f"{between(*verdict.interval, None, verdict.margin)} ({level(verdict.level)})"


def _detectable(verdict: Comparison) -> str:
    """The smallest detectable effect, and where it lies for any true spread that the pairs
    allow."""
    smallest = format_number(verdict.smallest_detectable, 2)
    if verdict.detectable_range is None:
        return smallest
    low, high = verdict.detectable_range
    return f"{smallest} ({format_number(low, 2)} to {format_number(high, 2)})"


def head(verdict: Verdict) -> JsonObject:
    """What every surface states of a verdict, for the .json."""
    names = ("question", "subject", "baseline", "word", "direction", "estimate", "level")
    return {
        **_fields(verdict, names),
        "label": verdict.label,
        "sentence": sentence(verdict),
        "about": verdict.about and verdict.about.text,
        "rests_on": verdict.interval,
        "reason": verdict.because or None,
        "reasons": [asdict(reason) for reason in verdict.reasons],
        "reading": f"{verdict.question}.difference",
    }


def summary(verdict: Verdict, wider: TwoWay | None = None) -> JsonObject:
    """The verdict and all of its numbers for the .json."""
    if isinstance(verdict, StabilityVerdict):
        drop = _fields(verdict.drop.paired, LIMITS)
        return head(verdict) | {
            "unstable": verdict.unstable,
            "p": verdict.p,
            "loses_less": drop | {"margin": verdict.margin, "word": verdict.drop.word},
            "loses_less_points": _fields(verdict.points, LIMITS),
            "final": _fields(verdict.final, LIMITS),
        }
    verdict = comparison(verdict)
    paired = verdict.paired
    uneven = uneven_line(verdict)
    names = (
        "better",
        "margin",
        "alpha",
        "smallest_detectable",
        "seeds_for_margin",
        "seeds_for_equivalence",
        "collapsed",
        "leave_one_out",
        "unstable",
    )
    wide = None if wider is None or wider.low is None else (wider.low, wider.high)
    return {
        **head(verdict),
        **_fields(paired, (*LIMITS, "p", "sd")),
        **_fields(verdict, names),
        "new_problems_too": wide,
        "sd_by_all_arms": paired.pooled_sd,
        "sd_by_answers": paired.items_sd,
        "pairs": paired.n,
        "differences": paired.differences,
        "arms_judged_together": verdict.family,
        "looks": verdict.rule.looks if len(verdict.rule.looks) > 1 else (),
        "smallest_detectable_range": verdict.detectable_range,
        "notes": [*(note.text for note in verdict.notes), *filter(None, [uneven])],
    }


def _fields(record: object, names: Sequence[str]) -> JsonObject:
    return {name: getattr(record, name) for name in names}
