"""Studies in which nothing differs, with the noise of runs, benchmarks and curves. Every draw takes its generator.

Shapes: R studies, S seeds, I items, T steps.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from scipy import special

from gspo_lab.stats.array_checks import Floats, Integers


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
    "15 % collapse": (lambda rng, shape: rng.standard_normal(shape) - 6 * (rng.random(shape) < 0.15),) * 2,
}
"""Noise of the first and the second arm, of standard deviation 1 but for the name's sake; means equal. The pairs'
differences are symmetric around 0."""

UNSTABLE, FALL = 0.15, 6.0
"""Share of an unstable arm's runs that end lower, and by how many standard deviations."""

UNEVEN: Mapping[str, tuple[NoiseSampler, NoiseSampler]] = {
    "15 % of one arm's runs unstable": (
        _normal,
        lambda rng, shape: rng.standard_normal(shape) - FALL * ((rng.random(shape) < UNSTABLE) - UNSTABLE),
    ),
    "one arm skewed": (
        lambda rng, shape: 0.25 * rng.standard_normal(shape),
        lambda rng, shape: rng.standard_exponential(shape) - 1,
    ),
}
"""The same with differences that are not symmetric, though the means are equal."""


def scores(rng: Generator, noise: tuple[NoiseSampler, NoiseSampler], studies: int, seeds: int) -> ArmPair:
    """One score per run, [R, S]: pair effect N(0, 1) shared by the arms plus each run's own noise."""
    pair_RS = rng.standard_normal((studies, seeds))
    return ArmPair(*(pair_RS + draw(rng, (studies, seeds)) for draw in noise))


def draw_arms(
    rng: Generator, studies: int, seeds: int, arms: int, noise: tuple[NoiseSampler, NoiseSampler] = (_normal, _normal)
) -> ArmPair:
    """One score per run of a baseline, [R, S], and of `arms` treatments, [R, M, S], pair by pair as in `scores`. The
    baseline has the second noise."""
    pair_RS = rng.standard_normal((studies, seeds))
    alike, apart = noise
    unchanged = alike(rng, (studies, arms * seeds)).reshape(studies, arms, seeds)
    return ArmPair(pair_RS + apart(rng, (studies, seeds)), pair_RS[:, None] + unchanged)


class Learner(NamedTuple):
    """The mean course of an arm's runs, in points of score: a `gain` to the best score, then a `drop`.

    A share `unstable` of runs instead loses `fall` of its best score."""

    gain: float
    drop: float
    unstable: float = 0.0
    fall: float = 0.65

    @property
    def loss(self) -> float:
        """The mean drop from best of all runs, from a start of .3."""
        return (1 - self.unstable) * self.drop + self.unstable * self.fall * (0.3 + self.gain)


def courses(rng: Generator, first: Learner, second: Sequence[Learner], studies: int, seeds: int) -> ArmPair:
    """Start, best and final score of each run: of a baseline [R, S, 3], of the others [R, M, S, 3]. The start,
    N(.3, .04), is shared by a pair; gains vary by a sixth, drops by a third, falls by a tenth of themselves."""
    start_RS = rng.normal(0.3, 0.04, (studies, seeds))

    def arm(learner: Learner) -> Floats:
        best_RS = start_RS + learner.gain * (1 + rng.standard_normal((studies, seeds)) / 6)
        drop_RS = learner.drop * (1 + rng.standard_normal((studies, seeds)) / 3)
        fall_RS = learner.fall * best_RS * (1 + rng.standard_normal((studies, seeds)) / 10)
        lost_RS = np.where(rng.random((studies, seeds)) < learner.unstable, fall_RS, drop_RS)
        return np.stack([start_RS, best_RS, best_RS - np.maximum(lost_RS, 0.0)], axis=-1)

    return ArmPair(arm(first), np.stack([arm(learner) for learner in second], axis=1))


def answers(
    rng: Generator, seed_sd: float, item_sd: float, studies: int, seeds: int, items: int = 64, collapse: float = 0.0
) -> ArmPair:
    """Scores problem by problem, [R, S, I], whose pair differences vary by `seed_sd` over runs and by `item_sd` because
    answers are finitely many; a share `collapse` of b's runs ends 6 lower. All of it in b: only differences count."""
    run_RSI = rng.normal(0.0, seed_sd, (studies, seeds, 1)) - 6.0 * (rng.random((studies, seeds, 1)) < collapse)
    return ArmPair(
        np.zeros((studies, seeds, items)), run_RSI + rng.normal(0.0, item_sd * np.sqrt(items), (studies, seeds, items))
    )


class Benchmark(NamedTuple):
    """How a benchmark is asked: `items` problems with `samples` answers each. `arm_by_item`: sd, in logits, of what an
    arm does to a problem's difficulty, mean zero over problems. `ungraded`: the share of each arm's answers that the
    grader fails on, whatever they say; of a problem at least one is graded."""

    items: int
    samples: int
    arm_by_item: float = 0.0
    ungraded: tuple[float, float] = (0.0, 0.0)


def benchmark_scores(rng: Generator, bench: Benchmark, studies: int, seeds: int) -> ArmPair:
    """Share of right answers, [R, S, I]; logit p = item N(-.5, 2) + pair N(0, .2) + run N(0, .15) + N(0, .3).

    The arm x item effect is drawn for each arm with arm_by_item / sqrt(2), so that the arms stay exchangeable and the
    true difference over new problems is exactly 0.
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
    """Which runs collapse (0 or 1) of a sweep over DOSES: of a baseline [R, S, J], of `arms` others [R, M, S, J].

    In decades a run's collapse point is log10(1.15e-3) plus what its seed's starting model does to all arms, N(0, .08),
    what it does to this arm, N(0, apart), and what this run has by itself, N(0, .05).
    """
    start_R1S1 = rng.normal(0.0, 0.08, (studies, 1, seeds, 1))
    arm_RMS1 = rng.normal(0.0, apart, (studies, arms + 1, seeds, 1))
    own_RMSJ = rng.normal(0.0, 0.05, (studies, arms + 1, seeds, len(DOSES)))
    points_RMSJ = np.log10(1.15e-3) + start_R1S1 + arm_RMS1 + own_RMSJ
    collapsed_RMSJ = (np.log10(DOSES) > points_RMSJ).astype(np.float64)
    return ArmPair(collapsed_RMSJ[:, 0], collapsed_RMSJ[:, 1:])


def curves(rng: Generator, studies: int, seeds: int, steps: int = 500) -> ArmPair:
    """Reward per step, [R, S, T]: offset N(0, .3) per run, random walk .05 a step, noise .5; arms independent."""

    def arm() -> Floats:
        walk_RST = rng.normal(0.0, 0.05, (studies, seeds, steps)).cumsum(axis=2)
        return walk_RST + rng.normal(0.0, 0.3, (studies, seeds, 1)) + rng.normal(0.0, 0.5, (studies, seeds, steps))

    return ArmPair(arm(), arm())
