"""Verdicts in English sentences: one, and all verdicts of a question in one."""

from collections.abc import Sequence
from typing import Any

from gspo_lab.claims import Estimate, Result
from gspo_lab.stats.proportions import clopper_pearson
from gspo_lab.stats.verdict import Comparison, Verdict, VerdictLabel
from gspo_lab.words.reasons import ALIKE, APART, better, reason_text, short
from gspo_lab.words.text import counted, difference, listed, percent


def because(verdict: Verdict) -> str | None:
    """Why there is no verdict; None where nothing stands against one."""
    return "; ".join(map(reason_text, verdict.reasons)) or None


def sentence(verdict: Verdict, *, bounded: bool = True) -> str:
    """The verdict in words, without numbers; with `bounded` those that bound what was not seen."""
    return " ".join(statements(verdict, bounded=bounded))


def statements(verdict: Verdict, *, bounded: bool = True) -> list[str]:
    """The verdict as one sentence, then what limits it."""
    first, second = verdict.subject, verdict.baseline
    about = reason_text(verdict.about) if verdict.about else ""
    if second is None:
        text = f"{first} is {short(verdict)}."
    elif verdict.word == "withheld":
        text = f"No verdict on {first} against {second}: {because(verdict)}."
    elif verdict.word in APART:
        text = f"{first} is {APART[verdict.word].format(better=better(verdict), second=second, about=about)}."
    elif verdict.word in ALIKE:
        text = f"{first} and {second} are {ALIKE[verdict.word]}{about}."
    else:
        why = f": {because(verdict)}" if verdict.reasons else ""
        text = f"{_whether([verdict])} is inconclusive{why}."
    out = [text]
    if isinstance(verdict, Comparison):
        if bounded and verdict.word == "practically equivalent":
            out.append(rare_event_bound(verdict))
        if verdict.flips:
            out.append("Leaving out one seed turns the sign.")
        if verdict.unproven:
            out.append(f"The pairs are taken on trust: {', '.join(verdict.unproven)} not recorded everywhere.")
    return out


def stated(verdict: Verdict) -> list[str]:
    """The verdict as one sentence with its numbers, then what limits it."""
    first, *further = statements(verdict)
    if verdict.estimate is None or verdict.paired is None or verdict.word == "withheld":
        return [first, *further]
    drop = f"the drop of {verdict.subject} from its best, relative to the gain, is smaller by "
    measure = drop if verdict.question == "stability" else ""
    numbers = difference(verdict.estimate, verdict.interval or (None, None), verdict.level)
    return [f"{first.rstrip('.')}: {measure}{numbers}, {counted(verdict.paired.n, 'seed')}.", *further]


def _whether(verdicts: Sequence[Verdict]) -> str:
    first = verdicts[0]
    about = reason_text(first.about) if first.about else ""
    differs = "differs in stability" if first.question == "stability" else "differs"
    return f"Whether {listed([verdict.subject for verdict in verdicts], 'or')} {differs} from {first.baseline}{about}"


def rare_event_bound(verdict: Comparison) -> str:
    """What runs without a collapse leave open: the bounds of the rate (Clopper-Pearson)."""
    both = (verdict.baseline, verdict.subject)
    known = [(rate, arm) for rate, arm in zip(verdict.collapsed or (), both, strict=False) if rate.n]
    interval = f"{percent(1 - verdict.alpha)} interval"
    if verdict.collapsed is not None and not known:
        return "Whether runs collapse is not judged."
    if len(known) < 2 and not any(rate.k for rate, _ in known):
        none = clopper_pearson(0, verdict.paired.n, 1 - verdict.alpha)
        return (
            f"An event seen in none of an arm's {none.n} runs can still have a rate of up to {percent(none.high)} "
            f"({interval})."
        )
    if len(known) == 2 and known[0][0] == known[1][0]:
        rate = known[0][0]
        return f"{rate.k} of {rate.n} runs of each arm collapsed ({interval} of the rate: up to {percent(rate.high)})."
    counts = " and ".join(f"{rate.k} of {rate.n} runs of {arm}" for rate, arm in known)
    high = " and ".join(percent(rate.high) for rate, _ in known)
    return f"{counts} collapsed ({interval} of the rate: up to {high})."


def headline(verdicts: Sequence[Verdict], *, bounded: bool = True) -> str:
    """All verdicts of one question in one sentence."""
    if len(verdicts) == 1:
        return sentence(verdicts[0], bounded=bounded)
    first = verdicts[0]
    if first.baseline is None:
        return f"{'; '.join(f'{verdict.subject} is {short(verdict)}' for verdict in verdicts)}."
    words = {verdict.word for verdict in verdicts}
    if words == {"not resolved"}:
        return f"{_whether(verdicts)} is inconclusive."
    if words == {"withheld"}:
        return f"No verdict on {listed([verdict.subject for verdict in verdicts], 'or')} against {first.baseline}."
    about = reason_text(first.about) if first.about else ""
    return f"Against {first.baseline}{about}: {grouped(verdicts)}."


def grouped(verdicts: Sequence[Verdict]) -> str:
    """The arms of each verdict, one group after the other."""
    groups: dict[tuple[VerdictLabel, int], list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault((verdict.word, verdict.direction), []).append(verdict)
    return "; ".join(map(_group, groups.values()))


def _group(verdicts: Sequence[Verdict]) -> str:
    subjects = [verdict.subject for verdict in verdicts]
    if verdicts[0].word == "withheld":
        return f"no verdict on {listed(subjects, 'or')}"
    return f"{listed(subjects)} {short(verdicts[0])}"


SHOWN = ("name", "criterion", "n", "estimate", "low", "high", "p", "side", "word", "detectable")
"""The fields of an estimate that plain data hold."""


def claim_to_json(result: Result) -> dict[str, Any]:
    """For a report's .json and for scripts."""
    return {
        **result.claim.as_data(),
        "word": result.word,
        "reason": because(result.verdict) or "",
        "codes": [reason.code for reason in result.reasons],
        "declared": result.declared,
        "arms": dict(result.roles),
        "unstable_runs": {arm: {"runs": k, "of": n} for arm, (k, n) in result.unstable.items()},
        "p": result.p,
        "p_adjusted": result.p_adjusted,
        "parts": [_number(part) for part in result.parts],
        "also": [_number(part) for part in result.supplementary],
    }


def _number(part: Estimate) -> dict[str, Any]:
    note = None if part.reason is None else reason_text(part.reason)
    return {**{name: getattr(part, name) for name in SHOWN}, "note": note}
