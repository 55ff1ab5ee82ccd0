"""The sigmoid of compute against performance: known curves are found again, and short ones refused."""

import numpy as np
import pytest

from gspo_lab.stats.scaling import fit_scaling


def curve(compute: np.ndarray, asymptote: float, exponent: float, midpoint: float, start: float = 0.2) -> np.ndarray:
    later = start + (asymptote - start) / (1 + (midpoint / np.maximum(compute, 1.0)) ** exponent)
    return np.where(compute > 0, later, start)


COMPUTE = np.concatenate([[0.0], 1e9 * np.arange(1, 17)])


@pytest.mark.parametrize(("asymptote", "exponent", "midpoint"), [(0.8, 1.0, 2e9), (0.6, 2.0, 5e9), (1.0, 4.0, 8e9)])
def test_a_curve_is_found_again(asymptote: float, exponent: float, midpoint: float) -> None:
    fit = fit_scaling(COMPUTE, curve(COMPUTE, asymptote, exponent, midpoint))
    assert fit is not None
    assert (fit.asymptote, fit.exponent, fit.midpoint) == pytest.approx((asymptote, exponent, midpoint), rel=1e-3)
    assert fit.rms < 1e-5


def test_half_of_the_gain_is_made_at_the_midpoint() -> None:
    """By hand: from .2 to .8, exponent 1, midpoint 2: at C = 2 the score is .5, at 4 it is .2 + .6 x 2/3 = .6."""
    assert curve(np.array([2e9, 4e9]), 0.8, 1.0, 2e9).tolist() == pytest.approx([0.5, 0.6])


def test_noise_moves_it_little() -> None:
    rng = np.random.default_rng(0)
    fits = [fit_scaling(COMPUTE, curve(COMPUTE, 0.8, 2.0, 3e9) + rng.normal(0, 0.01, 17)) for _ in range(20)]
    assert all(fit is not None and abs(fit.asymptote - 0.8) < 0.05 for fit in fits)


def test_short_runs_are_refused() -> None:
    whole = curve(COMPUTE, 0.8, 2.0, 6e9)
    assert fit_scaling(COMPUTE, whole) is not None
    assert fit_scaling(COMPUTE[:7], whole[:7]) is None, "half of the gain: its asymptote is a guess"
    assert fit_scaling(COMPUTE[:6], curve(COMPUTE, 0.8, 2.0, 1e9)[:6]) is None, "five scores after the start"
    assert fit_scaling(COMPUTE, np.full(17, 0.3)) is None, "nothing is gained"
