"""Places of arms against a table for a pencil, their words for 3 and 6 arms, and how often they promise too much."""

import numpy as np
import pytest
from scipy.stats import binom

from gspo_lab.stats.ranking import Ranking, ranking
from gspo_lab.words import best_arms

# Five seeds, sd 1: a mean of t / sqrt 5 has the statistic t.
PATTERN = np.array([-2, -1, 0, 1, 2]) / 2.5**0.5


def shifted(t: float) -> np.ndarray:
    return PATTERN + t / 5**0.5


def ranked(**scores: np.ndarray) -> Ranking:
    return ranking({arm: list(own) for arm, own in scores.items()}, 0.05, lambda a, b: None)


def test_three_arms_by_pencil() -> None:
    """b - a has t = 6, p = .0039; c - b has t = 2, p = .116; c - a = 2 PATTERN + 8 / sqrt 5 has t = 4, p = .0161. Holm
    over three pairs: .0039 < .0167, .0161 < .025, .116 > .05."""
    b = shifted(6)
    found = ranked(a=np.zeros(5), b=b, c=b + shifted(2))
    assert [(one.arm, one.place, one.first, one.last) for one in found.places] == [
        ("c", 1, 1, 2),
        ("b", 2, 1, 2),
        ("a", 3, 3, 3),
    ]
    assert [one.mean for one in found.places] == pytest.approx([8 / 5**0.5, 6 / 5**0.5, 0])
    # c - b is -1.265 + 0.894 on the first seed, and above 0 on the others.
    assert [one.by_seed for one in found.places] == [(2, 1, 1, 1, 1), (1, 2, 2, 2, 2), (3, 3, 3, 3, 3)]
    assert (found.may_be_best, found.apart, found.compared) == (("c", "b"), 2, 3)
    assert best_arms(found) == "The best of the 3 arms is c or b: 2 of 3 pairs of arms differ over 5 seeds."
    assert found.to_json()["places"][2] == {
        "arm": "a",
        "mean": 0.0,
        "place": 3,
        "first": 3,
        "last": 3,
        "by_seed": (3, 3, 3, 3, 3),
    }


def test_one_arm_is_the_best_where_it_is_told_from_all_others() -> None:
    """Both differences to b have t = 6; c - a has t = 0."""
    found = ranked(a=np.zeros(5), b=shifted(6), c=np.array([1e-3, -1e-3, 0, 0, 0]))
    assert found.may_be_best == ("b",)
    assert best_arms(found) == "The best of the 3 arms is b: 2 of 3 pairs of arms differ over 5 seeds."
    assert [(one.first, one.last) for one in found.places] == [(1, 1), (2, 3), (2, 3)]


def test_holm_counts_every_pair_of_six_arms() -> None:
    """t = 6 with p = .0039 is told among 3 pairs, and is not below .05 / 15 among 15."""
    near = {
        name: np.array([1, -1, 0, 0, 0]) * scale for name, scale in zip("cdef", (1e-3, 2e-3, 3e-3, 4e-3), strict=True)
    }
    found = ranked(a=np.zeros(5), b=shifted(6), **near)
    assert best_arms(found) == "Any of the 6 arms may be the best: none of 15 pairs of arms differ over 5 seeds."
    assert {(one.first, one.last) for one in found.places} == {(1, 6)}
    assert found.places[0].arm == "b"


def test_what_answers_alone_vary_and_equal_scores_tell_nothing_apart() -> None:
    scores = {"a": [0.0] * 5, "b": list(shifted(6)), "c": [0.0] * 5}
    assert ranking(scores, 0.05, lambda a, b: 100.0).apart == 0
    found = ranking(scores, 0.05, lambda a, b: None)
    assert [(one.arm, one.place, one.by_seed) for one in found.places[1:]] == [("a", 2, (2,) * 5), ("c", 2, (2,) * 5)]
    assert found.may_be_best == ("b",)


def test_two_seeds_bound_nothing() -> None:
    found = ranking({"a": [0.0, 0.1], "b": [0.5, 0.6], "c": [0.9, 0.9]}, 0.05, lambda a, b: None)
    assert best_arms(found) == "Fewer than 3 seeds cannot rank the 3 arms."
    assert {(one.first, one.last) for one in found.places} == {(1, 3)}


def test_a_place_is_missed_no_more_often_than_alpha() -> None:
    """Six arms that do not differ, three seeds: any two that are told apart are a miss."""
    rng, studies = np.random.default_rng(7), 300
    missed = sum(
        ranked(**dict(zip("abcdef", rng.normal(size=(6, 3)) + rng.normal(size=3), strict=True))).apart > 0
        for _ in range(studies)
    )
    assert missed <= binom.ppf(0.999, studies, 0.05)
