import itertools
import math

import numpy as np
import pytest
from scipy import stats

from gspo_lab.errors import LabError
from gspo_lab.stats.passk import checkpoint_score, pass_at_k


def test_against_every_subset() -> None:
    for n in range(1, 7):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            answers = [True] * c + [False] * (n - c)
            subsets = list(itertools.combinations(answers, k))
            expected = sum(any(subset) for subset in subsets) / len(subsets)
            assert pass_at_k([c], [n], k)[0] == pytest.approx(expected), (n, c, k)


def test_large_counts_and_one_number_of_samples_for_all() -> None:
    assert pass_at_k([10], 2000, 100)[0] == pytest.approx(1 - math.comb(1990, 100) / math.comb(2000, 100))
    assert pass_at_k([0, 1, 4], 4, 1).tolist() == [0.0, 0.25, 1.0]


def test_impossible_counts_are_refused() -> None:
    for correct, samples, k in (([1], [4], 5), ([1], [4], 0), ([5], [4], 1), ([1.5], [4], 1)):
        with pytest.raises(LabError):
            pass_at_k(correct, samples, k)


def test_one_answer_per_problem_is_the_jeffreys_interval() -> None:
    # 3 of 10, one answer each: var_i / I = p (1 - p) / 9, 9 effective answers, Beta(3.2, 6.8).
    found = checkpoint_score([1, 1, 1] + [0] * 7, 1)
    assert (found.mean, found.problems, found.answers) == (pytest.approx(0.3), 10, 10)
    assert found.se == pytest.approx(math.sqrt(0.3 * 0.7 / 9))
    assert (found.sampling_se, found.item_se) == (None, None)
    assert checkpoint_score([1], 1).se is None
    assert stats.beta.cdf([found.item_low, found.item_high], 3.2, 6.8) == pytest.approx([0.025, 0.975])


def test_split_of_the_variance() -> None:
    # Two answers each: p = 0, 1/2, 1. Sampling (1/4) / 1 / 9 = 1/36; problems too: variance 1/4 over 3 = 1/12.
    found = checkpoint_score([0, 1, 2], 2)
    assert found.se == pytest.approx(math.sqrt(1 / 12))
    assert found.sampling_se == pytest.approx(math.sqrt(1 / 36))
    assert found.item_se == pytest.approx(math.sqrt(1 / 12 - 1 / 36))


def test_everything_right_is_not_certain() -> None:
    found = checkpoint_score([16] * 30, 16)
    assert found.mean == 1.0
    assert found.item_high == 1.0
    assert 0.9 < found.item_low < 1.0


@pytest.mark.parametrize("samples", [2, 8])
def test_the_interval_covers(samples: int) -> None:
    rng = np.random.default_rng(samples)
    studies, problems = 600, 40
    rate = 1 / (1 + np.exp(-rng.normal(-0.5, 2.0, (studies, problems))))
    population = float((1 / (1 + np.exp(-rng.normal(-0.5, 2.0, 400_000)))).mean())
    scores = [checkpoint_score(rng.binomial(samples, rates), samples) for rates in rate]
    covered = sum(found.item_low <= population <= found.item_high for found in scores)
    assert covered / studies == pytest.approx(0.95, abs=0.03)


def test_a_problem_without_an_answer_is_refused() -> None:
    with pytest.raises(LabError, match="never asked"):
        checkpoint_score([0, 1], [0, 2])
