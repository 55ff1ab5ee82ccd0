"""What a sweep found, in sentences."""

from gspo_lab.analysis.findings.decision import Decision
from gspo_lab.analysis.findings.sentences import sentence
from gspo_lab.analysis.findings.sweeps import (
    QUANTITIES,
    ArmResponse,
    DoseResponse,
    Lengths,
)
from gspo_lab.analysis.stats import PairedT
from gspo_lab.analysis.stats.ed50 import DoseLimits
from gspo_lab.common.text import level


def decided_sentences(decided: Decision) -> list[str]:
    """A sentence per verdict; without verdicts why there are none, or what a sweep found."""
    if decided.verdicts:
        return [sentence(verdict) for verdict in decided.verdicts.values()]
    if decided.reason:
        return [decided.reason.sentence]
    return [f"{line}." for line in swept(decided)]


def swept(decided: Decision) -> list[str]:
    """A line per arm and per ratio, or per law; of runs that are not matched one that says so."""
    matched = decided.matched.on(decided.seeds)
    if not matched.ok:
        return [f"No verdict: {matched.headline}"]
    if decided.doses is not None:
        return doses(decided.doses)
    return [] if decided.lengths is None else laws(decided.lengths)


def doses(response: DoseResponse) -> list[str]:
    """One line per arm, then one per ratio, then what does not count."""
    key = response.key
    baseline = response.baseline
    about = f" {response.about.text}" if response.about else ""
    lines = [f"{name}: {_half(arm, key)}" for name, arm in response.arms.items()]
    lines += [_ratio(arm, baseline, ratio, key, about) for arm, ratio in response.ratios.items()]
    if response.not_counted:
        lines.append(f"Not counted, added after the first step: {', '.join(response.not_counted)}")
    return lines


def laws(lengths: Lengths) -> list[str]:
    """The laws of the spread of log s, line by line."""
    return [
        f"{law.family}: {QUANTITIES[law.quantity]} ~ L^{interval(law.exponent)}"
        for law in lengths.laws
        if law.quantity in ("spread", "averaging")
    ]


def interval(test: PairedT, digits: int = 3) -> str:
    """An estimate with its interval."""
    if test.estimate is None:
        return "not measured"
    ends = bounds(test, digits) or f"({test.reason})"
    return f"{test.estimate:.{digits}g} {ends}"


def bounds(test: PairedT, digits: int = 3) -> str:
    """The interval alone; empty where there is none."""
    if test.low is None or test.high is None:
        return ""
    return f"[{test.low:.{digits}g}, {test.high:.{digits}g}]"


def _half(arm: ArmResponse, key: str) -> str:
    half = arm.half_collapse
    if half is None:
        return "fewer than two values have finished runs that are long enough to be judged"
    collapsed = sum(point.collapsed for point in arm.points)
    judged = sum(point.runs for point in arm.points)
    runs = f"{collapsed} of {judged} runs collapsed"
    if half.resolved and half.estimate is not None:
        return (
            f"50 % collapse point at {key} = {half.estimate:.3g} [{half.low:.3g}, {half.high:.3g}]"
            f" ({runs})"
        )
    return f"inconclusive ({runs}): {half.reason}{_needed(half)}"


def _ratio(arm: str, baseline: str, ratio: DoseLimits, key: str, about: str) -> str:
    if ratio.resolved and ratio.estimate is not None:
        includes = ratio.low is not None and ratio.high is not None and ratio.low <= 1 <= ratio.high
        at_level = "" if ratio.alpha is None else f"{level(ratio.alpha)} "
        ends = f"{at_level}interval {ratio.low:.3g} to {ratio.high:.3g}"
        text = f"{arm} tolerates {ratio.estimate:#.3g} times {baseline}'s {key}{about} ({ends})"
        return f"{text}: inconclusive" if includes else text
    return f"{arm} against {baseline}{about}: inconclusive: {ratio.reason}{_needed(ratio)}"


def _needed(limits: DoseLimits) -> str:
    if limits.needed is None:
        return ""
    sides = []
    if limits.needed.below is not None:
        sides.append(f"below {limits.needed.below:.3g}")
    if limits.needed.above is not None:
        sides.append(f"above {limits.needed.above:.3g}")
    return f"; values {' and '.join(sides)} are needed"
