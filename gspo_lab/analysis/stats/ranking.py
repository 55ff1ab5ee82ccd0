"""Ranks of three arms or more by their scores, each with the interval of its true rank.

Each pair of arms is compared by a t test whose variance all arms estimate (`moderated.py`), all
pairs together by Holm's rule. An arm's rank
interval starts below the arms shown to be better and ends above the arms shown to be worse. The
chance that any true rank lies outside of its interval is about alpha (Mogstad, Romano, Shaikh and
Wilhelm 2024, "Inference for Ranks"). They resample; Holm's rule replaces that, because resampled
seeds promise too much with few of them (`calibration.py`). At most alpha is proven for normal
differences of which none is real, and for the directions of real ones if comparisons are
independent.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, starmap
from typing import ClassVar

import numpy as np

from gspo_lab.analysis.stats.levels import step_down
from gspo_lab.analysis.stats.moderated import moderated_variance
from gspo_lab.analysis.stats.paired import LEAST_SEEDS, paired_scores
from gspo_lab.common.plain_data import Integers, OptionalFloat, Strings


@dataclass(frozen=True)
class ArmRank:
    """One arm with its mean score and its rank by that (1 is the best; equal means share a rank).

    `best_rank` and `worst_rank` bound the true rank; `by_seed` has the ranks on each seed."""

    arm: str
    mean: float
    place: int
    best_rank: int
    worst_rank: int
    by_seed: Integers


@dataclass(frozen=True)
class Ranking:
    """All arms, the best mean first; `separated` of the `compared` pairs of arms are told apart by
    `seeds` seeds.
    """

    places: tuple[ArmRank, ...]
    may_be_best: Strings
    """The arms than which no other is told to be better."""
    seeds: int
    separated: int
    compared: int
    alpha: float
    least_seeds: ClassVar[int] = LEAST_SEEDS


def ranking(
    scores: Mapping[str, Sequence[float]],
    alpha: float,
    items_variance: Callable[[str, str], OptionalFloat],
    verdicts: Collection[tuple[str, str]] = (),
) -> Ranking:
    """The places of arms by their scores, one for each seed, in the same order of seeds in every
    arm.

    `items_variance` is what the answers alone would vary in one pair's difference of two arms, as
    the verdict has it. `verdicts` are the pairs (better, worse) that the declared verdicts resolve,
    at an alpha of their own: a place never contradicts one.
    """
    pairs = list(combinations(scores, 2))
    scores_AS = np.array(list(scores.values()), dtype=np.float64)
    row = {arm: place for place, arm in enumerate(scores)}
    compared = [
        paired_scores(
            scores[a],
            scores[b],
            alpha,
            items_variance=items_variance(a, b),
            estimated=moderated_variance(scores_AS, row[a], row[b]),
        )
        for a, b in pairs
    ]
    ahead = dict.fromkeys(scores, 0)
    behind = dict.fromkeys(scores, 0)
    steps = step_down([paired.p for paired in compared], alpha)
    separated = {
        (b, a) if (paired.estimate or 0.0) > 0 else (a, b)
        for (a, b), paired, step in zip(pairs, compared, steps, strict=True)
        if step.rejected
    } | set(verdicts)
    for better, worse in separated:
        ahead[worse] += 1
        behind[better] += 1
    means = {arm: float(np.mean(arm_scores)) for arm, arm_scores in scores.items()}
    by_seed = list(zip(*scores.values(), strict=True))
    places = [
        ArmRank(
            arm,
            means[arm],
            _place(means[arm], means.values()),
            1 + ahead[arm],
            len(scores) - behind[arm],
            tuple(starmap(_place, zip(arm_scores, by_seed, strict=True))),
        )
        for arm, arm_scores in scores.items()
    ]
    ordered = tuple(sorted(places, key=lambda place: place.place))
    may_be_best = tuple(place.arm for place in ordered if place.best_rank == 1)
    return Ranking(ordered, may_be_best, len(by_seed), len(separated), len(pairs), alpha)


def _place(score: float, among: Iterable[float]) -> int:
    return 1 + sum(1 for rival in among if rival > score)
