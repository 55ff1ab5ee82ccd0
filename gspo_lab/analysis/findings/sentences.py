"""Verdicts in sentences, alone and several together."""

from collections.abc import Mapping, Sequence

from gspo_lab.analysis.stats.proportions import clopper_pearson
from gspo_lab.analysis.stats.verdict import EQUIVALENT, Comparison, Verdict, VerdictLabel
from gspo_lab.common.text import counted, difference, listed, percent


def sentence(verdict: Verdict, *, bounded: bool = True) -> str:
    """The verdict in words, without numbers; with `bounded` those that bound what was not seen."""
    return " ".join(statements(verdict, bounded=bounded))


def statements(verdict: Verdict, *, bounded: bool = True) -> list[str]:
    """The verdict as one sentence, then what limits it."""
    subject = verdict.subject
    baseline = verdict.baseline
    about = _about(verdict)
    if baseline is None:
        text = f"{subject} is {verdict.word}."
    elif verdict.word == "no verdict":
        text = f"No verdict on {subject} against {baseline}: {verdict.because}."
    elif verdict.direction:
        text = f"{subject} is {verdict.than_baseline(about)}."
    elif verdict.word == "inconclusive":
        why = f": {verdict.because}" if verdict.reasons else ""
        text = f"{_whether([verdict])} is inconclusive{why}."
    else:
        text = f"{subject} and {baseline} are {verdict.word}{about}."
    out = [text]
    if isinstance(verdict, Comparison):
        if bounded and verdict.word == EQUIVALENT:
            out.append(rare_event_bound(verdict))
        if verdict.flips:
            out.append("Leaving out one seed turns the sign.")
        if verdict.unproven:
            out.append(
                f"The pairs are taken on trust: {', '.join(verdict.unproven)} not recorded"
                " everywhere."
            )
    return out


def _about(verdict: Verdict) -> str:
    return f" {verdict.about.text}" if verdict.about else ""


def stated(verdict: Verdict, *, both_lose: bool = False) -> list[str]:
    """The verdict as one sentence with its numbers, then what limits it.

    `both_lose`: both sides end below their start, so that "better" is "loses less".
    """
    first, *limits = statements(verdict)
    if both_lose:
        first = f"{verdict.subject} {loses(verdict, _about(verdict))}."
    if verdict.estimate is None or verdict.paired is None or verdict.word == "no verdict":
        return [first, *limits]
    measure = ""
    if verdict.question == "stability":
        measure = (
            f"the drop of {verdict.subject} from its best, relative to the gain, is smaller by "
        )
    numbers = difference(
        verdict.estimate, verdict.interval or (None, None), verdict.level, verdict.margin
    )
    return [
        f"{first.rstrip('.')}: {measure}{numbers}, {counted(verdict.paired.n, 'seed')}.",
        *limits,
    ]


def loses(verdict: Verdict, about: str = "") -> str:
    """ "loses less than grpo, by more than the margin" of a verdict that would be "better"."""
    less = "less" if verdict.direction > 0 else "more"
    _, size = verdict.word.split(" ", maxsplit=1)  # "better, ..." or "better by ..."
    return f"loses {less} than {verdict.baseline}{about}, {size}"


def _whether(verdicts: Sequence[Verdict]) -> str:
    first = verdicts[0]
    differs = "differs in stability" if first.question == "stability" else "differs"
    subjects = listed([verdict.subject for verdict in verdicts], "or")
    return f"Whether {subjects} {differs} from {first.baseline}{_about(first)}"


def rare_event_bound(verdict: Comparison) -> str:
    """What runs without a collapse leave open: the bounds of the rate (Clopper-Pearson)."""
    both = (verdict.baseline, verdict.subject)
    known = [
        (rate, arm) for rate, arm in zip(verdict.collapsed or (), both, strict=False) if rate.n
    ]
    interval = f"{percent(1 - verdict.alpha)} interval"
    if verdict.collapsed is not None and not known:
        return "Whether runs collapse is not judged."
    if len(known) < 2 and not any(rate.k for rate, _ in known):
        none = clopper_pearson(0, verdict.paired.n, 1 - verdict.alpha)
        return (
            f"An event seen in none of an arm's {none.n} runs can still have a rate of up to"
            f" {percent(none.high)} ({interval})."
        )
    if len(known) == 2 and known[0][0] == known[1][0]:
        rate = known[0][0]
        return (
            f"{rate.k} of {rate.n} runs of each arm collapsed ({interval} of the rate: up to"
            f" {percent(rate.high)})."
        )
    counts = " and ".join(f"{rate.k} of {rate.n} runs of {arm}" for rate, arm in known)
    high = " and ".join(percent(rate.high) for rate, _ in known)
    return f"{counts} collapsed ({interval} of the rate: up to {high})."


def headline(verdicts: Sequence[Verdict], *, bounded: bool = True) -> str:
    """All verdicts of one question in one sentence."""
    first = verdicts[0]
    if len(verdicts) == 1:
        return sentence(first, bounded=bounded)
    if first.baseline is None:
        return f"{'; '.join(f'{verdict.subject} is {verdict.word}' for verdict in verdicts)}."
    words = {verdict.word for verdict in verdicts}
    if words == {"inconclusive"}:
        return f"{_whether(verdicts)} is inconclusive."
    if words == {"no verdict"}:
        subjects = listed([verdict.subject for verdict in verdicts], "or")
        return f"No verdict on {subjects} against {first.baseline}."
    return f"Against {first.baseline}{_about(first)}: {grouped(verdicts)}."


def grouped(verdicts: Sequence[Verdict]) -> str:
    """The arms of each verdict, one group after the other."""
    subjects: dict[VerdictLabel, list[str]] = {}
    for verdict in verdicts:
        subjects.setdefault(verdict.word, []).append(verdict.subject)
    groups = []
    for word, arms in subjects.items():
        if word == "no verdict":
            groups.append(f"no verdict on {listed(arms, 'or')}")
        else:
            groups.append(f"{listed(arms)} {word}")
    return "; ".join(groups)


def unstable_counts(counts: Mapping[str, tuple[int, int]]) -> str:
    """ "Unstable, of 7: grpo 3, gspo 1" of unstable and judged runs by arm; each arm's number where
    they differ.
    """
    sizes = {n for _, n in counts.values()}
    if len(sizes) == 1:
        return (
            f"Unstable, of {sizes.pop()}:"
            f" {', '.join(f'{arm} {k}' for arm, (k, _) in counts.items())}"
        )
    return f"Unstable: {', '.join(f'{arm} {k} of {n}' for arm, (k, n) in counts.items())}"
