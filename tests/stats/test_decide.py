import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspo_lab.errors import LabError
from gspo_lab.stats.verdict import decide, word_for

BASE = np.array([0.50, 0.52, 0.48])


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.03, 0.09, "better beyond margin"),
        (-0.09, -0.03, "better beyond margin"),
        (-0.01, 0.015, "practically equivalent"),
        (0.001, 0.015, "practically equivalent"),
        (0.01, 0.05, "better, size not resolved against the margin"),
        (-0.05, -0.01, "better, size not resolved against the margin"),
        (-0.01, 0.05, "not resolved"),
        (-0.2, 0.2, "not resolved"),
    ],
)
def test_words_in_order(low: float, high: float, word: str) -> None:
    assert word_for(low, high, 0.02) == word


def test_better_beyond_margin_names_the_arm_and_the_sentence() -> None:
    # d = .10, .11, .12: mean .11, half-width 4.303 * .01 / sqrt 3 = .0248.
    found = decide(BASE, BASE + np.array([0.10, 0.11, 0.12]), margin=0.02, labels=("grpo", "gspo"))
    assert (found.word, found.better, found.reason) == ("better beyond margin", "gspo", None)
    assert found.paired.low == pytest.approx(0.11 - 0.02484, abs=1e-4)
    assert found.sentence == "gspo is better than grpo beyond margin."
    assert found.smallest_detectable == pytest.approx(3.264 * 0.01, abs=1e-4)
    turned = decide(BASE + np.array([0.10, 0.11, 0.12]), BASE, margin=0.02, labels=("gspo", "grpo"))
    assert turned.better == "gspo"
    assert turned.sentence == "gspo is better than grpo beyond margin."


def test_pairs_taken_on_trust_are_said_and_change_no_word() -> None:
    better = BASE + np.array([0.10, 0.11, 0.12])
    found = decide(BASE, better, margin=0.02, labels=("grpo", "gspo"), unproven=["weights", "prompts"])
    assert found.word == "better beyond margin"
    trust = "The pairs are taken on trust: weights, prompts not recorded everywhere."
    assert found.sentence == f"gspo is better than grpo beyond margin. {trust}"


def test_equivalent_though_zero_is_excluded() -> None:
    found = decide(BASE, BASE + np.array([0.0050, 0.0052, 0.0054]), margin=0.02)
    assert (found.word, found.better) == ("practically equivalent", None)
    assert any("excludes 0" in note for note in found.notes)


def test_better_with_unresolved_size() -> None:
    found = decide(BASE, BASE + np.array([0.02, 0.03, 0.04]), margin=0.02)
    assert (found.word, found.better) == ("better, size not resolved against the margin", "b")
    assert found.sentence == "b is better than a, size not resolved against the margin."


def test_not_resolved_says_what_is_missing() -> None:
    found = decide(BASE, BASE + np.array([-0.01, 0.00, 0.01]), margin=0.02)
    # sd .01 is half the margin: differences of 2 sd need 5 seeds (factor 1.68), equivalence 5 (1.94), so 2 more than 3.
    assert (found.word, found.seeds_for_margin, found.seeds_for_equivalence, found.more_seeds) == (
        "not resolved",
        5,
        5,
        2,
    )


def test_a_flip_by_one_seed_reaches_the_headline() -> None:
    found = decide(BASE, BASE + np.array([-0.01, -0.01, 0.05]), margin=0.02)
    assert found.flips
    assert found.sentence.endswith("Leaving out one seed turns the sign.")
    assert "leaving out one seed turns the sign of the difference" in found.notes


def test_withheld_with_its_reason() -> None:
    mismatch = decide(
        BASE, BASE + np.array([0.10, 0.11, 0.12]), 0.02, withheld_because=["the certificate shows a mismatch"]
    )
    assert (mismatch.word, mismatch.better, mismatch.reason) == ("withheld", None, "the certificate shows a mismatch")
    assert mismatch.paired.low is not None
    few = decide(BASE[:2], BASE[:2] + np.array([0.1, 0.2]), margin=0.02)
    assert (few.word, few.reason) == ("withheld", "2 pairs of runs; an interval needs 3")
    same = decide(BASE, BASE, margin=0.02)
    assert (same.word, same.reason) == ("withheld", "identical scores")
    assert same.sentence == "No verdict on b against a: identical scores."
    assert same.more_seeds is None
    none = decide([], [], margin=0.02)
    assert (none.word, none.paired.n) == ("withheld", 0)


def test_an_equal_difference_at_every_seed_is_not_taken_for_certainty() -> None:
    found = decide(BASE, BASE + 0.1, margin=0.02)
    assert found.word == "withheld"
    assert found.smallest_detectable is None


def test_bad_input_is_refused() -> None:
    with pytest.raises(LabError, match="3 and 2 values"):
        decide(BASE, BASE[:2], margin=0.02)
    with pytest.raises(LabError, match="margin"):
        decide(BASE, BASE, margin=0.0)
    with pytest.raises(LabError, match="gspo: 1 values are missing"):
        decide(BASE, [0.5, np.nan, 0.4], margin=0.02, labels=("grpo", "gspo"))


@given(st.integers(0, 10_000), st.integers(3, 6), st.floats(-0.3, 0.3))
def test_swapping_the_arms_keeps_the_word_and_the_better_arm(seed: int, n: int, effect: float) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(0, 0.05, n), rng.normal(effect, 0.05, n)
    there, back = decide(a, b, 0.05, labels=("a", "b")), decide(b, a, 0.05, labels=("b", "a"))
    assert (there.word, there.better) == (back.word, back.better)
