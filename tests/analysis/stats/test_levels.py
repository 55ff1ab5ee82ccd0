import numpy as np
import pytest
from assertions import assert_fields
from calling import lab_error
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from scipy.stats import binom

from gspo_lab.analysis.stats.levels import HolmStep, first_resolving, holm, nominal_level, step_down
from gspo_lab.analysis.stats.ranking import ArmRank, Ranking, ranking
from gspo_lab.common.plain_data import Integers
from gspo_lab.report.templating import statement


def test_adjusted_p_values_by_hand() -> None:
    # Sorted .01, .02, .04: 3 x .01 = .03, 2 x .02 = .04, 1 x .04 = .04.
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    # The second product, 2 x .011 = .022, may not fall below the first, 3 x .01 = .03.
    assert holm([0.01, 0.011, 0.9]) == pytest.approx([0.03, 0.03, 0.9])


def test_untestable_claims_stay_none_and_a_declared_family_counts_them() -> None:
    assert holm([None, 0.01, 0.5]) == [None, pytest.approx(0.02), 0.5]
    assert holm([None, 0.01, 0.5], family=3) == [None, pytest.approx(0.03), 1.0]
    assert holm([]) == []
    with lab_error("family of 1"):
        holm([0.1, 0.2], family=1)
    with lab_error("between 0 and 1"):
        holm([1.5])


@given(st.lists(st.floats(0, 1), max_size=8))
def test_never_below_the_raw_p_and_in_the_same_order(p_values: list[float]) -> None:
    adjusted = [value for value in holm(p_values) if value is not None]
    assert all(raw <= high <= 1 for raw, high in zip(p_values, adjusted, strict=True))
    by_raw = [high for _, high in sorted(zip(p_values, adjusted, strict=True))]
    assert by_raw == sorted(by_raw)


def test_steps_by_hand() -> None:
    # .01 < .05 / 3, .02 < .05 / 2, .04 < .05: all rejected, each at its own level.
    assert step_down([0.04, 0.01, 0.02], 0.05) == [
        HolmStep(True, 0.05),
        HolmStep(True, 0.05 / 3),
        HolmStep(True, 0.025),
    ]
    # .03 is not below .05 / 2: it and what is larger were tested there. What could not be tested
    # counts in the family.
    assert step_down([0.011, 0.03, None], 0.05) == [
        HolmStep(True, 0.05 / 3),
        HolmStep(False, 0.025),
        HolmStep(False, 0.025),
    ]
    assert step_down([None], 0.05) == [HolmStep(False, 0.05)]
    assert step_down([0.02], 0.05, lambda alpha: alpha / 4) == [HolmStep(False, 0.0125)]


@given(st.lists(st.floats(0, 1), max_size=8))
def test_steps_reject_what_the_adjusted_p_values_reject(p_values: list[float]) -> None:
    adjusted = [value is not None and value < 0.05 for value in holm(p_values)]
    assert [step.rejected for step in step_down(p_values, 0.05)] == adjusted


@pytest.mark.parametrize(
    ("looks", "level"), [((5, 8), 0.0292), ((3, 6, 9), 0.0198), ((4, 8), 0.0276)]
)
def test_the_constants(looks: Integers, level: float) -> None:
    assert nominal_level(looks, 0.05) == pytest.approx(level, abs=0.0006)


@pytest.mark.parametrize("looks", [(5, 8), (4, 8), (3, 4, 5, 10)])
@pytest.mark.parametrize("alpha", [0.05, 0.05 / 3])
def test_all_looks_together_keep_alpha(looks: Integers, alpha: float) -> None:
    d_RS = np.random.default_rng(1).standard_normal((200_000, looks[-1]))
    alarm = np.zeros(len(d_RS), dtype=bool)
    for n in looks:
        t = d_RS[:, :n].mean(axis=1) / d_RS[:, :n].std(axis=1, ddof=1) * np.sqrt(n)
        alarm |= 2 * special.stdtr(n - 1, -np.abs(t)) < nominal_level(looks, alpha)
    # 3 Monte Carlo errors of 200,000 studies, and the three digits that the level is rounded down
    # to.
    assert alarm.mean() == pytest.approx(alpha, abs=3 * np.sqrt(alpha / 200_000) + 0.01 * alpha)


def test_the_level_lies_between_bonferroni_and_alpha() -> None:
    assert nominal_level((), 0.05) == nominal_level((8,), 0.05) == 0.05
    assert 0.05 / 8 < nominal_level(tuple(range(3, 11)), 0.05) < 0.05 / 2
    assert nominal_level((5, 8), 1e-6) == 5e-7  # beyond what is simulated


@pytest.mark.parametrize("looks", [(2, 5), (8, 5), (5, 5), tuple(range(3, 12))])
def test_looks_that_cannot_be_are_refused(looks: Integers) -> None:
    with lab_error("looks at"):
        nominal_level(looks, 0.05)


def test_the_first_look_that_resolves_is_the_one() -> None:
    heard: list[int] = []

    def judge(look: int) -> str:
        heard.append(look)
        return "better" if look >= 5 else "open"

    assert first_resolving((3, 5, 8), judge, lambda word: word == "better") == (5, "better")
    assert heard == [3, 5]
    assert first_resolving((3, 4), judge, lambda word: word == "better") == (4, "open")


# Five seeds, sd 1: a mean of t / sqrt 5 has the statistic t.
PATTERN = np.array([-2, -1, 0, 1, 2]) / 2.5**0.5


def shifted(t: float) -> np.ndarray:
    return PATTERN + t / 5**0.5


def ranked(**scores: np.ndarray) -> Ranking:
    return ranking({arm: list(own) for arm, own in scores.items()}, 0.05, lambda a, b: None)


def test_three_arms_by_pencil() -> None:
    """Holm over three pairs: .0039 < .0167, .0161 < .025, .116 > .05.

    b - a has t = 6, p = .0039; c - b has t = 2, p = .116; c - a = 2 PATTERN + 8 / sqrt 5 has t = 4,
    p = .0161.
    """
    b = shifted(6)
    found = ranked(a=np.zeros(5), b=b, c=b + shifted(2))
    assert [(one.arm, one.place, one.best_rank, one.worst_rank) for one in found.places] == [
        ("c", 1, 1, 2),
        ("b", 2, 1, 2),
        ("a", 3, 3, 3),
    ]
    assert [one.mean for one in found.places] == pytest.approx([8 / 5**0.5, 6 / 5**0.5, 0])
    # c - b is -1.265 + 0.894 on the first seed, and above 0 on the others.
    assert [one.by_seed for one in found.places] == [
        (2, 1, 1, 1, 1),
        (1, 2, 2, 2, 2),
        (3, 3, 3, 3, 3),
    ]
    assert_fields(found, may_be_best=("c", "b"), separated=2, compared=3)
    assert (
        statement("ranking", found)
        == "Any of c or b may be the best of the 3 arms: 2 of 3 pairs of arms differ over 5 seeds."
    )
    assert found.places[2] == ArmRank("a", 0.0, 3, 3, 3, (3, 3, 3, 3, 3))


def test_one_arm_is_the_best_where_it_is_told_from_all_others() -> None:
    """Both differences to b have t = 6; c - a has t = 0."""
    found = ranked(a=np.zeros(5), b=shifted(6), c=np.array([1e-3, -1e-3, 0, 0, 0]))
    assert (
        statement("ranking", found)
        == "The best of the 3 arms is b: 2 of 3 pairs of arms differ over 5 seeds."
    )
    assert [(one.best_rank, one.worst_rank) for one in found.places] == [(1, 1), (2, 3), (2, 3)]


def test_holm_counts_every_pair_of_six_arms() -> None:
    """p = .0039 is significant among 3 pairs, and not below .05 / 15 among 15.

    One noisy arm of six: 2 MS = 1/3, s~^2 = 7/9, so t = 4 / sqrt(7/9) on 6 degrees of freedom.
    """
    near = {
        name: np.array([1, -1, 0, 0, 0]) * scale
        for name, scale in zip("cdef", (1e-3, 2e-3, 3e-3, 4e-3), strict=True)
    }
    found = ranked(a=np.zeros(5), b=shifted(4), **near)
    assert (
        statement("ranking", found)
        == "Any of the 6 arms may be the best: none of 15 pairs of arms differ over 5 seeds."
    )
    assert {(one.best_rank, one.worst_rank) for one in found.places} == {(1, 6)}
    assert found.places[0].arm == "b"


def test_what_answers_alone_vary_and_equal_scores_tell_nothing_apart() -> None:
    scores = {"a": [0.0] * 5, "b": list(shifted(6)), "c": [0.0] * 5}
    assert ranking(scores, 0.05, lambda a, b: 100.0).separated == 0
    found = ranking(scores, 0.05, lambda a, b: None)
    assert [(one.arm, one.place, one.by_seed) for one in found.places[1:]] == [
        ("a", 2, (2,) * 5),
        ("c", 2, (2,) * 5),
    ]
    assert found.may_be_best == ("b",)


def test_two_seeds_bound_nothing() -> None:
    found = ranking({"a": [0.0, 0.1], "b": [0.5, 0.6], "c": [0.9, 0.9]}, 0.05, lambda a, b: None)
    assert statement("ranking", found) == "Fewer than 3 seeds cannot rank the 3 arms."
    assert {(one.best_rank, one.worst_rank) for one in found.places} == {(1, 3)}


def test_a_place_is_missed_no_more_often_than_alpha() -> None:
    """Six arms that do not differ, three seeds: any two that are told apart are a miss."""
    rng = np.random.default_rng(7)
    studies = 300
    missed = sum(
        ranked(
            **dict(zip("abcdef", rng.normal(size=(6, 3)) + rng.normal(size=3), strict=True))
        ).separated
        > 0
        for _ in range(studies)
    )
    assert missed <= binom.ppf(0.999, studies, 0.05)
