"""The kinds of study that the calibration simulates, and who judges them: production's code, and
some known to fail.

`simulation_draws.py` draws the studies and has the shapes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Literal, NamedTuple

import numpy as np
from numpy.random import Generator

from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.analysis.stats.curve_summaries import last_fifth, normalised_auc
from gspo_lab.analysis.stats.ed50 import seed_shifts
from gspo_lab.analysis.stats.levels import first_resolving, step_down
from gspo_lab.analysis.stats.moderated import contrast_variance
from gspo_lab.analysis.stats.paired import LEAST_SEEDS, items_variance, paired_t, two_way
from gspo_lab.analysis.stats.simulation_draws import (
    DOSES,
    NOISE,
    SKEWED,
    UNEVEN,
    UNSTABLE,
    ArmPair,
    Benchmark,
    Learner,
    NoiseSampler,
    answers,
    benchmark_scores,
    courses,
    curves,
    deep_falls_noise,
    draw_block,
    lognormal_noise,
    noisy_noise,
    normal_noise,
    often_unstable_noise,
    scores,
    small_noise,
    sweeps,
    unstable_noise,
)
from gspo_lab.analysis.stats.stability import ArmRuns, RunPairs, decide_stability
from gspo_lab.analysis.stats.verdict import (
    BEYOND,
    EQUIVALENT,
    Comparison,
    Rule,
    Scores,
    Verdict,
    decide,
    decide_all,
)
from gspo_lab.common.plain_data import OptionalFloat

RESAMPLES = 1000

Expectation = Literal[
    "inside the band", "at most the band", "at most half", "must fail", "stated", "power"
]
"""The condition on a rate, by alpha's exact binomial band; "at most half" by that of alpha / 2.
"must fail": the rate exceeds 1.5 alpha. "stated": no rule keeps alpha there, so reports state the
measured rate. "power": the share of true answers, without a condition."""


class Conclusion(NamedTuple):
    """What a method said of one study: whether it was untrue, and whom an untrue word favours."""

    untrue: bool
    for_baseline: bool = False
    for_treatment: bool = False


Judge = Callable[[Floats, Floats, float, Generator], Conclusion]


class Method(NamedTuple):
    """`judge(a, b, alpha, rng)` of one study."""

    name: str
    judge: Judge
    expectation: Expectation


class Cell(NamedTuple):
    """One kind of study, `draw(rng, studies=...)`, and the methods put to it."""

    name: str
    n: int
    draw: Callable[..., ArmPair]
    methods: tuple[Method, ...]


def _interval(low: OptionalFloat, high: OptionalFloat, truth: float = 0.0) -> Conclusion:
    """Whether the interval misses the true difference; None: no interval, and nothing untrue."""
    above = low is not None and low > truth
    below = high is not None and high < truth
    return Conclusion(above or below, below, above)


def _favours(verdicts: Iterable[Verdict]) -> Conclusion:
    """Of studies in which nothing differs, whether any arm is called better or worse."""
    directions = {verdict.direction for verdict in verdicts}
    return Conclusion(bool(directions - {0}), -1 in directions, 1 in directions)


def _decided(summary: Callable[[Floats], Floats] = lambda arm_S: arm_S) -> Judge:
    """The interval of one number per seed, as `summary` makes it of what was drawn of an arm."""

    def judge(a: Floats, b: Floats, alpha: float, rng: Generator) -> Conclusion:
        paired = decide(summary(a), summary(b), margin=1.0, alpha=alpha).paired
        return _interval(paired.low, paired.high)

    return judge


def _words(a_S: Floats, b_S: Floats, alpha: float, rng: Generator) -> Conclusion:
    """With b truly one margin ahead, "beyond margin", "equivalent" and "a is better" are all
    untrue.
    """
    verdict = decide(a_S, b_S + 1.0, margin=1.0, alpha=alpha, labels=("a", "b"))
    worse = verdict.direction < 0
    beyond = verdict.word == BEYOND[0]
    return Conclusion(worse or beyond or verdict.word == EQUIVALENT, worse, beyond)


def _better(looks: tuple[int, ...] = (), *, in_order: bool = False) -> Judge:
    """Whether any arm is called better or worse at the first look that resolves all; seeds behind
    the last look do not count. Arms share alpha by Holm's rule, or are tested `in_order`.
    """

    def judge(a_S: Floats, b: Floats, alpha: float, rng: Generator) -> Conclusion:
        treatments = np.atleast_2d(b)
        names = tuple(f"arm {place}" for place in range(len(treatments)))
        rule = Rule(NARROW, alpha, looks, order=names if in_order else ())

        def verdicts(n: int) -> list[Comparison]:
            pairs = zip(names, treatments, strict=True)
            arms = [Scores(a_S[:n], b_S[:n], ("a", name)) for name, b_S in pairs]
            return decide_all(arms, rule)

        return _favours(_at_first_look(verdicts, looks or (len(a_S),)))

    return judge


CONTRAST = (-0.5, -0.5, 0.5, 0.5)
"""Weights of the four arms of a 2 x 2: one side is the baseline and the first treatment."""


def _contrast_scores(scores_AS: Floats) -> Scores:
    estimated = contrast_variance(scores_AS, CONTRAST)
    return Scores(scores_AS[:2].mean(axis=0), scores_AS[2:].mean(axis=0), estimated=estimated)


def _contrast(looks: tuple[int, ...] = ()) -> Judge:
    """Whether a side of the 2 x 2 is called better at the first look that resolves it."""

    def judge(a_S: Floats, b_MS: Floats, alpha: float, rng: Generator) -> Conclusion:
        scores_AS = np.vstack([a_S, b_MS])
        rule = Rule(NARROW, alpha, looks)
        return _favours(
            _at_first_look(
                lambda n: decide_all([_contrast_scores(scores_AS[:, :n])], rule),
                looks or (len(a_S),),
            )
        )

    return judge


def _contrast_of_effect(a_S: Floats, b_MS: Floats, alpha: float, rng: Generator) -> Conclusion:
    """Whether the interval misses a true difference of EFFECT."""
    contrast = _contrast_scores(np.vstack([a_S, b_MS[0], b_MS[1:] + EFFECT]))
    paired = decide_all([contrast], Rule(NARROW, alpha))[0].paired
    return _interval(paired.low, paired.high, truth=EFFECT)


def _at_first_look(
    judge: Callable[[int], list[Comparison]], looks: tuple[int, ...]
) -> list[Comparison]:
    _, verdicts = first_resolving(
        looks, judge, lambda verdicts: all(verdict.resolved for verdict in verdicts)
    )
    return verdicts


def _any_below(pairs: Iterable[tuple[Floats, Floats]], alpha: float) -> Conclusion:
    """As if each of the pairs had alpha to itself."""
    p_values = [paired_t(b_S - a_S, alpha).p for a_S, b_S in pairs]
    return Conclusion(any(p is not None and p < alpha for p in p_values))


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
        pairs = [RunPairs(runs(a_S3), runs(b_S3)) for b_S3 in b_MS3]
        verdicts = decide_stability(pairs, Rule(MARGIN, alpha))
        return _favours(verdict for verdict in verdicts if verdict.word in alarms)

    return judge


def _shifted(a_SJ: Floats, b_MSJ: Floats, alpha: float, rng: Generator) -> Conclusion:
    """Whether seeds tell any arm of a sweep apart.

    A ratio of doses asks for this and for its likelihood besides.
    """
    seeds_N = np.repeat(np.arange(len(a_SJ)), len(DOSES)).tolist()
    doses_N = np.tile(np.log10(DOSES), len(a_SJ))
    baseline = (doses_N, a_SJ.ravel(), seeds_N)
    p_values = [seed_shifts(baseline, (doses_N, b_SJ.ravel(), seeds_N), alpha).p for b_SJ in b_MSJ]
    return Conclusion(any(step.rejected for step in step_down(p_values, alpha)))


def _equivalent(difference: float) -> Judge:
    """Whether "equivalent within the margin" is said at this true difference, in margins."""

    def judge(a_SI: Floats, b_SI: Floats, alpha: float, rng: Generator) -> Conclusion:
        answers_variance = items_variance(b_SI - a_SI)
        a_S = a_SI.mean(axis=1)
        b_S = b_SI.mean(axis=1) + difference
        verdict = decide(a_S, b_S, 1.0, alpha, items_variance=answers_variance)
        return Conclusion(verdict.word == EQUIVALENT)

    return judge


def _by_seed_and_item(a_SI: Floats, b_SI: Floats, alpha: float, rng: Generator) -> Conclusion:
    crossed = two_way(b_SI - a_SI, alpha, scale=1.0)
    return _interval(crossed.low, crossed.high)


def _areas(arm_ST: Floats) -> Floats:
    return np.array([normalised_auc(np.arange(arm_ST.shape[1]), run_T) for run_T in arm_ST])


def _tails(arm_ST: Floats) -> Floats:
    return np.array([last_fifth(run_T) for run_T in arm_ST])


def _resampled_seeds(a_S: Floats, b_S: Floats, alpha: float, rng: Generator) -> Conclusion:
    d_S = b_S - a_S
    means = d_S[rng.integers(len(d_S), size=(RESAMPLES, len(d_S)))].mean(axis=1)
    low, high = np.quantile(means, [alpha / 2, 1 - alpha / 2])
    return _interval(float(low), float(high))


def _items_only(a_SI: Floats, b_SI: Floats, alpha: float, rng: Generator) -> Conclusion:
    items = paired_t((b_SI - a_SI).mean(axis=0), alpha)
    return _interval(items.low, items.high)


def _steps_of_one_seed(a_ST: Floats, b_ST: Floats, alpha: float, rng: Generator) -> Conclusion:
    from scipy import stats  # half a second to import, and only calibration asks

    test = stats.ttest_ind(b_ST[0, -100:], a_ST[0, -100:], equal_var=False)
    interval = test.confidence_interval(1 - alpha)
    return _interval(float(interval.low), float(interval.high))


LOOKS = (5, 8)
MARGIN = 0.02
"""Of stability, in points of score."""
NARROW = 0.4
"""Of words on arms and contrasts, in standard deviations of a run's own noise. It is as narrow as
in the shipped main study: a wider one turns false words into equivalence."""
EFFECT = 1.8
"""The size of the contrast in the shipped main study, in standard deviations of a pair's contrast
(which is 1 here)."""
SEED_SDS = (0.3, 0.5, 0.8)
ITEM_SD = 0.5
"""Standard deviations of a pair's difference in margins: over runs, and because answers are
finitely many.
"""

EXACT = Method("paired t over seeds", _decided(), "inside the band")
PAIRED = Method("paired t over seeds", _decided(), "at most the band")
WORDS = Method("words, true difference = margin", _words, "at most the band")
BOOTSTRAP = Method("bootstrap over seeds", _resampled_seeds, "must fail")
TWO_WAY = Method("two-way, seeds and items", _by_seed_and_item, "at most the band")
ITEM_MEANS = Method(
    "paired t over seeds", _decided(lambda arm_SI: arm_SI.mean(axis=1)), "at most the band"
)
ITEMS_ONLY = Method("items only, seeds pooled", _items_only, "must fail")
AREA = Method("area under the curve, paired t", _decided(_areas), "at most the band")
TAIL = Method("last fifth, paired t", _decided(_tails), "at most the band")
ONE_SEED = Method("last 100 steps of one seed, Welch", _steps_of_one_seed, "must fail")
HOLM = Method("any arm better or worse, Holm", _better(), "at most the band")
IN_ORDER = Method("any arm better or worse, in order", _better(in_order=True), "at most the band")
UNADJUSTED = Method("each arm by its own interval", _each_by_itself, "must fail")
LOOKED = Method("better or worse, at any look", _better(LOOKS), "at most the band")
LOOKED_IN_ORDER = Method("in order, at any look", _better(LOOKS, in_order=True), "at most the band")
ADDED = Method("by the 5 declared of 10 seeds", _better((5,)), "at most the band")
ONE_BY_ONE = Method("a seed at a time, first hit counts", _seed_by_seed, "must fail")
BY_CONTRAST = Method("contrast, better or worse", _contrast(), "at most the band")
CONTRAST_LOOKED = Method("contrast, at any look", _contrast(LOOKS), "at most the band")
CONTRAST_COVERS = Method("contrast, interval misses 1.8", _contrast_of_effect, "inside the band")
STABLE = Method("more or less stable", _stability("more stable", "less stable"), "at most the band")
STABLER = Method("more stable", _stability("more stable"), "at most the band")
STABLE_POWER = Method("more stable, of any arm", _stability("more stable"), "power")
SWEPT = Method("any ratio of values, Holm, by seeds", _shifted, "at most the band")
AT_MARGIN = Method("equivalent, truth: the margin", _equivalent(1.0), "at most half")
AT_ZERO = Method("equivalent, truth: no difference", _equivalent(0.0), "power")
UNSEEN = Method("equivalent, truth: 15 % of runs collapse", _equivalent(0.0), "power")


def stated(method: Method) -> Method:
    """The same where no rule keeps alpha."""
    return method._replace(expectation="stated")


def kinds(
    name: str, sizes: Sequence[int], draw: Callable[..., ArmPair], *methods: Method
) -> list[Cell]:
    """Kinds of study that differ in their number of pairs, `sizes`."""
    return [Cell(name, n, partial(draw, seeds=n), methods) for n in sizes]


def _pairs() -> list[Cell]:
    cells = []
    for name, noise in NOISE.items():
        draw = partial(scores, noise=noise)
        if name == "normal":
            cells += kinds("score, normal", (3,), draw, EXACT, WORDS, BOOTSTRAP)
            cells += kinds("score, normal", (4, 5, 8), draw, EXACT, WORDS)
        else:
            cells += kinds(f"score, {name}", (3, 4, 5, 8), draw, PAIRED)
    for name, noise in UNEVEN.items():
        draw = partial(scores, noise=noise)
        cells += kinds(f"score, {name}", (3, 5, 8, 10), draw, stated(PAIRED))
    return cells


def _benchmarks() -> list[Cell]:
    small = Benchmark(30, 16)
    benchmarks = {
        "benchmark 30 x 16": (small, (TWO_WAY, ITEM_MEANS)),
        "benchmark 400 x 4": (Benchmark(400, 4), (TWO_WAY, ITEM_MEANS, ITEMS_ONLY)),
        "benchmark 30 x 16, arms favour other items": (
            small._replace(arm_by_item=0.7),
            (TWO_WAY,),
        ),
    }
    cells = []
    for name, (bench, methods) in benchmarks.items():
        cells += kinds(name, (3, 5), partial(benchmark_scores, bench=bench), *methods)
    draw = partial(benchmark_scores, bench=small._replace(ungraded=(0.0, 0.2)))
    return cells + kinds("benchmark 30 x 16, b: a fifth not graded", (5,), draw, ITEM_MEANS)


BASELINE_UNSTABLE = "15 % of the baseline's runs unstable"
TREATMENTS_UNSTABLE = "20 % of every treatment's runs unstable"
BASELINE_NOISY = "the baseline 4x as noisy"
BASELINE_SKEWED = "the baseline skewed"
TREATMENTS_SKEWED = "every treatment skewed"
UNEVEN_FAMILIES: Mapping[str, tuple[tuple[int, ...], NoiseSampler, NoiseSampler]] = {
    BASELINE_NOISY: ((2, 3, 5), noisy_noise, normal_noise),
    BASELINE_UNSTABLE: ((2, 4), unstable_noise, normal_noise),
    TREATMENTS_UNSTABLE: ((2, 3), normal_noise, often_unstable_noise),
    BASELINE_SKEWED: ((2, 4), lognormal_noise, small_noise),
    TREATMENTS_SKEWED: ((2, 3), small_noise, lognormal_noise),
}
"""Numbers of treatments, the baseline's noise and that of every treatment."""


def against_one(treatments: int, name: str = "") -> str:
    """The name of a cell of several arms against one baseline."""
    return f"{treatments} arms against one" + (f", {name}" if name else "")


def _families() -> list[Cell]:
    cells = []
    for treatments, sizes in ((2, (3, 5, 10)), (3, (3, 5, 10)), (5, (3, 5, 10)), (11, (10,))):
        draw = partial(draw_block, noises=tuple(repeat(normal_noise, 1 + treatments)))
        methods = (HOLM,) if treatments < 5 else (HOLM, UNADJUSTED)
        cells += kinds(against_one(treatments), sizes, draw, *methods)
    draw = partial(draw_block, noises=(normal_noise, noisy_noise, normal_noise))
    cells += kinds(against_one(2, "one of them 4x as noisy"), (3, 5, 10), draw, stated(HOLM))
    for name, (families, baseline, treatment) in UNEVEN_FAMILIES.items():
        for treatments in families:
            draw = partial(draw_block, noises=(baseline, *repeat(treatment, treatments)))
            cells += kinds(against_one(treatments, name), (3, 5, 10), draw, stated(HOLM))
    return cells


AT_LOOKS = f"looks after {LOOKS[0]} and {LOOKS[1]}"


def _looks() -> list[Cell]:
    cells = []
    for name, noise in NOISE.items():
        cells += kinds(f"{name}, {AT_LOOKS}", LOOKS[-1:], partial(scores, noise=noise), LOOKED)
    for name, noise in UNEVEN.items():
        draw = partial(scores, noise=noise)
        cells += kinds(f"{name}, {AT_LOOKS}", LOOKS[-1:], draw, stated(LOOKED))
    normal = partial(scores, noise=NOISE["normal"])
    cells += kinds("normal, seeds added later", (10,), normal, ADDED)
    cells += kinds("normal, seeds added later", (12,), normal, ONE_BY_ONE)
    return cells


def _equivalences() -> list[Cell]:
    cells = []
    for sd in SEED_SDS:
        name = f"seed sd {sd:g}, answers' sd {ITEM_SD:g} margins"
        draw = partial(answers, seed_sd=sd, item_sd=ITEM_SD)
        cells += kinds(name, (5, 8), draw, AT_MARGIN, AT_ZERO)
    name = f"seed sd {SEED_SDS[0]:g}, answers' sd {ITEM_SD:g} margins, b collapses"
    draw = partial(answers, seed_sd=SEED_SDS[0], item_sd=ITEM_SD, collapse=0.15)
    return cells + kinds(name, (5, 8), draw, UNSEEN)


def _curves() -> list[Cell]:
    cells = kinds("curve, 500 steps", (3,), curves, AREA, TAIL, ONE_SEED)
    return cells + kinds("curve, 500 steps", (5,), curves, AREA, TAIL)


def _stabilities() -> list[Cell]:
    holding = Learner(0.35, 0.03, unstable=1 / 7)
    falling = Learner(0.35, 0.03, unstable=3 / 7)
    fast = Learner(0.40, 0.12, unstable=0.15)
    slow = Learner(0.40 - fast.loss - 0.05, 0.02)  # loses next to nothing, ends .07 below `fast`
    even = Learner(0.35, holding.loss)  # loses as much as `holding` on average, every run alike

    def compared(
        name: str, sizes: Sequence[int], learners: Sequence[Learner], method: Method
    ) -> list[Cell]:
        draw = partial(courses, baseline=learners[0], treatments=learners[1:])
        return kinds(f"stability: {name}", sizes, draw, method)

    four = (falling, holding, holding, holding, holding)
    return [
        *compared("3 of 7 runs of either arm unstable", (3, 5, 7), (falling, falling), STABLE),
        *compared("a slow learner ends .07 below", (5, 7), (fast, slow), STABLER),
        *compared("equal mean drops of unequal shape", (5, 7, 8), (even, holding), STABLE),
        *compared(
            "3 of 7 runs unstable, 1 of 7 of the arm", (7, 10), (falling, holding), STABLE_POWER
        ),
        *compared("3 of 7 runs unstable, 1 of 7 of four arms", (7, 10), four, STABLE_POWER),
    ]


def _sweeps() -> list[Cell]:
    cells = []
    for name, sd in (("alike for all arms", 0.0), ("vary by arm", 0.08)):
        for arms in (2, 3):
            draw = partial(sweeps, arms=arms, arm_sd=sd)
            cells += kinds(f"sweep, {arms} arms against one, starts {name}", (4, 8), draw, SWEPT)
    return cells


SIDE_UNSTABLE = "20 % of one side's runs unstable"
SIDE_DEEP = "10 % of one side's runs fall by 12 sd"
NOISY = "one arm 4x as noisy"
UNEVEN_CONTRASTS: Mapping[str, tuple[NoiseSampler, ...]] = {
    UNSTABLE: (unstable_noise, normal_noise, normal_noise, normal_noise),
    SIDE_UNSTABLE: (often_unstable_noise, often_unstable_noise, normal_noise, normal_noise),
    SIDE_DEEP: (deep_falls_noise, deep_falls_noise, normal_noise, normal_noise),
    NOISY: (noisy_noise, normal_noise, normal_noise, normal_noise),
    SKEWED: (lognormal_noise, small_noise, small_noise, small_noise),
}
"""Noise of the four arms of a 2 x 2; the first two are the contrast's baseline."""


def _contrasts() -> list[Cell]:
    """Declared contrasts, and a declared order, of the four arms of a 2 x 2 design."""
    normal = partial(draw_block, noises=tuple(repeat(normal_noise, 4)))
    cells = kinds("2 x 2, normal", (3, 5, 10), normal, BY_CONTRAST, IN_ORDER)
    cells += kinds("2 x 2, sides 1.8 sd apart", (3, 5, 10), normal, CONTRAST_COVERS)
    looked = f"2 x 2, normal, {AT_LOOKS}"
    cells += kinds(looked, LOOKS[-1:], normal, CONTRAST_LOOKED, LOOKED_IN_ORDER)
    for name, noises in UNEVEN_CONTRASTS.items():
        draw = partial(draw_block, noises=noises)
        methods = [stated(BY_CONTRAST)]
        in_looks = [stated(CONTRAST_LOOKED)]
        if name == UNSTABLE:
            methods.append(stated(IN_ORDER))
            in_looks.append(stated(LOOKED_IN_ORDER))
        cells += kinds(f"2 x 2, {name}", (3, 5, 10), draw, *methods)
        cells += kinds(f"2 x 2, {name}, {AT_LOOKS}", LOOKS[-1:], draw, *in_looks)
    return cells


CELLS = (
    *_pairs(),
    *_benchmarks(),
    *_families(),
    *_looks(),
    *_equivalences(),
    *_curves(),
    *_stabilities(),
    *_sweeps(),
    *_contrasts(),
)
