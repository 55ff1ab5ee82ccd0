"""What a sweep says in English: of values at which half of the runs collapse, or of laws in the answers' length."""

from gspo_lab.findings.decision import Decision
from gspo_lab.findings.dose_response import ArmResponse, DoseResponse
from gspo_lab.findings.lengths import PUBLISHED, QUANTITIES, Lengths
from gspo_lab.stats import PairedT
from gspo_lab.stats.dose import DoseLimits
from gspo_lab.words.reasons import say


def swept(decided: Decision) -> list[str]:
    """A line per arm and per ratio, or per law; where runs are not matched, that instead."""
    matched = decided.matched.on(decided.seeds)
    if not matched.ok:
        return [f"No verdict: {matched.headline}"]
    if decided.doses is not None:
        return doses(decided.doses)
    return [] if decided.lengths is None else laws(decided.lengths)


def doses(found: DoseResponse) -> list[str]:
    """One line per arm, then one per ratio, then what does not count."""
    about = "" if found.about is None else say(found.about)
    lines = [f"{one.arm}: {_half(one, found.key)}" for one in found.arms]
    lines += [f"{arm} / {found.baseline}: {_ratio(ratio, found.key)}{about}" for arm, ratio in found.ratios.items()]
    return lines + [f"Not counted, added after the first step: {', '.join(found.added)}"] * bool(found.added)


def laws(found: Lengths) -> list[str]:
    """The laws of the spread of log s, and the prediction, line by line."""
    lines = [
        f"{law.family}: {QUANTITIES[law.quantity]} ~ L^{interval(law.exponent)}"
        for law in found.laws
        if law.quantity in ("spread", "averaging")
    ]
    for one in found.predicted:
        published = f"{100 * PUBLISHED['gspo']:g} % were published"
        if one.share.low is not None and one.share.high is not None:
            inside = one.share.low <= PUBLISHED["gspo"] <= one.share.high
            published += ", inside the interval" if inside else ", outside the interval"
        share = f"predicted share clipped by GSPO at {one.length:,.0f} tokens: {interval(one.share)}"
        lines.append(f"{share}; {published}")
    return lines


def interval(of: PairedT, digits: int = 3) -> str:
    """An estimate with its interval."""
    if of.estimate is None:
        return "not measured"
    return f"{of.estimate:.{digits}g} {bounds(of, digits) or f'({of.reason})'}"


def bounds(of: PairedT, digits: int = 3) -> str:
    """The interval alone; empty where there is none."""
    return "" if of.low is None or of.high is None else f"[{of.low:.{digits}g}, {of.high:.{digits}g}]"


def _half(arm: ArmResponse, key: str) -> str:
    half = arm.half
    if half is None:
        return "no finished run that is long enough to be judged yet"
    collapsed, judged = (sum(counts) for counts in zip(*((p.collapsed, p.runs) for p in arm.points), strict=True))
    runs = f"{collapsed} of {judged} runs collapsed"
    if half.resolved and half.estimate is not None:
        return f"50 % collapse point at {key} = {half.estimate:.3g} [{half.low:.3g}, {half.high:.3g}] ({runs})"
    return f"inconclusive ({runs}): {half.reason}{_needed(half)}"


def _ratio(ratio: DoseLimits, key: str) -> str:
    if ratio.resolved and ratio.estimate is not None:
        bounds = f"[{ratio.low:.3g}, {ratio.high:.3g}]"
        includes = ratio.low is not None and ratio.high is not None and ratio.low <= 1 <= ratio.high
        word = ": the interval includes 1, so the comparison is inconclusive" if includes else ""
        return f"tolerates {ratio.estimate:.3g} times the {key} {bounds}{word}"
    return f"inconclusive: {ratio.reason}{_needed(ratio)}"


def _needed(found: DoseLimits) -> str:
    if found.needed is None:
        return ""
    below, above = found.needed.below, found.needed.above
    sides = [f"below {below:.3g}" if below is not None else "", f"above {above:.3g}" if above is not None else ""]
    return f"; values {' and '.join(side for side in sides if side)} are needed"
