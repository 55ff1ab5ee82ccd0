import math
from dataclasses import replace

import numpy as np
import pytest
from assertions import assert_fields
from calling import lab_error
from case_tables import cases
from hypothesis import given
from hypothesis import strategies as st

from gspo_lab.analysis.stats.verdict import (
    Comparison,
    Rule,
    Scores,
    decide,
    decide_all,
    verdict_label,
)
from gspo_lab.common.reason import Reason
from gspo_lab.report.templating import statement

BASE = np.array([0.50, 0.52, 0.48])


def codes(found: Comparison) -> set[str]:
    return {note.code for note in found.notes}


@pytest.mark.parametrize(
    ("low", "high", "word"),
    cases(__file__, "words_in_order"),
)
def test_words_in_order(low: float, high: float, word: str) -> None:
    assert verdict_label(low, high, 0.02) == word


def test_better_beyond_margin_names_the_arm_and_the_sentence() -> None:
    # d = .10, .11, .12: mean .11, half-width 4.303 * .01 / sqrt 3 = .0248.
    found = decide(BASE, BASE + np.array([0.10, 0.11, 0.12]), margin=0.02, labels=("grpo", "gspo"))
    assert_fields(found, word="better by more than the margin", better="gspo", reasons=())
    assert found.paired.low == pytest.approx(0.11 - 0.02484, abs=1e-4)
    assert statement("sentence", found) == "gspo is better than grpo by more than the margin."
    assert found.smallest_detectable == pytest.approx(3.264 * 0.01, abs=1e-4)
    turned = decide(BASE + np.array([0.10, 0.11, 0.12]), BASE, margin=0.02, labels=("gspo", "grpo"))
    assert_fields(turned, better="gspo", direction=-1)
    assert statement("sentence", turned) == "grpo is worse than gspo by more than the margin."


FIVE = np.array([0.50, 0.52, 0.48, 0.51, 0.49])
TIGHT = np.array([0.0050, 0.0052, 0.0054, 0.0051, 0.0053])


def test_equivalent_though_zero_is_excluded() -> None:
    found = decide(FIVE, FIVE + TIGHT, margin=0.02)
    assert_fields(found, word="equivalent within the margin", better=None)
    assert "difference-within-margin" in codes(found)


@pytest.mark.parametrize("n", [3, 4])
def test_fewer_than_five_pairs_are_never_equivalent_and_a_note_says_so(n: int) -> None:
    found = decide(FIVE[:n], FIVE[:n] + TIGHT[:n], margin=0.02)
    assert found.word == "better, not shown to exceed the margin"
    # .0050 .. .0054 lies inside the margin with all of its interval, and with 0 in it no word is
    # left.
    few = "the interval lies inside the margin, but fewer than 5 pairs cannot show equivalence"
    assert few in [note.text for note in found.notes]
    around_zero = decide(FIVE[:n], FIVE[:n] + TIGHT[:n] - 0.0052, margin=0.02)
    assert (around_zero.word, few in [note.text for note in around_zero.notes]) == (
        "inconclusive",
        True,
    )


def test_the_spread_is_at_least_what_the_answers_alone_vary() -> None:
    # d = -.01, 0, .01: sd .01; the answers' sd is .02, so half-width 4.3027 * .02 / sqrt 3 = .0497.
    d = np.array([-0.01, 0.0, 0.01])
    found = decide(BASE, BASE + d, margin=0.02, items_variance=0.02**2).paired
    assert (found.sd, found.items_sd, found.spread) == pytest.approx((0.01, 0.02, 0.02))
    assert (found.low, found.high) == pytest.approx((-0.04968, 0.04968), abs=1e-5)
    assert found.seed_sd == 0.0
    # A smaller one changes nothing: 4.3027 * .01 / sqrt 3 = .0248; sqrt(.01^2 - .006^2) = .008.
    below = decide(BASE, BASE + d, margin=0.02, items_variance=0.006**2).paired
    assert (below.low, below.seed_sd) == pytest.approx((-0.02484, 0.008), abs=1e-5)
    unknown = decide(BASE, BASE + d, margin=0.02)
    assert_fields(unknown.paired, items_sd=None, seed_sd=None)
    assert "no-answers-stored" in codes(unknown)


def test_exact_ties_are_judged_by_what_the_answers_vary() -> None:
    # Five equal pairs, answers' sd .02: half-width 2.7764 * .02 / sqrt 5 = .0248.
    wide = decide(FIVE, FIVE, margin=0.03, items_variance=0.02**2)
    assert_fields(wide, word="equivalent within the margin", reasons=())
    assert (wide.paired.low, wide.paired.high) == pytest.approx((-0.02483, 0.02483), abs=1e-5)
    assert decide(FIVE, FIVE, margin=0.02, items_variance=0.02**2).word == "inconclusive"
    assert decide(FIVE, FIVE, margin=0.02, items_variance=0.0).because == "identical scores"


# Sum 0, sum of squares 4 over five: sd 1, so t = mean * sqrt 5.
PATTERN = np.array([-2, -1, 0, 1, 2]) / math.sqrt(2.5)


def arm(t: float, name: str) -> Scores:
    return Scores(np.zeros(5), PATTERN + t / math.sqrt(5), ("base", name))


def test_several_arms_share_alpha_by_holm() -> None:
    # Four arms whose noise is one pattern: 2 MS = 1/2, s~^2 = (2 * 1/2 + 4) / 6 = 5/6. Two-sided p
    # of t / sqrt(5/6) with 6 degrees of freedom: t = 2.60 .0293, t = 3.30 .0112, t = 6.00 .0006.
    among = decide_all([arm(2.6, "x"), arm(0.5, "y"), arm(0, "z")], Rule(margin=0.01))
    better = "better, not shown to exceed the margin"
    assert among[0].paired.p == pytest.approx(0.0293, abs=1e-4)
    assert {one.word for one in among} == {"inconclusive"}  # .0293 > .05 / 3
    assert among[0].level == pytest.approx(0.05 / 3)
    low, high = among[0].interval or (0.0, 0.0)
    assert low < 0 < high
    stepped = decide_all([arm(2.6, "x"), arm(3.3, "y"), arm(6.0, "z")], Rule(margin=1.4))
    # .0006 < .0167, .0112 < .0250, .0293 < .0500: each is held against alpha over what is left.
    assert [one.word for one in stepped] == [better] * 3
    assert [one.level for one in stepped] == pytest.approx([0.05, 0.025, 0.05 / 3])
    assert all(one.interval is not None and one.interval[0] > 0 for one in stepped)


def test_an_arm_that_is_withheld_still_counts_in_the_family() -> None:
    odd = replace(arm(6.0, "y"), withheld_because=(Reason("not-matched", "other weights"),))
    found = decide_all(
        [arm(2.9, "x"), odd], Rule(margin=0.01)
    )  # p = .044: alone it would do, .025 it does not
    assert [one.word for one in found] == ["inconclusive", "no verdict"]


Z = np.array([-2, -1, 0, 1, 2]) / math.sqrt(2.5)
"""Mean 0, sd 1."""
MODERATED = math.sqrt((2 * 0.60667 + 4) / 6)
"""s~ / s of an arm beside one whose noise is a tenth of its own.

2 MS = .60667 s^2, 6 degrees of freedom. t(6, .975) = 2.447, t(6, .9875) = 2.969.
"""


def of_two(se: float, estimate: float, *, other: float) -> Comparison:
    """The one of two arms with this estimate and standard error.

    The other arm surely differs from the baseline, by `other`.
    """
    noise = se * math.sqrt(5) * Z / MODERATED
    near = Scores(np.zeros(5), estimate + noise)
    far = Scores(np.zeros(5), other + noise / 10)
    return decide_all([near, far], Rule(1.0))[0]


def test_better_is_read_at_a_level_at_which_the_size_is_not_resolved() -> None:
    """2.7 se beyond the margin, where Holm needs 2.969 but "better" only 2.447.

    The interval is not 1.27 +- .245, but +- .2969.
    """
    found = of_two(0.1, 1.27, other=0.5)
    assert_fields(
        found,
        word="better, not shown to exceed the margin",
        level=0.025,
        interval=pytest.approx((0.9731, 1.5669), abs=1e-4),
    )


def test_an_interval_that_cannot_be_read_as_the_word_says_is_explained() -> None:
    """2.7 se from 0 and from the margin.

    "better" needs 2.447 of them and equivalence 2.969. No interval shows both.
    """
    found = of_two(0.5 / 2.7, 0.5, other=5.0)
    assert_fields(
        found,
        word="better, not shown to exceed the margin",
        level=0.05,
        interval=pytest.approx((0.0469, 0.9531), abs=1e-4),
    )
    told = (
        "this interval alone reads 'equivalent within the margin', but with arms and looks counted"
        " in that must pass p < "
    )
    assert f"{told}0.025" in [note.text for note in found.notes]


@given(
    st.integers(0, 2**32 - 1), st.integers(3, 8), st.integers(1, 4), st.sampled_from([(), (5, 8)])
)
def test_every_word_is_that_of_its_interval_or_explained(
    seed: int, n: int, arms: int, looks: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(seed)
    drawn = [
        Scores(np.zeros(n), rng.normal(rng.choice([0, 0.5, 1.5]), 0.5, n)) for _ in range(arms)
    ]
    for found in decide_all(drawn, Rule(1.0, looks=looks)):
        read = verdict_label(*found.interval, 1.0)
        told = {"reads-otherwise-alone", "few-pairs"} & codes(found)
        assert read == found.word or told


def test_a_collapse_is_told_where_the_other_arm_could_not_be_judged() -> None:
    """2 of 2: up to 100 %.

    That of grpo's runs none could be judged does not make it "none of 5 runs".
    """
    found = decide_all(
        [Scores(FIVE, FIVE + TIGHT, ("grpo", "gspo"), collapsed=((0, 0), (2, 2)))], Rule(0.02)
    )[0]
    assert (
        statement("rare_events", found)
        == "2 of 2 runs of gspo collapsed (95 % interval of the rate: up to 100 %)."
    )


def test_what_was_not_seen_is_bounded_in_the_sentence() -> None:
    def said(collapsed: tuple[tuple[int, int], tuple[int, int]] | None) -> str:
        one = Scores(FIVE, FIVE + TIGHT, ("grpo", "gspo"), collapsed=collapsed)
        return statement("sentence", decide_all([one], Rule(margin=0.02))[0])

    same = "gspo and grpo are equivalent within the margin."
    # Clopper-Pearson: 0 of 5 reaches 1 - .025^(1/5) = .522, 1 of 5 .716.
    assert (
        said(((0, 5), (0, 5)))
        == f"{same} 0 of 5 runs of each arm collapsed (95 % interval of the rate: up to 52 %)."
    )
    counts = "0 of 5 runs of grpo and 1 of 5 runs of gspo collapsed"
    uneven = f"{counts} (95 % interval of the rate: up to 52 % and 72 %)."
    assert said(((0, 5), (1, 5))) == f"{same} {uneven}"
    unknown = (
        "An event seen in none of an arm's 5 runs can still have a rate of up to 52 % (95 %"
        " interval)."
    )
    blind = f"{same} {unknown}"
    assert said(None) == said(((0, 0), (0, 5))) == blind


def test_the_smallest_detectable_effect_has_an_interval() -> None:
    found = decide(BASE, BASE + np.array([0.10, 0.11, 0.12]), margin=0.02)
    # sd .01 at n = 3: the true one is .52 to 6.28 times that, and the factor 3.264.
    assert found.detectable_range == pytest.approx((0.03264 * 0.5207, 0.03264 * 6.2848), rel=1e-3)
    floored = decide(BASE, BASE + np.array([0.10, 0.11, 0.12]), margin=0.02, items_variance=0.02**2)
    assert_fields(
        floored,
        smallest_detectable=pytest.approx(3.264 * 0.02, abs=1e-4),
        detectable_range=pytest.approx((3.264 * 0.02, 0.03264 * 6.2848), rel=1e-3),
    )


def test_not_resolved_says_what_is_missing() -> None:
    found = decide(BASE, BASE + np.array([-0.01, 0.00, 0.01]), margin=0.02)
    # sd .01 is half the margin: differences of 2 sd need 5 seeds (factor 1.68), equivalence 5
    # (1.94), so 2 more than 3.
    assert_fields(
        found, word="inconclusive", seeds_for_margin=5, seeds_for_equivalence=5, more_seeds=2
    )


def test_a_flip_by_one_seed_reaches_the_headline() -> None:
    found = decide(BASE, BASE + np.array([-0.01, -0.01, 0.05]), margin=0.02)
    assert found.flips
    assert statement("sentence", found).endswith("Leaving out one seed turns the sign.")
    assert "one-seed-turns" in codes(found)


def test_withheld_with_its_reason() -> None:
    mismatch = decide(
        BASE,
        BASE + np.array([0.10, 0.11, 0.12]),
        0.02,
        withheld_because=[Reason("not-matched", "a mismatch")],
    )
    assert_fields(mismatch, word="no verdict", better=None, because="a mismatch")
    assert mismatch.paired.low is not None
    few = decide(BASE[:2], BASE[:2] + np.array([0.1, 0.2]), margin=0.02)
    assert_fields(few, word="no verdict", because="2 pairs of runs; an interval needs 3")
    same = decide(BASE, BASE, margin=0.02)
    assert_fields(same, word="no verdict", because="identical scores")
    assert statement("sentence", same) == "No verdict on b against a: identical scores."
    assert same.more_seeds is None
    none = decide([], [], margin=0.02)
    assert (none.word, none.paired.n) == ("no verdict", 0)


def test_bad_input_is_refused() -> None:
    with lab_error("3 and 2 values"):
        decide(BASE, BASE[:2], margin=0.02)
    with lab_error("margin"):
        decide(BASE, BASE, margin=0.0)
    with lab_error("gspo: 1 values are missing"):
        decide(BASE, [0.5, np.nan, 0.4], margin=0.02, labels=("grpo", "gspo"))


@given(st.integers(0, 10_000), st.integers(3, 6), st.floats(-0.3, 0.3))
def test_swapping_the_arms_turns_the_word_and_keeps_the_better_arm(
    seed: int, n: int, effect: float
) -> None:
    rng = np.random.default_rng(seed)
    a = rng.normal(0, 0.05, n)
    b = rng.normal(effect, 0.05, n)
    there = decide(a, b, 0.05, labels=("a", "b"))
    back = decide(b, a, 0.05, labels=("b", "a"))
    assert_fields(there, better=back.better, direction=-back.direction)
    assert there.word.removeprefix("better") == back.word.removeprefix("worse") or (
        there.word.removeprefix("worse") == back.word.removeprefix("better")
    )


def test_pairs_taken_on_trust_are_said_and_change_no_word() -> None:
    better = BASE + np.array([0.10, 0.11, 0.12])
    found = decide(
        BASE, better, margin=0.02, labels=("grpo", "gspo"), unproven=["weights", "prompts"]
    )
    assert found.word == "better by more than the margin"
    trust = "The pairs are taken on trust: weights, prompts not recorded everywhere."
    assert (
        statement("sentence", found) == f"gspo is better than grpo by more than the margin. {trust}"
    )


def test_better_with_unresolved_size() -> None:
    found = decide(BASE, BASE + np.array([0.02, 0.03, 0.04]), margin=0.02)
    assert_fields(found, word="better, not shown to exceed the margin", better="b")
    assert statement("sentence", found) == "b is better than a, not shown to exceed the margin."


def test_an_equal_difference_at_every_seed_is_not_taken_for_certainty() -> None:
    found = decide(BASE, BASE + 0.1, margin=0.02)
    assert_fields(found, word="no verdict", smallest_detectable=None)
