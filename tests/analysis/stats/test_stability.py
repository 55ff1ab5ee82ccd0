import math
from dataclasses import replace

import pytest
from assertions import assert_fields

from gspo_lab.analysis.stats.paired import paired_t
from gspo_lab.analysis.stats.stability import ArmRuns, RunPairs, decide_stability
from gspo_lab.analysis.stats.verdict import Rule

MARGIN = Rule(0.02)
FALLING = ArmRuns([0.8, 0.7, 0.8, 0.7, 0.8], [0.3, 0.3, 0.2, 0.3, 0.3], [0.2] * 5, (5, 5))
HOLDING = ArmRuns([0.8, 0.7, 0.8, 0.7, 0.8], [0.8, 0.68, 0.79, 0.7, 0.78], [0.2] * 5, (0, 5))


def test_a_drop_is_held_against_the_gain_or_half_of_the_best_score_or_the_margin() -> None:
    # Gains .5, 0, not measured, .001; halves of the best score .3, .2, .15, .0005.
    runs = ArmRuns([0.6, 0.4, 0.3, 0.001], [0.5, 0.1, 0.3, 0.0], [0.1, 0.4, math.nan, 0.0], (1, 4))
    assert runs.stakes(0.02) == pytest.approx([0.5, 0.2, 0.15, 0.02])
    assert runs.drops == pytest.approx([0.1, 0.3, 0.0, 0.001])


def test_no_worse_by_hand() -> None:
    # Mean .1, sd .1, se .1 / sqrt(3): against -.02 t = .12 sqrt(3) / .1 = 2.078 on 2 degrees of
    # freedom, p .173.
    paired = paired_t([0.0, 0.1, 0.2])
    assert paired.no_worse(0.02, treatment=True) == pytest.approx(0.1732, abs=1e-3)
    # The first arm is behind by .1, more than the margin.
    assert paired.no_worse(0.02, treatment=False) == 1.0
    assert paired_t([0.1, 0.1, 0.1, 0.1]).no_worse(0.02, treatment=True) == 0.0
    assert paired_t([-0.1] * 4).no_worse(0.02, treatment=True) == 1.0
    assert paired_t([0.1, 0.2]).no_worse(0.02, treatment=True) is None


def test_more_and_less_stable_are_the_same_rule() -> None:
    (more,) = decide_stability([RunPairs(FALLING, HOLDING)], MARGIN)
    (less,) = decide_stability([RunPairs(HOLDING, FALLING)], MARGIN)
    assert (more.word, less.word) == ("more stable", "less stable")
    # Gains .6, .5, .6, .5, .6: relative drops .5/.6, .4/.5, .6/.6, .4/.5, .5/.6 against 0, .02/.5,
    # .01/.6, 0, .02/.6.
    relative = [5 / 6, 4 / 5, 1, 4 / 5, 5 / 6], [0, 0.04, 1 / 60, 0, 1 / 30]
    assert more.drop.paired.estimate == pytest.approx((sum(relative[0]) - sum(relative[1])) / 5)
    assert more.points.estimate == pytest.approx((2.4 - 0.05) / 5)
    assert more.drops == (
        pytest.approx((sum(relative[0]) / 5, 0.48)),
        pytest.approx((sum(relative[1]) / 5, 0.01)),
    )
    # The margin is a share of the mean gain, .56.
    assert more.drop.margin == pytest.approx(0.02 / 0.56)


def test_runs_that_all_hold_are_never_less_stable() -> None:
    """Equal mean drops of unequal shape.

    The one is .05 always. The other is .35 in one run of seven, which five seeds need not show.
    """
    always = ArmRuns([0.8] * 5, [0.75, 0.74, 0.76, 0.75, 0.75], [0.2] * 5, (0, 5))
    seldom = ArmRuns([0.8] * 5, [0.8] * 5, [0.2] * 5, (0, 5))
    (verdict,) = decide_stability([RunPairs(always, seldom)], MARGIN)
    assert verdict.drop.better == "b"
    assert_fields(
        verdict,
        word="inconclusive",
        direction=0,
        because="b drops less from its best, but no run of a was unstable",
    )
    (contrary,) = decide_stability(
        [RunPairs(replace(always, unstable=(1, 5)), replace(seldom, unstable=(2, 5)))], MARGIN
    )
    assert contrary.because == "b drops less from its best, but more of its runs were unstable"


def test_a_slow_learner_that_ends_below_is_not_more_stable() -> None:
    """It gains .1 and loses none of it.

    The baseline gains .5, loses .3 of it, and ends .1 to .12 above.
    """
    fast = ArmRuns([0.7] * 5, [0.4, 0.42, 0.41, 0.4, 0.42], [0.2] * 5, (1, 5))
    slow = ArmRuns([0.3] * 5, [0.3, 0.3, 0.3, 0.29, 0.3], [0.2] * 5, (0, 5))
    (verdict,) = decide_stability([RunPairs(fast, slow)], MARGIN)
    assert verdict.drop.better == "b"
    assert verdict.word == "inconclusive"
    assert verdict.because.startswith(
        "b drops less from its best, but its final score may be worse"
    )


def test_alpha_is_shared_by_arms_alone() -> None:
    """The t-test of one arm has the whole alpha.

    Beside another arm without a difference it must pass at half of it.
    """
    noisy = ArmRuns([0.8] * 5, [0.8, 0.3, 0.7, 0.3, 0.6], [0.2] * 5, (2, 5))
    steady = ArmRuns([0.8] * 5, [0.79, 0.78, 0.8, 0.75, 0.78], [0.2] * 5, (0, 5))
    alone, *_ = decide_stability([RunPairs(noisy, steady)], MARGIN)
    p = alone.drop.paired.p
    assert 0.025 < p < 0.1
    lenient = Rule(0.02, alpha=p * 1.01)
    assert decide_stability([RunPairs(noisy, steady)], lenient)[0].word == "more stable"
    two = [RunPairs(noisy, steady), RunPairs(noisy, noisy)]
    among = decide_stability(two, MARGIN)[0].drop.paired.p
    strict = Rule(0.02, alpha=among * 1.99)
    assert decide_stability(two, strict)[0].word == "inconclusive"
