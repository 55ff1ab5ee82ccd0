"""The kinds of study that the calibration simulates, and who judges them: production's code, and some known to fail.

Shapes: S seeds, M treatments, I items, T steps; a is the baseline, b what is held against it.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.random import Generator

from gspo_lab.stats.array_checks import Floats
from gspo_lab.stats.crossed_random_effects import items_variance, two_way
from gspo_lab.stats.curve_summaries import last_fifth, normalised_auc
from gspo_lab.stats.ed50 import seed_shifts
from gspo_lab.stats.levels import first_resolving, step_down
from gspo_lab.stats.paired import LEAST_SEEDS, paired_t
from gspo_lab.stats.simulate import (
    DOSES,
    NOISE,
    UNEVEN,
    ArmPair,
    Benchmark,
    Learner,
    answers,
    benchmark_scores,
    courses,
    curves,
    draw_arms,
    scores,
    sweeps,
)
from gspo_lab.stats.stability import ArmRuns, RunPairs, decide_stability
from gspo_lab.stats.verdict import Rule, Scores, decide, decide_all, verdict_label

RESAMPLES = 1000

Expectation = Literal["inside the band", "at most the band", "at most half", "must fail", "stated", "told"]
"""The condition on a rate, by alpha's exact binomial band; "at most half" by that of alpha / 2. "stated": no rule keeps
alpha there, so reports state the measured rate. "told": a power, without a condition."""


class Conclusion(NamedTuple):
    """What a method said of one study: a false alarm or not, and the width of its interval (None: it gives words)."""

    alarm: bool
    width: float | None


Judge = Callable[[Floats, Floats, float, Generator], Conclusion | None]


class Method(NamedTuple):
    """`judge(a, b, alpha, rng)` of one study, None without an interval; a method that must fail exceeds `least`."""

    name: str
    judge: Judge
    expectation: Expectation
    least: float | None = None


class Cell(NamedTuple):
    """One kind of study, `draw(rng, studies=...)`, and the methods put to it."""

    name: str
    n: int
    draw: Callable[..., ArmPair]
    methods: tuple[Method, ...]


def _decided(a_S: Floats, b_S: Floats, alpha: float, rng: Generator) -> Conclusion | None:
    paired = decide(a_S, b_S, margin=1.0, alpha=alpha).paired
    return _conclusion(paired.low, paired.high)


def _words(a_S: Floats, b_S: Floats, alpha: float, rng: Generator) -> Conclusion:
    """With b truly one margin ahead, "beyond margin", "equivalent" and "a is better" are all untrue."""
    verdict = decide(a_S, b_S + 1.0, margin=1.0, alpha=alpha, labels=("a", "b"))
    untrue = verdict.word in ("better beyond margin", "practically equivalent") or verdict.direction < 0
    return Conclusion(untrue, None)


def _any_of_several(a_S: Floats, b_MS: Floats, alpha: float, rng: Generator) -> Conclusion:
    verdicts = decide_all([Scores(a_S, b_S) for b_S in b_MS], Rule(1.0, alpha))
    return Conclusion(any(verdict.better is not None for verdict in verdicts), None)


def _each_by_itself(a_S: Floats, b_MS: Floats, alpha: float, rng: Generator) -> Conclusion:
    """As if every arm had alpha to itself."""
    p_values = [paired_t(b_S - a_S, alpha).p for b_S in b_MS]
    return Conclusion(any(p is not None and p < alpha for p in p_values), None)


def _looking(looks: tuple[int, ...]) -> Judge:
    """The first look that resolves; seeds behind the last one are not counted."""

    def judge(a_S: Floats, b_S: Floats, alpha: float, rng: Generator) -> Conclusion:
        rule = Rule(1.0, alpha, looks)
        _, verdict = first_resolving(
            looks, lambda n: decide_all([Scores(a_S[:n], b_S[:n])], rule)[0], lambda verdict: verdict.resolved
        )
        return Conclusion(verdict.better is not None, None)

    return judge


def _contrast(looks: tuple[int, ...] = ()) -> Judge:
    """The mean of the last two of four arms against the mean of the baseline and the first."""

    def judge(a_S: Floats, b_MS: Floats, alpha: float, rng: Generator) -> Conclusion | None:
        return _looking(looks or (len(a_S),))((a_S + b_MS[0]) / 2, (b_MS[1] + b_MS[2]) / 2, alpha, rng)

    return judge


def _in_order(looks: tuple[int, ...] = ()) -> Judge:
    """The arms in a declared order; the first look that resolves all of them."""

    def judge(a_S: Floats, b_MS: Floats, alpha: float, rng: Generator) -> Conclusion:
        names = tuple(f"arm {place}" for place in range(len(b_MS)))
        rule = Rule(1.0, alpha, looks, order=names)
        _, verdicts = first_resolving(
            looks or (len(a_S),),
            lambda n: decide_all(
                [Scores(a_S[:n], b_S[:n], ("a", name)) for name, b_S in zip(names, b_MS, strict=True)], rule
            ),
            lambda verdicts: all(verdict.resolved for verdict in verdicts),
        )
        return Conclusion(any(verdict.better is not None for verdict in verdicts), None)

    return judge


def _seed_by_seed(a_S: Floats, b_S: Floats, alpha: float, rng: Generator) -> Conclusion:
    """As if a seed might be added until the plain interval excludes 0."""
    p_values = [paired_t(b_S[:n] - a_S[:n], alpha).p for n in range(LEAST_SEEDS, len(a_S) + 1)]
    return Conclusion(any(p is not None and p < alpha for p in p_values), None)


def _stability(*alarms: str) -> Judge:
    """Whether any arm gets one of these words. A run is unstable if it ends below half of its best score."""

    def judge(a_S3: Floats, b_MS3: Floats, alpha: float, rng: Generator) -> Conclusion:
        first, *treatments = (_runs(arm_S3) for arm_S3 in (a_S3, *b_MS3))
        verdicts = decide_stability([RunPairs(first, second) for second in treatments], Rule(MARGIN, alpha))
        return Conclusion(any(verdict.word in alarms for verdict in verdicts), None)

    return judge


def _runs(arm_S3: Floats) -> ArmRuns:
    start_S, best_S, final_S = arm_S3.T
    return ArmRuns(best_S, final_S, start_S, (int((final_S < best_S / 2).sum()), len(final_S)))


def _shifted(a_SJ: Floats, b_MSJ: Floats, alpha: float, rng: Generator) -> Conclusion:
    """Whether seeds tell any arm of a sweep apart. A ratio of doses asks for this and for its likelihood besides."""
    seeds_N = np.repeat(np.arange(len(a_SJ)), len(DOSES)).tolist()
    first, *treatments = ((np.tile(np.log10(DOSES), len(a_SJ)), arm_SJ.ravel(), seeds_N) for arm_SJ in (a_SJ, *b_MSJ))
    steps = step_down([seed_shifts(first, second, alpha).p for second in treatments], alpha)
    return Conclusion(any(step.rejected for step in steps), None)


def _equivalent(difference: float) -> Judge:
    """Whether "practically equivalent" is said at this true difference, in margins."""

    def judge(a_SI: Floats, b_SI: Floats, alpha: float, rng: Generator) -> Conclusion:
        alone = items_variance(b_SI - a_SI)
        a_S, b_S = a_SI.mean(axis=1), b_SI.mean(axis=1) + difference
        return Conclusion(decide(a_S, b_S, 1.0, alpha, items_variance=alone).word == "practically equivalent", None)

    return judge


def _inside(difference: float) -> Judge:
    """Version 0.1: the plain interval inside the margin, whatever the answers vary, from three pairs on."""

    def judge(a_SI: Floats, b_SI: Floats, alpha: float, rng: Generator) -> Conclusion:
        plain = paired_t(b_SI.mean(axis=1) - a_SI.mean(axis=1) + difference, alpha)
        return Conclusion(verdict_label(plain.low or 0.0, plain.high or 0.0, 1.0) == "practically equivalent", None)

    return judge


def _by_seed(a_SI: Floats, b_SI: Floats, alpha: float, rng: Generator) -> Conclusion | None:
    return _decided(a_SI.mean(axis=1), b_SI.mean(axis=1), alpha, rng)


def _by_seed_and_item(a_SI: Floats, b_SI: Floats, alpha: float, rng: Generator) -> Conclusion | None:
    both = two_way(b_SI - a_SI, alpha, scale=1.0)
    return _conclusion(both.low, both.high)


def _by_area(a_ST: Floats, b_ST: Floats, alpha: float, rng: Generator) -> Conclusion | None:
    steps = np.arange(a_ST.shape[1])
    a_S, b_S = (np.array([normalised_auc(steps, run_T) for run_T in arm_ST]) for arm_ST in (a_ST, b_ST))
    return _decided(a_S, b_S, alpha, rng)


def _by_tail(a_ST: Floats, b_ST: Floats, alpha: float, rng: Generator) -> Conclusion | None:
    a_S, b_S = (np.array([last_fifth(run_T) for run_T in arm_ST]) for arm_ST in (a_ST, b_ST))
    return _decided(a_S, b_S, alpha, rng)


def _resampled_seeds(a_S: Floats, b_S: Floats, alpha: float, rng: Generator) -> Conclusion | None:
    d_S = b_S - a_S
    means = d_S[rng.integers(len(d_S), size=(RESAMPLES, len(d_S)))].mean(axis=1)
    low, high = np.quantile(means, [alpha / 2, 1 - alpha / 2])
    return _conclusion(float(low), float(high))


def _items_only(a_SI: Floats, b_SI: Floats, alpha: float, rng: Generator) -> Conclusion | None:
    items = paired_t((b_SI - a_SI).mean(axis=0), alpha)
    return _conclusion(items.low, items.high)


def _steps_of_one_seed(a_ST: Floats, b_ST: Floats, alpha: float, rng: Generator) -> Conclusion | None:
    from scipy import stats  # half a second to import, and only calibration asks

    interval = stats.ttest_ind(b_ST[0, -100:], a_ST[0, -100:], equal_var=False).confidence_interval(1 - alpha)
    return _conclusion(float(interval.low), float(interval.high))


def _conclusion(low: float | None, high: float | None) -> Conclusion | None:
    return None if low is None or high is None else Conclusion(low > 0 or high < 0, high - low)


LOOKS = (5, 8)
MARGIN = 0.02
"""Of stability, in points of score."""
SEED_SDS, ITEM_SD = (0.3, 0.5, 0.8), 0.5
"""Standard deviations of a pair's difference in margins: over runs, and because answers are finitely many."""


def _noisy(seed_sd: float) -> str:
    return f"seed sd {seed_sd:g}, answers' sd {ITEM_SD:g} margins"


EXACT = Method("paired t over seeds", _decided, "inside the band")
PAIRED = Method("paired t over seeds", _decided, "at most the band")
WORDS = Method("words, true difference = margin", _words, "at most the band")
BOOTSTRAP = Method("bootstrap over seeds", _resampled_seeds, "must fail", 0.15)
TWO_WAY = Method("two-way, seeds and items", _by_seed_and_item, "at most the band")
ITEM_MEANS = Method("paired t over seeds", _by_seed, "at most the band")
ITEMS_ONLY = Method("items only, seeds pooled", _items_only, "must fail", 0.15)
AREA = Method("area under the curve, paired t", _by_area, "at most the band")
TAIL = Method("last fifth, paired t", _by_tail, "at most the band")
ONE_SEED = Method("last 100 steps of one seed, Welch", _steps_of_one_seed, "must fail", 0.5)
HOLM = Method("better, of any arm, Holm", _any_of_several, "at most the band")
UNADJUSTED = Method("each arm by its own interval", _each_by_itself, "must fail", 0.09)
LOOKED = Method("better, at any look", _looking(LOOKS), "at most the band")
ADDED = Method("better, by the 5 declared of 10 seeds", _looking((5,)), "at most the band")
ONE_BY_ONE = Method("a seed at a time, first hit counts", _seed_by_seed, "must fail", 0.1)
UNEVEN_PAIRED = Method("paired t, means equal", _decided, "stated")
UNEVEN_HOLM = Method("better, of any arm, Holm, means equal", _any_of_several, "stated")
UNEVEN_CONTRAST = Method("better, by the contrast, means equal", _contrast(), "stated")
UNEVEN_ORDER = Method("better, of any arm, in order, means equal", _in_order(), "stated")
UNEVEN_CONTRAST_LOOKED = Method("better, by the contrast, any look, means equal", _contrast(LOOKS), "stated")
UNEVEN_ORDER_LOOKED = Method("better, in order, any look, means equal", _in_order(LOOKS), "stated")
UNEVEN_LOOKED = Method("better, at any look, means equal", _looking(LOOKS), "stated")
STABLE = Method("more or less stable", _stability("more stable", "less stable"), "at most the band")
STABLER = Method("more stable", _stability("more stable"), "at most the band")
STABLE_POWER = Method("more stable, of any arm", _stability("more stable"), "told")
SWEPT = Method("any ratio of doses, Holm, by seeds", _shifted, "at most the band")
AT_MARGIN = Method("equivalent, truth: the margin", _equivalent(1.0), "at most half")
AT_ZERO = Method("equivalent, truth: no difference", _equivalent(0.0), "told")
UNSEEN = Method("equivalent, truth: 15 % of runs collapse", _equivalent(0.0), "told")
FORMER = Method("equivalent by version 0.1, no difference", _inside(0.0), "told")

HOLDING, FALLING = Learner(0.35, 0.03, unstable=1 / 7), Learner(0.35, 0.03, unstable=3 / 7)
FAST = Learner(0.40, 0.12, unstable=0.15)
SLOW = Learner(0.40 - FAST.loss - 0.05, 0.02)
"""Loses next to nothing and ends .07 below FAST."""
EVEN = Learner(0.35, HOLDING.loss)
"""Loses as much as HOLDING on average, and every run alike."""
STABILITY = {
    "stability: 3 of 7 runs of either arm unstable": (FALLING, [FALLING], (3, 5, 7), STABLE),
    "stability: a slow learner ends .07 below": (FAST, [SLOW], (5, 7), STABLER),
    "stability: equal mean drops of unequal shape": (EVEN, [HOLDING], (5, 7, 8), STABLE),
    "stability: 3 of 7 runs unstable, 1 of 7 of the arm": (FALLING, [HOLDING], (7, 10), STABLE_POWER),
    "stability: 3 of 7 runs unstable, 1 of 7 of four arms": (FALLING, [HOLDING] * 4, (7, 10), STABLE_POWER),
}
"""A baseline and its arms, pairs, and what is asked."""

Cells = tuple[str, Sequence[int], Callable[..., ArmPair], tuple[Method, ...]]
"""Kinds of study that differ in their number of pairs: a name, these numbers, how one is drawn, and the methods."""


def _kinds() -> Iterator[Cells]:
    """All kinds of study, in the order of their random streams."""
    looked = f"looks after {LOOKS[0]} and {LOOKS[1]}"
    last = LOOKS[-1:]
    for name, noise in NOISE.items():
        drawn = partial(scores, noise=noise)
        if name == "normal":
            yield f"score, {name}", (3,), drawn, (EXACT, WORDS, BOOTSTRAP)
            yield f"score, {name}", (4, 5, 8), drawn, (EXACT, WORDS)
        else:
            yield f"score, {name}", (3, 4, 5, 8), drawn, (PAIRED,)
    for name, bench, methods in (
        ("benchmark 30 x 16", Benchmark(30, 16), (TWO_WAY, ITEM_MEANS)),
        ("benchmark 400 x 4", Benchmark(400, 4), (TWO_WAY, ITEM_MEANS, ITEMS_ONLY)),
        ("benchmark 30 x 16, arms favour other items", Benchmark(30, 16, arm_by_item=0.7), (TWO_WAY,)),
    ):
        yield name, (3, 5), partial(benchmark_scores, bench=bench), methods
    ungraded = Benchmark(30, 16, ungraded=(0.0, 0.2))
    yield "benchmark 30 x 16, b: a fifth not graded", (5,), partial(benchmark_scores, bench=ungraded), (ITEM_MEANS,)
    yield "3 arms against one", (3, 5, 8), partial(draw_arms, arms=3), (HOLM, UNADJUSTED)
    yield "11 arms against one", (10,), partial(draw_arms, arms=11), (HOLM, UNADJUSTED)
    for name, noise in NOISE.items():
        yield f"{name}, {looked}", last, partial(scores, noise=noise), (LOOKED,)
    for n, method in ((10, ADDED), (12, ONE_BY_ONE)):
        yield "normal, seeds added later", (n,), partial(scores, noise=NOISE["normal"]), (method,)
    noisy = {sd: partial(answers, seed_sd=sd, item_sd=ITEM_SD) for sd in SEED_SDS}
    yield _noisy(0.3), (3,), noisy[0.3], (FORMER,)
    for sd, drawn in noisy.items():
        yield _noisy(sd), (5, 8), drawn, (AT_MARGIN, AT_ZERO)
    yield f"{_noisy(0.3)}, b collapses", (5, 8), partial(noisy[0.3], collapse=0.15), (UNSEEN,)
    yield "curve, 500 steps", (3,), curves, (AREA, TAIL, ONE_SEED)
    yield "curve, 500 steps", (5,), curves, (AREA, TAIL)
    for name, noise in UNEVEN.items():
        yield f"score, {name}", (3, 5, 7, 8), partial(scores, noise=noise), (UNEVEN_PAIRED,)
    for name, noise in UNEVEN.items():
        yield f"4 arms against one, {name}", (3, 5, 7, 8), partial(draw_arms, arms=4, noise=noise), (UNEVEN_HOLM,)
    for name, noise in UNEVEN.items():
        yield f"{name}, {looked}", last, partial(scores, noise=noise), (UNEVEN_LOOKED,)
    for name, (first, second, sizes, method) in STABILITY.items():
        yield name, sizes, partial(courses, first=first, second=second), (method,)
    for name, sd in (("alike for all arms", 0.0), ("vary by arm", 0.08)):
        for arms in (2, 3):
            drawn = partial(sweeps, arms=arms, apart=sd)
            yield f"sweep, {arms} arms against one, starts {name}", (4, 8), drawn, (SWEPT,)
    # A declared contrast and a declared order of the four arms of a 2 x 2 design, at once and with looks.
    at_once, in_looks = (UNEVEN_CONTRAST, UNEVEN_ORDER), (UNEVEN_CONTRAST_LOOKED, UNEVEN_ORDER_LOOKED)
    unstable = next(iter(UNEVEN))
    for name, noise in {"normal": NOISE["normal"], unstable: UNEVEN[unstable]}.items():
        for when, stated, pairs in (("", at_once, (3, 5, 8)), (f", {looked}", in_looks, last)):
            held = tuple(Method(m.name.removesuffix(", means equal"), m.judge, "at most the band") for m in stated)
            drawn = partial(draw_arms, arms=3, noise=noise)
            yield f"2 x 2, {name}{when}", pairs, drawn, held if name == "normal" else stated


CELLS = tuple(Cell(name, n, partial(draw, seeds=n), methods) for name, sizes, draw, methods in _kinds() for n in sizes)
