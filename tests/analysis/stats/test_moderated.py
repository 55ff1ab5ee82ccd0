"""The variance by all arms of a study, against tables computed by hand."""

from dataclasses import replace

import numpy as np
import pytest
from assertions import assert_fields

from gspo_lab.analysis.stats.moderated import (
    PLAIN,
    VarianceRule,
    block_mean_square,
    contrast_rule,
    contrast_variance,
    moderated_variance,
)
from gspo_lab.analysis.stats.paired import two_way
from gspo_lab.analysis.stats.power import detectable_factor, detection_chance, equivalence_factor
from gspo_lab.analysis.stats.verdict import Comparison, Rule, Scores, decide_all
from gspo_lab.common.reason import Reason

TABLE = np.array([[0.0, 0, 0], [1, 2, 3], [2, 2, 5], [0, 3, 6]])
"""Scores of a baseline and three arms on three seeds."""
THREE = TABLE[:3]
"""Arm means 0, 2, 3; seed means 1, 4/3, 8/3; grand mean 5/3.

The residuals are (2, 1, -3) / 3, (-1, 1, 0) / 3 and (-1, -2, 3) / 3; their squares sum to 30/9.
"""


def judged(*arms: np.ndarray, barred: tuple[Reason, ...] = ()) -> list[Comparison]:
    """The verdicts on arms against the first row; `barred` withholds that of the last."""
    scores = [Scores(TABLE[0], arm, ("base", f"arm {place}")) for place, arm in enumerate(arms)]
    scores[-1] = replace(scores[-1], withheld_because=barred)
    return decide_all(scores, Rule(0.1))


def test_three_arms_by_hand() -> None:
    # MS = (30/9) / 4. s_k^2 = 1 and 3; s~_k^2 = (2 * 2 * 5/6 + 2 s_k^2) / 4.
    assert block_mean_square(THREE) == pytest.approx(5 / 6)
    for place, variance in ((1, 4 / 3), (2, 7 / 3)):
        estimated = moderated_variance(THREE, 0, place)
        assert estimated is not None
        assert estimated.variance == pytest.approx(variance)
        assert estimated.rule.degrees(3) == 4


def test_a_verdict_among_three_arms_rests_on_it() -> None:
    # 2 +- t(4, .975) sqrt(4/3) / sqrt 3 = 2 +- 2.7764 * 2/3; alone 2 +- 4.3027 / sqrt 3.
    paired = judged(*THREE[1:])[0].paired
    assert (paired.sd, paired.pooled_sd, paired.df) == pytest.approx((1.0, (4 / 3) ** 0.5, 4.0))
    assert (paired.low, paired.high) == pytest.approx((2 - 1.85096, 2 + 1.85096), abs=1e-4)
    alone = judged(THREE[1])[0].paired
    assert_fields(alone, pooled_sd=None, df=2.0, low=pytest.approx(2 - 2.48414, abs=1e-4))


def test_two_arms_are_the_plain_paired_t() -> None:
    two = TABLE[:2]
    assert 2 * block_mean_square(two) == pytest.approx((two[1] - two[0]).var(ddof=1))
    assert moderated_variance(two, 0, 1) is None
    assert (PLAIN.degrees(5), PLAIN.sampled_degrees(5)) == (4, 4)


def test_an_arm_that_is_withheld_says_nothing_of_the_others() -> None:
    barred = (Reason("not-matched", "other weights"),)
    alone, withheld = judged(TABLE[1], TABLE[2], barred=barred)
    assert (alone.paired.pooled_sd, withheld.paired.pooled_sd) == (None, None)
    three = judged(TABLE[1], TABLE[2], TABLE[3], barred=barred)
    assert three[0].paired.pooled_sd == pytest.approx((4 / 3) ** 0.5)


def test_the_answers_alone_still_bound_the_spread_from_below() -> None:
    scores = [Scores(TABLE[0], arm, items_variance=4.0) for arm in THREE[1:]]
    assert [verdict.paired.spread for verdict in decide_all(scores, Rule(0.1))] == [2.0, 2.0]


def test_an_arm_whose_scores_are_the_baseline_s_has_no_verdict() -> None:
    same, other = judged(TABLE[0], TABLE[2])
    assert (same.word, same.paired.reason) == ("no verdict", "identical scores")
    assert other.paired.low is not None


def test_the_contrast_of_a_2_x_2_by_hand() -> None:
    # By seed: rule (.5, 1.5, 4), replay (-.5, 1.5, 2), interaction (-1.5, -.5, -1).
    weights = [-0.5, -0.5, 0.5, 0.5]
    estimated = contrast_variance(TABLE, weights)
    assert estimated is not None
    assert estimated.variance == pytest.approx((3.25 + 1.75 + 0.25) / 3)
    assert estimated.rule.degrees(3) == 6
    scores = Scores(TABLE[:2].mean(axis=0), TABLE[2:].mean(axis=0), estimated=estimated)
    (verdict,) = decide_all([scores], Rule(0.1))
    # 2 +- t(6, .975) sqrt(1.75 / 3) = 2 +- 2.44691 * .763763; alone 2 +- 4.3027 * 1.04083.
    assert (verdict.paired.low, verdict.paired.high) == pytest.approx(
        (2 - 1.86886, 2 + 1.86886), abs=1e-4
    )
    assert verdict.paired.sd == pytest.approx(3.25**0.5)


def test_new_problems_of_the_contrast_by_hand() -> None:
    """By seed its differences are .5, 1.5 and 4, as in the table.

    Four problems lie below and four above them.

    Vs = 1.75 / 3 on 6 degrees. Problems' means 4/3 and 8/3: Vi = 8 (2/3)^2 / 7 / 8 = 4/63.
    Residuals +-1/6, +-1/6, +-1/3: Vr = 4/3 / (2 x 7 x 3 x 8) = 1/252. V = (147 + 16 - 1) / 252.
    """
    d_SI = np.repeat([[0.0, 1], [1, 2], [3, 5]], 4, axis=1)
    weights = [-0.5, -0.5, 0.5, 0.5]
    estimated = contrast_variance(TABLE, weights)
    assert estimated is not None
    found = two_way(d_SI, estimated=estimated)
    # V^2 / ((7/12)^2/6 + (4/63)^2/7 + (1/252)^2/14) degrees; t(7.21, .975) = 2.3505.
    assert (found.variance, found.df) == pytest.approx((9 / 14, 7.21357))
    assert (found.low, found.high) == pytest.approx((2 - 1.8846, 2 + 1.8846), abs=1e-4)


@pytest.mark.parametrize("weights", [[1.0, -1.0], [1.0, -0.5, -0.5]])
def test_a_pair_and_unequal_weights_keep_the_plain_variance(weights: list[float]) -> None:
    assert contrast_rule(weights) == PLAIN
    assert contrast_variance(TABLE[: len(weights)], weights) is None


def test_the_estimate_varies_as_a_chi_square_with_its_sampled_degrees() -> None:
    # Four arms, three seeds: b = 2/6; 16 / (2 (4/3)^2 + 4 (1/3)^2) = 4. Mean 1, variance 2 / f.
    assert VarianceRule(4).sampled_degrees(3) == pytest.approx(4)
    rng = np.random.default_rng(0)
    for arms, seeds in ((3, 3), (4, 3), (6, 5)):
        drawn = [moderated_variance(rng.standard_normal((arms, seeds)), 0, 1) for _ in range(4_000)]
        ratios = np.array([estimated.variance / 2 for estimated in drawn if estimated])
        assert ratios.mean() == pytest.approx(1, abs=0.04)
        expected = 2 / VarianceRule(arms).sampled_degrees(seeds)
        assert ratios.var() == pytest.approx(expected, rel=0.12)


def test_power_reckons_with_all_arms() -> None:
    """A difference of 2 sd among three treatments of three seeds has more power with all arms.

    The power is .19 with the pair's own spread and .45 with all arms. The contrast's 3 (n-1)
    degrees replace n - 1.
    """
    assert detection_chance(3, 2, 0.05 / 3) == pytest.approx(0.194, abs=0.001)
    assert detection_chance(3, 2, 0.05 / 3, VarianceRule(4)) == pytest.approx(0.453, abs=0.001)
    contrast = VarianceRule(4, contrast=True)
    for n, width in ((3, 0.61), (5, 0.82), (10, 0.92)):
        ratio = detectable_factor(n, rule=contrast) / detectable_factor(n)
        assert ratio == pytest.approx(width, abs=0.06)
    assert equivalence_factor(5, rule=contrast) < equivalence_factor(5)
