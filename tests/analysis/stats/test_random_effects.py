"""Executions of one declaration combined, and what became of their verdicts.

One example is computed by hand; others are published.
"""

import numpy as np
import pytest
from assertions import assert_fields
from calling import lab_error
from case_tables import cases
from scipy import stats

from gspo_lab.analysis.stats import decide
from gspo_lab.analysis.stats.paired import paired_t
from gspo_lab.analysis.stats.random_effects import (
    ReplicationOutcome,
    clusters,
    combine,
    random_effects,
    replication_outcome,
    welch_p,
)
from gspo_lab.analysis.stats.verdict import Verdict
from gspo_lab.common.reason import Reason
from gspo_lab.report.templating import statement

BCG = np.array(cases(__file__, "bcg"))


def test_two_executions_by_pencil() -> None:
    """0 and 2 with se 1: 2 / (1 + tau^2) = k - 1 = 1, so tau = 1 and se = 1.

    t_1 reaches 12.706 of them.
    """
    both = random_effects([0.0, 2.0], [1.0, 1.0])
    assert (both.estimate, both.tau, both.se) == pytest.approx((1, 1, 1))
    assert (both.low, both.high) == pytest.approx((1 - 12.7062, 1 + 12.7062), abs=1e-4)
    assert "hardly confirm" in statement("precision", both.k)


def test_executions_that_share_seeds_are_one_cluster_by_pencil() -> None:
    """Seeds 0 to 2 twice, the second time in another order, then 3 to 5 once."""
    first = paired_t([0.1, 0.2, 0.3])
    second = paired_t([0.3, 0.2, 0.4])
    third = paired_t([0.2, 0.3, 0.4])
    groups = clusters([((0, 1, 2), first), ((2, 1, 0), second), ((3, 4, 5), third)])
    assert [group.executions for group in groups] == [2, 1]
    # Seed 0 has .1 and .4, seed 1 twice .2, seed 2 .3 and .3.
    assert groups[0].paired.differences == pytest.approx((0.25, 0.2, 0.3))
    assert groups[1].paired is third
    both = combine(groups)
    assert both.k == 2
    # Each shares a seed with the third alone: all are one.
    (one,) = clusters([((0, 1, 2), first), ((3, 4, 5), third), ((2, 3, 9), second)])
    assert one.executions == 3
    assert one.paired.differences == pytest.approx((0.1, 0.2, 0.3, 0.2, 0.3, 0.4, 0.4))


def test_one_cluster_has_the_interval_of_its_seeds() -> None:
    """Executed twice on the same seeds, nothing lies between clusters.

    The t has 2 degrees of freedom, not 1.
    """
    again = paired_t([0.3, 0.2, 0.4])
    both = combine(clusters([((0, 1, 2), paired_t([0.1, 0.2, 0.3])), ((0, 1, 2), again)]))
    assert_fields(both, k=1, tau=None, df=2.0)
    # .2, .2, .35: mean .25, sd .0866, half of the interval 4.303 x .0866 / sqrt(3).
    assert (both.estimate, both.high - both.estimate) == pytest.approx((0.25, 0.2151), abs=1e-4)
    assert combine(clusters([((0, 1, 2), again)])) is None
    # The answers' variance of a mean of two is half of one execution's.
    floored = [((0, 1, 2), paired_t([0.2, 0.2, 0.2], items_variance=0.04))] * 2
    assert clusters(floored)[0].paired.items_sd == pytest.approx(0.02**0.5)


def test_executions_that_differ_less_than_they_could_are_not_narrower_than_their_own_errors() -> (
    None
):
    """Equal estimates: Hartung and Knapp's factor would be 0, and the interval a point."""
    both = random_effects([0.5, 0.5, 0.5], [0.3, 0.3, 0.3])
    assert (both.tau, both.se) == pytest.approx((0, 0.3 / np.sqrt(3)))
    assert both.high - 0.5 == pytest.approx(4.3027 * both.se, abs=1e-4)


def test_four_studies_of_unequal_variance() -> None:
    """metafor's result on these numbers is 0.22957, tau^2 0.05930.

    The call was rma(yi, vi, method = "PM", test = "knha").
    """
    found = random_effects([0.40, -0.20, 0.55, 0.10], list(np.sqrt([0.05, 0.06, 0.04, 0.05])))
    assert (found.estimate, found.tau**2) == pytest.approx((0.22957, 0.05930), abs=5e-6)


def test_errors_far_below_the_differences_leave_the_plain_variance() -> None:
    """With errors of 1e-9 of the differences tau is the estimates' sd.

    Rounding of the last bit does not change that.
    """
    rng = np.random.default_rng(3)
    for _ in range(50):
        y = rng.normal(size=rng.integers(2, 6))
        found = random_effects(list(y), [1e-9] * len(y))
        assert (found.estimate, found.tau) == pytest.approx((y.mean(), y.std(ddof=1)))


def test_what_cannot_be_combined() -> None:
    assert random_effects([0.1], [0.2]) is None
    with lab_error("standard error of 0"):
        random_effects([0.1, 0.2], [0.1, 0.0])


def test_two_executions_agree_by_welch_s_t() -> None:
    a = np.array([0.1, 0.3, 0.2, 0.5, 0.4])
    b = np.array([0.9, 0.6, 0.5, 1.2])
    means = [float(a.mean()), float(b.mean())]
    ses = [float(x.std(ddof=1) / np.sqrt(len(x))) for x in (a, b)]
    assert welch_p(means, ses, [4, 3]) == pytest.approx(
        stats.ttest_ind(a, b, equal_var=False).pvalue
    )
    assert welch_p(means[:1], ses[:1], [4]) is None


def said(centre: float, spread: float = 0.004, n: int = 5) -> Verdict:
    """The verdict of n differences around `centre` whose mean is exactly that, margin .02."""
    noise = np.linspace(-1, 1, n) * spread
    return decide(np.zeros(n), centre + noise, 0.02)


@pytest.mark.parametrize(
    ("first", "again", "word", "then"),
    cases(__file__, "what_became_of_a_word"),
)
def test_what_became_of_a_word(
    first: float, again: float, word: str, then: ReplicationOutcome
) -> None:
    assert said(first).word == word
    assert replication_outcome(said(first), said(again)) == then


def test_where_nothing_was_said_nothing_holds() -> None:
    assert replication_outcome(said(0.0, spread=0.1), said(0.0)) is None
    withheld = decide(
        [0.0] * 5,
        [0.1, 0.11, 0.12, 0.1, 0.1],
        0.02,
        withheld_because=[Reason("not-matched", "x")],
    )
    assert replication_outcome(said(0.0), withheld) is None


def test_the_vaccine_trials() -> None:
    """metafor's rma(yi, vi, method = "PM", test = "knha") on its dat.bcg."""
    a, b, c, d = BCG.T.astype(float)
    y = np.log(a / (a + b) / (c / (c + d)))
    v = 1 / a - 1 / (a + b) + 1 / c - 1 / (c + d)
    found = random_effects(list(y), list(np.sqrt(v)))
    assert (found.tau**2, found.estimate, found.se) == pytest.approx(
        (0.3181, -0.7150, 0.1809), abs=5e-5
    )
    assert (found.low, found.high) == pytest.approx((-1.1091, -0.3208), abs=5e-5)


def test_the_interval_over_executions_keeps_its_promise_where_the_plain_one_does_not() -> None:
    """5 executions of 5 pairs; the sd between them is twice one's standard error.

    This is a cell of docs/how-to/replicate.md.
    """
    rng = np.random.default_rng(7)
    over = plain = 0
    for _ in range(1000):
        pairs = rng.normal(rng.normal(0, 2 / np.sqrt(5), 5)[:, None], 1, (5, 5))
        se = pairs.std(axis=1, ddof=1) / np.sqrt(5)
        found = random_effects(list(pairs.mean(axis=1)), list(se))
        over += not found.low < 0 < found.high
        plain += abs(pairs.mean()) > 2.064 * pairs.std(ddof=1) / np.sqrt(25)
    assert over / 1000 < 0.08
    assert plain / 1000 > 0.2
