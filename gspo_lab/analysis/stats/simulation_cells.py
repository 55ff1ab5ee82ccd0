"""The kinds of study that the calibration simulates, and who judges them: production's code, and
some known to fail.

Nothing differs in most of them; they have the noise of runs, benchmarks and curves. Every draw
takes its generator. Shapes: R studies, S seeds, M treatments, I items, T steps; a is the baseline,
b what is held against it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.random import Generator
from scipy import special

from gspo_lab.analysis.stats.array_checks import Floats, Integers
from gspo_lab.analysis.stats.curve_summaries import last_fifth, normalised_auc
from gspo_lab.analysis.stats.ed50 import seed_shifts
from gspo_lab.analysis.stats.levels import first_resolving, step_down
from gspo_lab.analysis.stats.paired import LEAST_SEEDS, items_variance, paired_t, two_way
from gspo_lab.analysis.stats.stability import ArmRuns, RunPairs, decide_stability
from gspo_lab.analysis.stats.verdict import (
    BEYOND,
    EQUIVALENT,
    Rule,
    Scores,
    decide,
    decide_all,
    verdict_label,
)


class ArmPair(NamedTuple):
    """Two arms drawn alike, the studies along the first axis."""

    a: Floats
    b: Floats


NoiseSampler = Callable[[Generator, tuple[int, int]], Floats]


def _normal(rng: Generator, shape: tuple[int, int]) -> Floats:
    return rng.standard_normal(shape)


NOISE: Mapping[str, tuple[NoiseSampler, NoiseSampler]] = {
    "normal": (_normal, _normal),
    "one arm 4x as noisy": (_normal, lambda rng, shape: 4 * rng.standard_normal(shape)),
    "heavy tails, t3": (lambda rng, shape: rng.standard_t(3, shape),) * 2,
    "skewed": (lambda rng, shape: rng.standard_exponential(shape) - 1,) * 2,
    "15 % collapse": (
        (lambda rng, shape: rng.standard_normal(shape) - 6 * (rng.random(shape) < 0.15),) * 2
    ),
}
"""Noise of the first and the second arm, of standard deviation 1 but for the name's sake; means
equal. The pairs' differences are symmetric around 0."""

UNSTABLE = 0.15
FALL = 6.0
"""Share of an unstable arm's runs that end lower, and by how many standard deviations."""

UNEVEN: Mapping[str, tuple[NoiseSampler, NoiseSampler]] = {
    "15 % of one arm's runs unstable": (
        _normal,
        lambda rng, shape: (
            rng.standard_normal(shape) - FALL * ((rng.random(shape) < UNSTABLE) - UNSTABLE)
        ),
    ),
    "one arm skewed": (
        lambda rng, shape: 0.25 * rng.standard_normal(shape),
        lambda rng, shape: rng.standard_exponential(shape) - 1,
    ),
}
"""The same with differences that are not symmetric, though the means are equal."""


def scores(
    rng: Generator, noise: tuple[NoiseSampler, NoiseSampler], studies: int, seeds: int
) -> ArmPair:
    """One score per run, [R, S]: pair effect N(0, 1) shared by the arms plus each run's own
    noise.
    """
    pair_RS = rng.standard_normal((studies, seeds))
    return ArmPair(*(pair_RS + draw(rng, (studies, seeds)) for draw in noise))


def draw_arms(
    rng: Generator,
    studies: int,
    seeds: int,
    arms: int,
    noise: tuple[NoiseSampler, NoiseSampler] = (_normal, _normal),
) -> ArmPair:
    """One score per run of a baseline, [R, S], and of `arms` treatments, [R, M, S], pair by pair as
    in `scores`. The baseline has the second noise."""
    pair_RS = rng.standard_normal((studies, seeds))
    alike, apart = noise
    unchanged = alike(rng, (studies, arms * seeds)).reshape(studies, arms, seeds)
    return ArmPair(pair_RS + apart(rng, (studies, seeds)), pair_RS[:, None] + unchanged)


class Learner(NamedTuple):
    """The mean course of an arm's runs, in points of score: a `gain` to the best score, then a
    `drop`.

    A share `unstable` of runs instead loses `fall` of its best score."""

    gain: float
    drop: float
    unstable: float = 0.0
    fall: float = 0.65

    @property
    def loss(self) -> float:
        """The mean drop from best of all runs, from a start of .3."""
        return (1 - self.unstable) * self.drop + self.unstable * self.fall * (0.3 + self.gain)


def courses(
    rng: Generator, first: Learner, second: Sequence[Learner], studies: int, seeds: int
) -> ArmPair:
    """Start, best and final score of each run: of a baseline [R, S, 3], of the others [R, M, S, 3].
    The start, N(.3, .04), is shared by a pair; gains vary by a sixth, drops by a third, falls by a
    tenth of themselves.
    """
    start_RS = rng.normal(0.3, 0.04, (studies, seeds))

    def arm(learner: Learner) -> Floats:
        best_RS = start_RS + learner.gain * (1 + rng.standard_normal((studies, seeds)) / 6)
        drop_RS = learner.drop * (1 + rng.standard_normal((studies, seeds)) / 3)
        fall_RS = learner.fall * best_RS * (1 + rng.standard_normal((studies, seeds)) / 10)
        lost_RS = np.where(rng.random((studies, seeds)) < learner.unstable, fall_RS, drop_RS)
        return np.stack([start_RS, best_RS, best_RS - np.maximum(lost_RS, 0.0)], axis=-1)

    return ArmPair(arm(first), np.stack([arm(learner) for learner in second], axis=1))


def answers(
    rng: Generator,
    seed_sd: float,
    item_sd: float,
    studies: int,
    seeds: int,
    items: int = 64,
    collapse: float = 0.0,
) -> ArmPair:
    """Scores problem by problem, [R, S, I], whose pair differences vary by `seed_sd` over runs and
    by `item_sd` because answers are finitely many; a share `collapse` of b's runs ends 6 lower. All
    of it in b: only differences count.
    """
    run_RSI = rng.normal(0.0, seed_sd, (studies, seeds, 1)) - 6.0 * (
        rng.random((studies, seeds, 1)) < collapse
    )
    return ArmPair(
        np.zeros((studies, seeds, items)),
        run_RSI + rng.normal(0.0, item_sd * np.sqrt(items), (studies, seeds, items)),
    )


class Benchmark(NamedTuple):
    """How a benchmark is asked: `items` problems with `samples` answers each. `arm_by_item`: sd, in
    logits, of what an arm does to a problem's difficulty, mean zero over problems. `ungraded`: the
    share of each arm's answers that the grader fails on, whatever they say; of a problem at least
    one is graded."""

    items: int
    samples: int
    arm_by_item: float = 0.0
    ungraded: tuple[float, float] = (0.0, 0.0)


def benchmark_scores(rng: Generator, bench: Benchmark, studies: int, seeds: int) -> ArmPair:
    """Share of right answers, [R, S, I]; logit p = item N(-.5, 2) + pair N(0, .2) + run N(0, .15) +
    N(0, .3).

    The arm x item effect is drawn for each arm with arm_by_item / sqrt(2), so that the arms stay
    exchangeable and the true difference over new problems is exactly 0.
    """
    item_RSI = rng.normal(-0.5, 2.0, (studies, 1, bench.items))
    pair_RSI = rng.normal(0.0, 0.2, (studies, seeds, 1))

    def arm(ungraded: float) -> Floats:
        logit_RSI = item_RSI + pair_RSI + rng.normal(0.0, 0.15, (studies, seeds, 1))
        logit_RSI = logit_RSI + rng.normal(0.0, 0.3, (studies, seeds, bench.items))
        if bench.arm_by_item:
            logit_RSI += rng.normal(0.0, bench.arm_by_item / np.sqrt(2), (studies, 1, bench.items))
        graded: int | Integers = bench.samples
        if ungraded:
            graded = np.maximum(1, rng.binomial(bench.samples, 1 - ungraded, logit_RSI.shape))
        return rng.binomial(graded, special.expit(logit_RSI)) / graded

    return ArmPair(*(arm(share) for share in bench.ungraded))


DOSES = (7e-4, 9e-4, 1.15e-3, 1.5e-3, 1.9e-3)
"""Of a simulated sweep, J = 5."""


def sweeps(rng: Generator, studies: int, seeds: int, arms: int, apart: float) -> ArmPair:
    """Which runs collapse (0 or 1) of a sweep over DOSES: of a baseline [R, S, J], of `arms` others
    [R, M, S, J].

    In decades a run's collapse point is log10(1.15e-3) plus what its seed's starting model does to
    all arms, N(0, .08), what it does to this arm, N(0, apart), and what this run has by itself,
    N(0, .05).
    """
    start_R1S1 = rng.normal(0.0, 0.08, (studies, 1, seeds, 1))
    arm_RMS1 = rng.normal(0.0, apart, (studies, arms + 1, seeds, 1))
    own_RMSJ = rng.normal(0.0, 0.05, (studies, arms + 1, seeds, len(DOSES)))
    points_RMSJ = np.log10(1.15e-3) + start_R1S1 + arm_RMS1 + own_RMSJ
    collapsed_RMSJ = (np.log10(DOSES) > points_RMSJ).astype(np.float64)
    return ArmPair(collapsed_RMSJ[:, 0], collapsed_RMSJ[:, 1:])


def curves(rng: Generator, studies: int, seeds: int, steps: int = 500) -> ArmPair:
    """Reward per step, [R, S, T]: offset N(0, .3) per run, random walk .05 a step, noise .5; arms
    independent.
    """

    def arm() -> Floats:
        walk_RST = rng.normal(0.0, 0.05, (studies, seeds, steps)).cumsum(axis=2)
        return (
            walk_RST
            + rng.normal(0.0, 0.3, (studies, seeds, 1))
            + rng.normal(0.0, 0.5, (studies, seeds, steps))
        )

    return ArmPair(arm(), arm())


RESAMPLES = 1000

Expectation = Literal[
    "inside the band", "at most the band", "at most half", "must fail", "stated", "told"
]
"""The condition on a rate, by alpha's exact binomial band; "at most half" by that of alpha / 2.
"stated": no rule keeps alpha there, so reports state the measured rate. "told": a power, without a
condition."""


class Conclusion(NamedTuple):
    """What a method said of one study: a false alarm or not, and the width of its interval (None:
    it gives words).
    """

    alarm: bool
    width: float | None


Judge = Callable[[Floats, Floats, float, Generator], Conclusion | None]


class Method(NamedTuple):
    """`judge(a, b, alpha, rng)` of one study, None without an interval; a method that must fail
    exceeds `least`.
    """

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


def _decided(summary: Callable[[Floats], Floats] = lambda arm_S: arm_S) -> Judge:
    """The interval of one number per seed, as `summary` makes it of what was drawn of an arm."""

    def judge(a: Floats, b: Floats, alpha: float, rng: Generator) -> Conclusion | None:
        paired = decide(summary(a), summary(b), margin=1.0, alpha=alpha).paired
        return _conclusion(paired.low, paired.high)

    return judge


def _words(a_S: Floats, b_S: Floats, alpha: float, rng: Generator) -> Conclusion:
    """With b truly one margin ahead, "beyond margin", "equivalent" and "a is better" are all
    untrue.
    """
    verdict = decide(a_S, b_S + 1.0, margin=1.0, alpha=alpha, labels=("a", "b"))
    untrue = verdict.word in (*BEYOND, EQUIVALENT) or verdict.direction < 0
    return Conclusion(untrue, None)


def _better(
    looks: tuple[int, ...] = (), *, contrast: bool = False, in_order: bool = False
) -> Judge:
    """Whether any arm is called better at the first look that resolves all; seeds behind the last
    look do not count.

    Arms share alpha by Holm's rule, or are tested `in_order`. With `contrast` the mean of the last
    two of four arms is held against the mean of the baseline and the first."""

    def judge(a_S: Floats, b: Floats, alpha: float, rng: Generator) -> Conclusion:
        arms = [b] if b.ndim == 1 else list(b)
        if contrast:
            a_S = (a_S + arms[0]) / 2
            arms = [(arms[1] + arms[2]) / 2]
        names = tuple(f"arm {place}" for place in range(len(arms)))
        rule = Rule(1.0, alpha, looks, order=names if in_order else ())
        _, verdicts = first_resolving(
            looks or (len(a_S),),
            lambda n: decide_all(
                [
                    Scores(a_S[:n], b_S[:n], ("a", name))
                    for name, b_S in zip(names, arms, strict=True)
                ],
                rule,
            ),
            lambda verdicts: all(verdict.resolved for verdict in verdicts),
        )
        return Conclusion(any(verdict.better is not None for verdict in verdicts), None)

    return judge


def _any_below(pairs: Iterable[tuple[Floats, Floats]], alpha: float) -> Conclusion:
    """As if each of the pairs had alpha to itself."""
    p_values = [paired_t(b_S - a_S, alpha).p for a_S, b_S in pairs]
    return Conclusion(any(p is not None and p < alpha for p in p_values), None)


def _each_by_itself(a_S: Floats, b_MS: Floats, alpha: float, rng: Generator) -> Conclusion:
    return _any_below(((a_S, b_S) for b_S in b_MS), alpha)


def _seed_by_seed(a_S: Floats, b_S: Floats, alpha: float, rng: Generator) -> Conclusion:
    """As if a seed might be added until the plain interval excludes 0."""
    return _any_below(((a_S[:n], b_S[:n]) for n in range(LEAST_SEEDS, len(a_S) + 1)), alpha)


def _stability(*alarms: str) -> Judge:
    """Whether any arm gets one of these words.

    A run is unstable if it ends below half of its best score.
    """

    def runs(arm_S3: Floats) -> ArmRuns:
        start_S, best_S, final_S = arm_S3.T
        return ArmRuns(best_S, final_S, start_S, (int((final_S < best_S / 2).sum()), len(final_S)))

    def judge(a_S3: Floats, b_MS3: Floats, alpha: float, rng: Generator) -> Conclusion:
        pairs = [RunPairs(runs(a_S3), runs(second_S3)) for second_S3 in b_MS3]
        verdicts = decide_stability(pairs, Rule(MARGIN, alpha))
        return Conclusion(any(verdict.word in alarms for verdict in verdicts), None)

    return judge


def _shifted(a_SJ: Floats, b_MSJ: Floats, alpha: float, rng: Generator) -> Conclusion:
    """Whether seeds tell any arm of a sweep apart.

    A ratio of doses asks for this and for its likelihood besides.
    """
    seeds_N = np.repeat(np.arange(len(a_SJ)), len(DOSES)).tolist()
    first, *treatments = (
        (np.tile(np.log10(DOSES), len(a_SJ)), arm_SJ.ravel(), seeds_N) for arm_SJ in (a_SJ, *b_MSJ)
    )
    steps = step_down([seed_shifts(first, second, alpha).p for second in treatments], alpha)
    return Conclusion(any(step.rejected for step in steps), None)


def _equivalent(difference: float) -> Judge:
    """Whether "equivalent within the margin" is said at this true difference, in margins."""

    def judge(a_SI: Floats, b_SI: Floats, alpha: float, rng: Generator) -> Conclusion:
        alone = items_variance(b_SI - a_SI)
        a_S = a_SI.mean(axis=1)
        b_S = b_SI.mean(axis=1) + difference
        return Conclusion(
            decide(a_S, b_S, 1.0, alpha, items_variance=alone).word == EQUIVALENT,
            None,
        )

    return judge


def _inside(difference: float) -> Judge:
    """Version 0.1: the plain interval inside the margin, whatever the answers vary, from three
    pairs on.
    """

    def judge(a_SI: Floats, b_SI: Floats, alpha: float, rng: Generator) -> Conclusion:
        plain = paired_t(b_SI.mean(axis=1) - a_SI.mean(axis=1) + difference, alpha)
        return Conclusion(
            verdict_label(plain.low or 0.0, plain.high or 0.0, 1.0) == EQUIVALENT,
            None,
        )

    return judge


def _by_seed_and_item(
    a_SI: Floats, b_SI: Floats, alpha: float, rng: Generator
) -> Conclusion | None:
    both = two_way(b_SI - a_SI, alpha, scale=1.0)
    return _conclusion(both.low, both.high)


def _areas(arm_ST: Floats) -> Floats:
    return np.array([normalised_auc(np.arange(arm_ST.shape[1]), run_T) for run_T in arm_ST])


def _tails(arm_ST: Floats) -> Floats:
    return np.array([last_fifth(run_T) for run_T in arm_ST])


def _resampled_seeds(a_S: Floats, b_S: Floats, alpha: float, rng: Generator) -> Conclusion | None:
    d_S = b_S - a_S
    means = d_S[rng.integers(len(d_S), size=(RESAMPLES, len(d_S)))].mean(axis=1)
    low, high = np.quantile(means, [alpha / 2, 1 - alpha / 2])
    return _conclusion(float(low), float(high))


def _items_only(a_SI: Floats, b_SI: Floats, alpha: float, rng: Generator) -> Conclusion | None:
    items = paired_t((b_SI - a_SI).mean(axis=0), alpha)
    return _conclusion(items.low, items.high)


def _steps_of_one_seed(
    a_ST: Floats, b_ST: Floats, alpha: float, rng: Generator
) -> Conclusion | None:
    from scipy import stats  # half a second to import, and only calibration asks

    interval = stats.ttest_ind(b_ST[0, -100:], a_ST[0, -100:], equal_var=False).confidence_interval(
        1 - alpha
    )
    return _conclusion(float(interval.low), float(interval.high))


def _conclusion(low: float | None, high: float | None) -> Conclusion | None:
    return None if low is None or high is None else Conclusion(low > 0 or high < 0, high - low)


LOOKS = (5, 8)
MARGIN = 0.02
"""Of stability, in points of score."""
SEED_SDS = (0.3, 0.5, 0.8)
ITEM_SD = 0.5
"""Standard deviations of a pair's difference in margins: over runs, and because answers are
finitely many.
"""


def _noisy(seed_sd: float) -> str:
    return f"seed sd {seed_sd:g}, answers' sd {ITEM_SD:g} margins"


EXACT = Method("paired t over seeds", _decided(), "inside the band")
PAIRED = Method("paired t over seeds", _decided(), "at most the band")
WORDS = Method("words, true difference = margin", _words, "at most the band")
BOOTSTRAP = Method("bootstrap over seeds", _resampled_seeds, "must fail", 0.15)
TWO_WAY = Method("two-way, seeds and items", _by_seed_and_item, "at most the band")
ITEM_MEANS = Method(
    "paired t over seeds", _decided(lambda arm_SI: arm_SI.mean(axis=1)), "at most the band"
)
ITEMS_ONLY = Method("items only, seeds pooled", _items_only, "must fail", 0.15)
AREA = Method("area under the curve, paired t", _decided(_areas), "at most the band")
TAIL = Method("last fifth, paired t", _decided(_tails), "at most the band")
ONE_SEED = Method("last 100 steps of one seed, Welch", _steps_of_one_seed, "must fail", 0.5)
HOLM = Method("better, of any arm, Holm", _better(), "at most the band")
UNADJUSTED = Method("each arm by its own interval", _each_by_itself, "must fail", 0.09)
LOOKED = Method("better, at any look", _better(LOOKS), "at most the band")
ADDED = Method("better, by the 5 declared of 10 seeds", _better((5,)), "at most the band")
ONE_BY_ONE = Method("a seed at a time, first hit counts", _seed_by_seed, "must fail", 0.1)
UNEVEN_PAIRED = Method("paired t, means equal", _decided(), "stated")
UNEVEN_HOLM = Method("better, of any arm, Holm, means equal", _better(), "stated")
UNEVEN_CONTRAST = Method("better, by the contrast, means equal", _better(contrast=True), "stated")
UNEVEN_ORDER = Method("better, of any arm, in order, means equal", _better(in_order=True), "stated")
UNEVEN_CONTRAST_LOOKED = Method(
    "better, by the contrast, any look, means equal", _better(LOOKS, contrast=True), "stated"
)
UNEVEN_ORDER_LOOKED = Method(
    "better, in order, any look, means equal", _better(LOOKS, in_order=True), "stated"
)
UNEVEN_LOOKED = Method("better, at any look, means equal", _better(LOOKS), "stated")
STABLE = Method("more or less stable", _stability("more stable", "less stable"), "at most the band")
STABLER = Method("more stable", _stability("more stable"), "at most the band")
STABLE_POWER = Method("more stable, of any arm", _stability("more stable"), "told")
SWEPT = Method("any ratio of doses, Holm, by seeds", _shifted, "at most the band")
AT_MARGIN = Method("equivalent, truth: the margin", _equivalent(1.0), "at most half")
AT_ZERO = Method("equivalent, truth: no difference", _equivalent(0.0), "told")
UNSEEN = Method("equivalent, truth: 15 % of runs collapse", _equivalent(0.0), "told")
FORMER = Method("equivalent by version 0.1, no difference", _inside(0.0), "told")

HOLDING = Learner(0.35, 0.03, unstable=1 / 7)
FALLING = Learner(0.35, 0.03, unstable=3 / 7)
FAST = Learner(0.40, 0.12, unstable=0.15)
SLOW = Learner(0.40 - FAST.loss - 0.05, 0.02)
"""Loses next to nothing and ends .07 below FAST."""
EVEN = Learner(0.35, HOLDING.loss)
"""Loses as much as HOLDING on average, and every run alike."""
STABILITY = {
    "stability: 3 of 7 runs of either arm unstable": (FALLING, [FALLING], (3, 5, 7), STABLE),
    "stability: a slow learner ends .07 below": (FAST, [SLOW], (5, 7), STABLER),
    "stability: equal mean drops of unequal shape": (EVEN, [HOLDING], (5, 7, 8), STABLE),
    "stability: 3 of 7 runs unstable, 1 of 7 of the arm": (
        FALLING,
        [HOLDING],
        (7, 10),
        STABLE_POWER,
    ),
    "stability: 3 of 7 runs unstable, 1 of 7 of four arms": (
        FALLING,
        [HOLDING] * 4,
        (7, 10),
        STABLE_POWER,
    ),
}
"""A baseline and its arms, pairs, and what is asked."""

Cells = tuple[str, Sequence[int], Callable[..., ArmPair], tuple[Method, ...]]
"""Kinds of study that differ in their number of pairs: a name, these numbers, how one is drawn, and
the methods.
"""


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
        (
            "benchmark 30 x 16, arms favour other items",
            Benchmark(30, 16, arm_by_item=0.7),
            (TWO_WAY,),
        ),
    ):
        yield name, (3, 5), partial(benchmark_scores, bench=bench), methods
    ungraded = Benchmark(30, 16, ungraded=(0.0, 0.2))
    yield (
        "benchmark 30 x 16, b: a fifth not graded",
        (5,),
        partial(benchmark_scores, bench=ungraded),
        (ITEM_MEANS,),
    )
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
        yield (
            f"4 arms against one, {name}",
            (3, 5, 7, 8),
            partial(draw_arms, arms=4, noise=noise),
            (UNEVEN_HOLM,),
        )
    for name, noise in UNEVEN.items():
        yield f"{name}, {looked}", last, partial(scores, noise=noise), (UNEVEN_LOOKED,)
    for name, (first, second, sizes, method) in STABILITY.items():
        yield name, sizes, partial(courses, first=first, second=second), (method,)
    for name, sd in (("alike for all arms", 0.0), ("vary by arm", 0.08)):
        for arms in (2, 3):
            drawn = partial(sweeps, arms=arms, apart=sd)
            yield f"sweep, {arms} arms against one, starts {name}", (4, 8), drawn, (SWEPT,)
    # A declared contrast and a declared order of the four arms of a 2 x 2 design, at once and with
    # looks.
    at_once = (UNEVEN_CONTRAST, UNEVEN_ORDER)
    in_looks = (UNEVEN_CONTRAST_LOOKED, UNEVEN_ORDER_LOOKED)
    unstable = next(iter(UNEVEN))
    for name, noise in {"normal": NOISE["normal"], unstable: UNEVEN[unstable]}.items():
        for when, stated, pairs in (("", at_once, (3, 5, 8)), (f", {looked}", in_looks, last)):
            held = tuple(
                Method(m.name.removesuffix(", means equal"), m.judge, "at most the band")
                for m in stated
            )
            drawn = partial(draw_arms, arms=3, noise=noise)
            yield f"2 x 2, {name}{when}", pairs, drawn, held if name == "normal" else stated


CELLS = tuple(
    Cell(name, n, partial(draw, seeds=n), methods)
    for name, sizes, draw, methods in _kinds()
    for n in sizes
)
