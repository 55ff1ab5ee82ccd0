"""Draws of the studies that the calibration simulates: the noise of runs, benchmarks and curves.

Nothing differs between the arms in most of them. Every draw takes its generator. Shapes: R studies,
S seeds, M treatments, I items, T steps; a is the baseline, b what is held against it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from scipy import special

from gspo_lab.analysis.stats.array_checks import Floats, Integers


class ArmPair(NamedTuple):
    """Two arms drawn alike, the studies along the first axis."""

    a: Floats
    b: Floats


Shape = tuple[int, int]
NoiseSampler = Callable[[Generator, Shape], Floats]


def normal_noise(rng: Generator, shape: Shape) -> Floats:
    """Standard normal."""
    return rng.standard_normal(shape)


def noisy_noise(rng: Generator, shape: Shape) -> Floats:
    """Normal, of standard deviation 4."""
    return 4 * rng.standard_normal(shape)


def small_noise(rng: Generator, shape: Shape) -> Floats:
    """Normal, of standard deviation .25."""
    return 0.25 * rng.standard_normal(shape)


def heavy_tailed_noise(rng: Generator, shape: Shape) -> Floats:
    """Student's t with 3 degrees of freedom."""
    return rng.standard_t(3, shape)


def exponential_noise(rng: Generator, shape: Shape) -> Floats:
    """Exponential, shifted to mean 0."""
    return rng.standard_exponential(shape) - 1


def lognormal_noise(rng: Generator, shape: Shape) -> Floats:
    """Lognormal noise of mean 0 and standard deviation 1."""
    sd = math.sqrt(math.e * (math.e - 1))
    return (np.exp(rng.standard_normal(shape)) - math.sqrt(math.e)) / sd


def falling_noise(share: float, depth: float) -> NoiseSampler:
    """A share of runs ends `depth` standard deviations lower; the others end higher, so that the
    mean is 0.
    """

    def draw(rng: Generator, shape: Shape) -> Floats:
        normal = rng.standard_normal(shape)
        return normal - depth * ((rng.random(shape) < share) - share)

    return draw


unstable_noise = falling_noise(0.15, 6.0)
deep_falls_noise = falling_noise(0.1, 12.0)
SAMPLERS: Mapping[str, NoiseSampler] = {
    "normal": normal_noise,
    "noisy": noisy_noise,
    "small": small_noise,
    "heavy-tailed": heavy_tailed_noise,
    "exponential": exponential_noise,
    "lognormal": lognormal_noise,
    "unstable": unstable_noise,
    "often-unstable": falling_noise(0.2, 6.0),
    "deep-falls": deep_falls_noise,
}

UNSTABLE = "15 % of one arm's runs unstable"
DEEP = "10 % of one arm's runs fall by 12 sd"
SKEWED = "one arm skewed"
UNEVEN: Mapping[str, tuple[NoiseSampler, NoiseSampler]] = {
    UNSTABLE: (unstable_noise, normal_noise),
    DEEP: (deep_falls_noise, normal_noise),
    SKEWED: (lognormal_noise, small_noise),
}
"""Noise of baseline and treatment where only the baseline is unstable or skewed. The pairs'
differences are not symmetric, though the means are equal."""


def scores(
    rng: Generator, noise: tuple[NoiseSampler, NoiseSampler], studies: int, seeds: int
) -> ArmPair:
    """One score per run, [R, S]: N(0, 1) of the seed for both arms, plus each run's noise."""
    block = draw_block(rng, studies, seeds, noise)
    return ArmPair(block.a, block.b[:, 0])


def draw_block(rng: Generator, studies: int, seeds: int, noises: Sequence[NoiseSampler]) -> ArmPair:
    """One score per run of the baseline, [R, S], and of the treatments, [R, M, S], as in `scores`.
    `noises` has one sampler per arm, the baseline's first.
    """
    seed_RS = rng.standard_normal((studies, seeds))
    arms = [seed_RS + draw(rng, (studies, seeds)) for draw in noises]
    return ArmPair(arms[0], np.stack(arms[1:], axis=1))


class Learner(NamedTuple):
    """The mean course of an arm's runs, in points of score: a `gain` to the best score, then a
    `drop`.

    A share `unstable` of runs instead loses `fall` of its best score."""

    gain: float
    drop: float
    unstable: float = 0.0
    fall: float = 0.65


def courses(
    rng: Generator, baseline: Learner, treatments: Sequence[Learner], studies: int, seeds: int
) -> ArmPair:
    """Start, best and final score of each run: of a baseline [R, S, 3], of the others [R, M, S, 3].

    The start, N(.3, .04), is shared by a pair. Gains vary by a sixth, drops by a third, falls by a
    tenth of themselves."""
    start_RS = rng.normal(0.3, 0.04, (studies, seeds))

    def arm(learner: Learner) -> Floats:
        best_RS = start_RS + learner.gain * (1 + rng.standard_normal((studies, seeds)) / 6)
        drop_RS = learner.drop * (1 + rng.standard_normal((studies, seeds)) / 3)
        fall_RS = learner.fall * best_RS * (1 + rng.standard_normal((studies, seeds)) / 10)
        lost_RS = np.where(rng.random((studies, seeds)) < learner.unstable, fall_RS, drop_RS)
        return np.stack([start_RS, best_RS, best_RS - np.maximum(lost_RS, 0.0)], axis=-1)

    return ArmPair(arm(baseline), np.stack([arm(learner) for learner in treatments], axis=1))


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
    """How a benchmark is asked: `items` problems with `samples` answers each.

    `arm_by_item`: sd, in logits, of what an arm does to a problem's difficulty, mean zero over
    problems. `ungraded`: the share of each arm's answers that the grader fails on, whatever they
    say; of a problem at least one is graded."""

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
"""The learning rates of a simulated sweep, J = 5."""


def sweeps(rng: Generator, studies: int, seeds: int, arms: int, arm_sd: float) -> ArmPair:
    """Which runs collapse (0 or 1) of a sweep over DOSES: of a baseline [R, S, J], of `arms` others
    [R, M, S, J].

    In decades a run's collapse point is log10(1.15e-3) plus what its seed's starting model does to
    all arms, N(0, .08), what it does to this arm, N(0, arm_sd), and what this run has by itself,
    N(0, .05).
    """
    start_R1S1 = rng.normal(0.0, 0.08, (studies, 1, seeds, 1))
    arm_RMS1 = rng.normal(0.0, arm_sd, (studies, arms + 1, seeds, 1))
    own_RMSJ = rng.normal(0.0, 0.05, (studies, arms + 1, seeds, len(DOSES)))
    points_RMSJ = np.log10(1.15e-3) + start_R1S1 + arm_RMS1 + own_RMSJ
    collapsed_RMSJ = (np.log10(DOSES) > points_RMSJ).astype(np.float64)
    return ArmPair(collapsed_RMSJ[:, 0], collapsed_RMSJ[:, 1:])


def peaked_curves(
    rng: Generator,
    falls: Sequence[float],
    places: Sequence[float],
    noises: Sequence[NoiseSampler],
    studies: int,
    seeds: int,
) -> ArmPair:
    """Scores over five values of a setting, [R, S, 5], of two arms whose peaks are equally high.

    The score of an arm falls by its `falls` times the squared distance from its peak, which lies
    `places` values behind the third. N(0, 1) of the seed for all runs, plus each run's noise.
    """
    seed_RS1 = rng.standard_normal((studies, seeds, 1))
    steps_D = np.arange(-2, 3)

    def arm(fall: float, place: float, noise: NoiseSampler) -> Floats:
        run_RSD = noise(rng, (studies, seeds * len(steps_D))).reshape(studies, seeds, -1)
        return seed_RS1 - fall * (steps_D - place) ** 2 + run_RSD

    return ArmPair(*map(arm, falls, places, noises))


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
