"""The two arms that the figures are about, and their headings: computed, and empty where there is nothing to say."""

import math

from gspo_lab.findings.clipped import rule_arms, saturated
from gspo_lab.findings.compared import compared
from gspo_lab.findings.decision import decision
from gspo_lab.readings import FINISHED, Source, average, read, runs
from gspo_lab.readings.named import CLIP_EVERYWHERE
from gspo_lab.report.markup import number, percent
from gspo_lab.words.text import MINUS, difference


def pair(found: Source) -> tuple[str, str] | None:
    """The baseline and the arm that the study is about: GSPO's, else the first one. None for a sweep and one arm."""
    declared, rules = found.declaration, rule_arms(found)
    if declared.sweep is not None or not declared.treatments:
        return None
    subject = rules[1] if rules is not None and rules[1] in declared.treatments else next(iter(declared.treatments))
    return declared.baseline, subject


def score_difference(found: Source) -> str:
    """The pair's difference in final scores as its verdict states it; empty where there is none."""
    about = pair(found)
    verdict = None if about is None else decision(found).verdicts.get(about[1])
    if verdict is None or verdict.estimate is None or verdict.word == "withheld":
        return ""
    told = difference(verdict.estimate, verdict.interval or (None, None), verdict.level)
    return f"{verdict.subject} {MINUS} {verdict.baseline}, final score: {told}"


def reward_difference(found: Source) -> str:
    """The pair's difference in training reward, mean over the steps."""
    about = pair(found)
    known = [one.paired for one in compared(found) if about and one.arm == about[1] and not one.scalar.scored]
    if about is None or not known or known[0].estimate is None:
        return ""
    told = difference(known[0].estimate, (known[0].low, known[0].high), known[0].alpha)
    return f"{about[1]} {MINUS} {about[0]}, mean training reward: {told}"


def clip_gap(found: Source) -> str:
    """How many times as many tokens GSPO's arm clips as GRPO's, in finished pairs, over all mini-batches."""
    arms = rule_arms(found)
    if arms is None or pair(found) not in (arms, arms[::-1]):
        return ""
    first, second = arms
    values = read(found, CLIP_EVERYWHERE)
    shares: dict[str, dict[int, float]] = {first: {}, second: {}}
    for run in runs(found, FINISHED, (first, second)):
        if (share := values[run.id].value) is not None:
            shares[run.arm][run.seed] = share
    low, high = (average(by_seed.values()) for by_seed in shares.values())
    if low is None or high is None:
        return ""
    both = shares[first].keys() & shares[second].keys()
    ratios = [shares[second][seed] / shares[first][seed] for seed in sorted(both) if shares[first][seed]]
    if not both or len(ratios) < len(both) or min(ratios) <= 1:
        return f"{second} clips {percent(high, 2)} of the tokens, {first} {percent(low, 2)}"
    ceiling = "; its ceiling is reached" if saturated(found, second) else ""
    spread = f"by seed {factor(min(ratios))} to {factor(max(ratios))}" if len(ratios) > 1 else "one seed"
    times = factor(math.exp(average(map(math.log, ratios)) or 0.0))
    return f"{second} clips {times} times as many tokens as {first} ({spread}{ceiling})"


def factor(ratio: float) -> str:
    """A ratio as a heading tells it: two digits, whole numbers from ten on."""
    return f"{ratio:,.0f}" if ratio >= 10 else number(ratio, 2)
