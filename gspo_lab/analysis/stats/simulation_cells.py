"""The kinds of study that the calibration simulates, and who judges them: production's code, and
some known to fail.

`simulated_studies.toml` lists the kinds, `simulation_draws.py` draws them and has the shapes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.random import Generator

from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.analysis.stats.curve_summaries import last_fifth, normalised_auc
from gspo_lab.analysis.stats.ed50 import seed_shifts
from gspo_lab.analysis.stats.levels import first_resolving, step_down
from gspo_lab.analysis.stats.moderated import contrast_variance
from gspo_lab.analysis.stats.paired import LEAST_SEEDS, items_variance, paired_t, two_way
from gspo_lab.analysis.stats.peaks import peak_difference_variance, peak_heights
from gspo_lab.analysis.stats.simulation_draws import (
    DOSES,
    SAMPLERS,
    SKEWED,
    UNSTABLE,
    ArmPair,
    Benchmark,
    Learner,
    answers,
    benchmark_scores,
    courses,
    curves,
    draw_block,
    peaked_curves,
    scores,
    sweeps,
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
from gspo_lab.common.plain_data import Integers, OptionalFloat, table_beside

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
    expectation: Expectation = "at most the band"


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
    """Whether any arm is called better or worse in studies in which nothing differs."""
    directions = {verdict.direction for verdict in verdicts}
    return Conclusion(bool(directions - {0}), -1 in directions, 1 in directions)


def _interval_of_draws(summary: Callable[[Floats], Floats] = lambda arm_S: arm_S) -> Judge:
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


def _better(looks: Integers = (), *, in_order: bool = False) -> Judge:
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

        return _favours(_verdicts_at_stop(verdicts, looks or (len(a_S),)))

    return judge


CONTRAST = (-0.5, -0.5, 0.5, 0.5)
"""Weights of the four arms of a 2 x 2: one side is the baseline and the first treatment."""


def _contrast_scores(scores_AS: Floats) -> Scores:
    estimated = contrast_variance(scores_AS, CONTRAST)
    return Scores(scores_AS[:2].mean(axis=0), scores_AS[2:].mean(axis=0), estimated=estimated)


def _contrast(looks: Integers = ()) -> Judge:
    """Whether a side of the 2 x 2 is called better at the first look that resolves it."""

    def judge(a_S: Floats, b_MS: Floats, alpha: float, rng: Generator) -> Conclusion:
        scores_AS = np.vstack([a_S, b_MS])
        rule = Rule(NARROW, alpha, looks)
        return _favours(
            _verdicts_at_stop(
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


def _own_best(a_SD: Floats, b_SD: Floats, alpha: float, rng: Generator) -> Conclusion:
    """Whether an arm is called better with each at its own best value."""
    compared = Scores(
        peak_heights(a_SD), peak_heights(b_SD), estimated=peak_difference_variance(a_SD, b_SD)
    )
    return _favours(decide_all([compared], Rule(NARROW, alpha)))


def _verdicts_at_stop(
    judge: Callable[[int], list[Comparison]], looks: Integers
) -> list[Comparison]:
    _, verdicts = first_resolving(
        looks, judge, lambda verdicts: all(verdict.resolved for verdict in verdicts)
    )
    return verdicts


def _any_significant(pairs: Iterable[tuple[Floats, Floats]], alpha: float) -> Conclusion:
    """As if each of the pairs had alpha to itself."""
    p_values = [paired_t(b_S - a_S, alpha).p for a_S, b_S in pairs]
    return Conclusion(any(p is not None and p < alpha for p in p_values))


def _no_correction(a_S: Floats, b_MS: Floats, alpha: float, rng: Generator) -> Conclusion:
    return _any_significant(((a_S, b_S) for b_S in b_MS), alpha)


def _seed_by_seed(a_S: Floats, b_S: Floats, alpha: float, rng: Generator) -> Conclusion:
    """As if a seed might be added until the plain interval excludes 0."""
    return _any_significant(((a_S[:n], b_S[:n]) for n in range(LEAST_SEEDS, len(a_S) + 1)), alpha)


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


def _tells_apart(a_SJ: Floats, b_MSJ: Floats, alpha: float, rng: Generator) -> Conclusion:
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
"""The margin of stability, in points of score."""
NARROW = 0.4
"""The margin of verdicts on arms and contrasts, in standard deviations of a run's noise.

It is as narrow as in the shipped main study: a wider one turns false verdicts into equivalence.
"""
EFFECT = 1.8
"""The size of the contrast in the shipped main study, in standard deviations of a pair's contrast
(which is 1 here)."""
METHODS = {
    "exact": Method("paired t over seeds", _interval_of_draws(), "inside the band"),
    "paired": Method("paired t over seeds", _interval_of_draws()),
    "words": Method("words, true difference = margin", _words),
    "bootstrap": Method("bootstrap over seeds", _resampled_seeds, "must fail"),
    "two-way": Method("two-way, seeds and items", _by_seed_and_item),
    "item-means": Method(
        "paired t over seeds", _interval_of_draws(lambda arm_SI: arm_SI.mean(axis=1))
    ),
    "items-only": Method("items only, seeds pooled", _items_only, "must fail"),
    "area": Method("area under the curve, paired t", _interval_of_draws(_areas)),
    "tail": Method("last fifth, paired t", _interval_of_draws(_tails)),
    "one-seed": Method("last 100 steps of one seed, Welch", _steps_of_one_seed, "must fail"),
    "holm": Method("any arm better or worse, Holm", _better()),
    "in-order": Method("any arm better or worse, in order", _better(in_order=True)),
    "unadjusted": Method("each arm by its own interval", _no_correction, "must fail"),
    "looked": Method("better or worse, at any look", _better(LOOKS)),
    "looked-in-order": Method("in order, at any look", _better(LOOKS, in_order=True)),
    "added": Method("by the 5 declared of 10 seeds", _better((5,))),
    "one-by-one": Method("a seed at a time, first hit counts", _seed_by_seed, "must fail"),
    "by-contrast": Method("contrast, better or worse", _contrast()),
    "contrast-looked": Method("contrast, at any look", _contrast(LOOKS)),
    "contrast-covers": Method(
        "contrast, interval misses 1.8", _contrast_of_effect, "inside the band"
    ),
    "own-best": Method("each at its own best value, better or worse", _own_best),
    "own-best-plain": Method(
        "own best values by the plain paired t", _interval_of_draws(peak_heights), "must fail"
    ),
    "stable": Method("more or less stable", _stability("more stable", "less stable")),
    "stabler": Method("more stable", _stability("more stable")),
    "stable-power": Method("more stable, of any arm", _stability("more stable"), "power"),
    "swept": Method("any ratio of values, Holm, by seeds", _tells_apart),
    "at-margin": Method("equivalent, truth: the margin", _equivalent(1.0), "at most half"),
    "at-zero": Method("equivalent, truth: no difference", _equivalent(0.0), "power"),
    "unseen": Method("equivalent, truth: 15 % of runs collapse", _equivalent(0.0), "power"),
}
"""The methods, by their names in `simulated_studies.toml`."""


def stated(method: Method) -> Method:
    """The method, stated without a bound, where no rule keeps alpha."""
    return method._replace(expectation="stated")


def kinds(
    name: str, sizes: Sequence[int], draw: Callable[..., ArmPair], *methods: Method
) -> list[Cell]:
    """Kinds of study that differ in their number of pairs, `sizes`."""
    return [Cell(name, n, partial(draw, seeds=n), methods) for n in sizes]


UNEVEN_FAMILIES = {
    "one of them 4x as noisy": (2, 3, 5),
    "the baseline 4x as noisy": (2, 3, 5),
    "15 % of the baseline's runs unstable": (2, 4, 5),
    "20 % of every treatment's runs unstable": (2, 3, 5),
    "the baseline skewed": (2, 4, 5),
    "every treatment skewed": (2, 3, 5),
}
"""What is uneven where several arms stand against one, and the simulated numbers of arms."""
UNEVEN_CONTRASTS = (
    UNSTABLE,
    "20 % of one side's runs unstable",
    "10 % of one side's runs fall by 12 sd",
    "one arm 4x as noisy",
    "one side 4x as noisy",
    SKEWED,
    "one side skewed",
)
"""What is uneven among the four arms of a simulated 2 x 2."""
AT_LOOKS = f"looks after {LOOKS[0]} and {LOOKS[1]}"


def against_one(treatments: int, name: str = "") -> str:
    """The name of a cell of several arms against one baseline."""
    return f"{treatments} arms against one" + (f", {name}" if name else "")


DRAWS = {
    draw.__name__: draw
    for draw in (
        scores,
        draw_block,
        answers,
        benchmark_scores,
        courses,
        curves,
        sweeps,
        peaked_curves,
    )
}


def _argument(value: Any) -> Any:
    """An argument of a draw: a noise by its name, a learner or a benchmark by its fields."""
    if isinstance(value, str):
        return SAMPLERS[value]
    if isinstance(value, list):
        return tuple(map(_argument, value))
    if isinstance(value, dict):
        return Learner(**value) if "gain" in value else Benchmark(**value)
    return value


def _cells() -> Iterator[Cell]:
    for kind in table_beside(__file__, "simulated_studies.toml")["kind"]:
        methods = [METHODS[name] for name in kind["methods"]]
        if kind["stated"]:
            methods = [stated(method) for method in methods]
        arguments = {key: _argument(value) for key, value in kind["arguments"].items()}
        draw = partial(DRAWS[kind["draw"]], **arguments)
        yield from kinds(kind["name"], kind["pairs"], draw, *methods)


CELLS = tuple(_cells())
