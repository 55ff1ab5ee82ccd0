"""The open figures: reward and score by compute, paired differences, clipped tokens, stability, routing."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from gspo_lab.findings.clipped import rule_arms, saturated
from gspo_lab.findings.compared import compared
from gspo_lab.findings.decision import decision
from gspo_lab.findings.outcomes import RunOutcome, outcomes
from gspo_lab.findings.training_curves import AXES, course
from gspo_lab.readings import FINISHED, Source, average, read, runs
from gspo_lab.readings.answers import benches as benches_of
from gspo_lab.readings.answers import scores as scores_of
from gspo_lab.readings.reading import CLIP_EVERYWHERE
from gspo_lab.report.chart import Chart, Fold, Reference, Section, Series
from gspo_lab.report.markup import number, percent
from gspo_lab.report.series import (
    DRAWN,
    MANY_RUNS,
    ByRun,
    Points,
    all_lines,
    axes,
    by_run,
    column,
    curve,
    points,
    steps_of,
)
from gspo_lab.stats.arrays import Bools, Floats
from gspo_lab.stats.paired import pointwise_t
from gspo_lab.stats.series import mean_of_runs
from gspo_lab.store.records import read_steps
from gspo_lab.words.answers import unstable_counts
from gspo_lab.words.text import MINUS, difference, level

BAND = (
    "Pairs are runs of one seed. Faint: pairs. Thick: their mean. Shaded: the {level} t interval at each point by "
    "itself. It is not a test: along a curve some point leaves such a band by chance."
)
REWARD = (
    "In the paper (2507.18071, Fig. 1: 30B-A3B, one run per arm) GSPO learns more than GRPO with routing replay from "
    "equal compute; it gives no end figures."
)
CLIPPED = (Reference(0.15, "paper, GSPO: 15 %"), Reference(0.0013, "paper, GRPO: 0.13 %"))
"""Of all response tokens: the values of claim C04."""
CLIP = (
    "The share of response tokens whose term the clip stops: A > 0 and ratio above the range, or A < 0 and ratio below "
    "it. Mean over the step's mini-batches. Dotted: the GSPO paper's values, read off a bar chart (2507.18071, sec. "
    "5.2: 30B-A3B, 4 mini-batches). Zero has a row of its own at the bottom."
)
EXPERT_CHANGE = (Reference(0.10, "paper: about 10 %"),)
"""Claim C09."""
ROUTING = (
    "The share of activated experts that the router would now choose differently than under the old policy. Mean over "
    "the step's mini-batches. Dotted: the GSPO paper's value after one update (2507.18071, sec. 5.3: 30B-A3B)."
)
STABLE = (
    "The share of an arm's runs that are still stable. A run leaves at the first step of its collapse or regression, "
    "and at the end if its final score is below half of its best one. Counted: {runs}."
)


FEW_ARMS = 4
"""A heading names no more arms than this one by one."""


def curves(found: Source) -> Section | None:
    """The five figures that every study opens with, as far as they were measured; all others are folded."""
    about = pair(found) or ()
    reward = curve(found, "reward_mean", "Training reward", "mean reward", id="m-reward", note=REWARD, compute=True,
                   finding=reward_difference(found))  # fmt: skip
    scores = dict(_scores(found))
    primary = scores.pop(found.declaration.primary or "", None)
    if primary is not None:
        primary = replace(primary, finding=score_difference(found))
    clip = curve(found, "clip_fraction_tokens", "Clipped tokens", "share of tokens", id="m-clip", note=CLIP, log=True,
                 share=True, references=CLIPPED, finding=clip_gap(found))  # fmt: skip
    routing = None
    if course(found).measured("expert_change"):
        routing = curve(found, "expert_change", "Expert change", "share of experts", note=ROUTING, whole=True,
                        share=True, references=EXPERT_CHANGE)  # fmt: skip
    by_score = by_run(found, _of(found, found.declaration.primary), "step", "score")
    apart = _difference(found, f"score-{found.declaration.primary}", f"Benchmark {found.declaration.primary}", by_score)
    open_figures = (reward, primary, apart, clip, _stable(found), routing)
    shown = [replace(chart, focus=about) for chart in open_figures if chart is not None]
    folded = [*scores.values(), _difference(found, "reward", "Training reward", points(found, "reward_mean"))]
    more = tuple(replace(chart, focus=about) for chart in folded if chart is not None)
    title = "Other benchmarks, and the difference in training reward"
    return Section("curves", "Figures", (*shown, *([Fold(title, more)] if more else [])))


def _of(found: Source, bench: str | None) -> pd.DataFrame:
    return scores_of(found)[scores_of(found)["bench"] == bench]


def _scores(found: Source) -> Iterator[tuple[str, Chart]]:
    every = _with_compute(found)
    for bench in benches_of(found):
        rows = every[every["bench"] == bench]
        answers, problems = rows["answers"].max(), rows["problems"].max()
        each = f"{answers / problems:g} answer{'' if answers == problems else 's'} each"
        series = all_lines(by_run(found, rows, "step", "score"))
        note = f"{problems} held-out problems, {each}. {DRAWN}"
        yield bench, Chart(f"m-score-{bench}", f"Benchmark {bench}", "step", "score", series, note=note,
                           reach=(0.0, float(steps_of(found))), reading=f"score.{bench}")  # fmt: skip


def _with_compute(found: Source) -> pd.DataFrame:
    """The scores, and beside each what the run had consumed when it was evaluated: nothing before the first step."""
    scores = scores_of(found)
    before = {int(step) - 1 for step in scores["step"]}
    spent = read_steps(found.evidence, found.study, list(AXES.values()), at=before)
    spent = spent.assign(step=spent["step"] + 1)[["run_id", "step", *AXES.values()]]
    both = scores.merge(spent, on=["run_id", "step"], how="left")
    both.loc[both["step"] == 0, list(AXES.values())] = 0.0
    return both.rename(columns={total: axis for axis, total in axes(found)[0].items()})


def _difference(found: Source, name: str, title: str, own: ByRun) -> Chart | None:
    """Arm minus baseline, pair by pair; None for a sweep (its arms have no one baseline) and for a single arm."""
    declared, baseline = found.declaration, found.declaration.baseline
    if declared.sweep is not None or not own.get(baseline) or not declared.treatments:
        return None
    alpha = declared.verdict.alpha
    series = [one for arm in declared.treatments for one in _pairs(arm, own[baseline], own.get(arm, {}), alpha)]
    last = steps_of(found) - (0 if name.startswith("score") else 1)
    return Chart(
        f"m-{name}-difference",
        f"{title}: arm − {baseline}",
        "step",
        "difference",
        tuple(series),
        note=BAND.format(level=level(alpha)),
        reach=(0.0, float(max(1, last))),
        reading=f"{'score' if name.startswith('score') else 'reward_mean'}.difference",
    ) if series else None  # fmt: skip


def _pairs(arm: str, base: Mapping[int, Points], own: Mapping[int, Points], alpha: float) -> list[Series]:
    """One line per pair of runs, as far as both went, and the mean of the pairs with its pointwise interval over the
    steps that every pair has."""
    seeds = [seed for seed in sorted(base.keys() & own.keys()) if _known(base[seed]).any() and _known(own[seed]).any()]
    known = [points for seed in seeds for points in (base[seed], own[seed])]
    if not known:
        return []
    steps = known[0].x[_known(known[0])]
    for points_ in known[1:]:
        steps = np.intersect1d(steps, points_.x[_known(points_)])
    if not len(steps):
        return []

    def heights(line: Points) -> Floats:
        there = _known(line)
        return line.y[there][np.searchsorted(line.x[there], steps)]

    apart = np.array([heights(own[seed]) - heights(base[seed]) for seed in seeds])
    x = tuple(steps.tolist())
    thin = [Series(arm, x, column(row), seed=seed) for seed, row in zip(seeds, apart, strict=True)]
    judged = pointwise_t(apart, alpha)
    ends = ((), ()) if judged is None else tuple(map(column, judged[1:]))
    mean = Series(arm, x, column(mean_of_runs(apart)), low=ends[0], high=ends[1])
    return [*(thin if 1 < len(seeds) < MANY_RUNS // 2 else []), mean]


def _known(line: Points) -> Bools:
    return np.isfinite(line.y)


def _few(found: Source, counts: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """The counts of four arms or fewer; of more arms the pair's, and the others' sum."""
    about = pair(found)
    if len(counts) <= FEW_ARMS or about is None:
        return dict(counts)
    rest = [count for arm, count in counts.items() if arm not in about]
    others = (sum(k for k, _ in rest), sum(n for _, n in rest))
    return {**{arm: counts[arm] for arm in about if arm in counts}, "the other arms": others}


def unstable_from(run: RunOutcome, last: int) -> int | None:
    """The step from which on a run counts as unstable; None where it is stable to its end."""
    stable = run.stability
    first = [step for step in (stable.collapse, stable.regression) if step is not None] if stable else []
    return min(first, default=last if run.ended_below_half else None)


def _stable(found: Source) -> Chart | None:
    last = steps_of(found)
    counted = [run for run in outcomes(found, found.declaration.primary) if decision(found).runs.has(run)]
    by_arm = {arm: [run for run in counted if run.arm == arm and run.stability_judged] for arm in found.arms}
    series = []
    for arm, judged in by_arm.items():
        left = sorted(step for run in judged if (step := unstable_from(run, last)) is not None)
        x = sorted({0, *left, last})
        stays = tuple(1 - bisect_right(left, place) / len(judged) for place in x) if judged else ()
        series += [Series(arm, tuple(map(float, x)), stays)] if judged else []
    counts = {arm: (sum(run.unstable for run in judged), len(judged)) for arm, judged in by_arm.items() if judged}
    if not counts:
        return None
    told = STABLE.format(runs=decision(found).runs.label())
    return Chart("m-stable", "Runs still stable", "step", "share of runs", tuple(series), note=told, whole=True,
                  share=True, steps=True, reach=(0.0, float(last)), reading="stable",
                  finding=unstable_counts(_few(found, counts)))  # fmt: skip


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
