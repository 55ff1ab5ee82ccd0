import numpy as np
import pytest

from gspo_lab.stats.collapse import (
    entropy_adrift,
    entropy_collapse,
    length_pinned,
    required_steps,
    signal_onset,
    stability,
)


def _steps(values: list[float]) -> list[int]:
    return list(range(len(values)))


def test_window_is_ten_steps_or_five_percent() -> None:
    assert [required_steps(planned) for planned in (40, 200, 201, 1000)] == [10, 10, 11, 50]


def test_a_fall_to_nothing_is_a_collapse_from_the_step_it_qualifies() -> None:
    reward = [0.2] * 10 + [0.8] * 40 + [0.0] * 40
    found = stability(_steps(reward), reward, 90)
    # From .8 the EMA falls by .9 a step; it is below .4 (half the peak) after 7 steps of 0: .9^7 = .478 < .5 - and the
    # regression bar, .8 - .5 (.8 - .2) = .5, is crossed after 5: .9^5 = .590 < .625. The EMA's weights have converged.
    assert (found.collapse, found.cause, found.regression) == (56, "reward", 54)
    assert found.peak == pytest.approx(0.8, abs=0.01)
    assert found.start == pytest.approx(0.2)


def test_a_fall_by_half_of_the_gain_is_a_regression_only() -> None:
    reward = [0.2] * 10 + [0.8] * 40 + [0.45] * 40
    found = stability(_steps(reward), reward, 90)
    assert found.collapse is None
    assert 50 < found.regression < 80


def test_a_short_dip_is_neither() -> None:
    reward = [0.2] * 10 + [0.8] * 40 + [0.0] * 8 + [0.8] * 40
    found = stability(_steps(reward), reward, 98)
    assert (found.collapse, found.regression) == (None, None)


def test_noise_around_a_rising_reward_is_neither() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        reward = np.linspace(0.2, 0.6, 200) + rng.normal(0, 0.1, 200)
        found = stability(range(200), reward, 200)
        assert (found.collapse, found.regression) == (None, None)


def test_non_finite_loss_is_a_collapse_by_itself_and_first_comes_first() -> None:
    steady = [0.5] * 40
    found = stability(_steps(steady), steady, 40, nonfinite_steps=[33, 31])
    assert (found.collapse, found.cause) == (31, "non-finite")
    fallen = [0.8] * 20 + [0.0] * 40
    later = stability(_steps(fallen), fallen, 60, nonfinite_steps=[59])
    assert (later.cause, later.collapse is not None and later.collapse < 59) == ("reward", True)


def test_a_reward_that_is_gone_after_the_first_step_is_a_collapse() -> None:
    """As at a learning rate of 10: the run ends, and is judged.

    The start is .5 / 10 = .05, and the EMA .05 x .9^t / (1 - .9^(t + 1)): .0254 at t = 10, .0219 < .05 / 2 at t = 11.
    """
    reward = [0.5] + [0.0] * 39
    found = stability(_steps(reward), reward, 40)
    assert (found.start, found.cause, found.collapse) == (0.05, "reward", 11)


def test_too_few_steps_are_not_judged() -> None:
    found = stability([0, 1, 2], [0.5, 0.1, 0.0], 40)
    assert (found.judged, found.collapse, found.peak) == (False, None, None)


def test_a_reward_is_told_to_have_stood_where_a_fall_could_have_shown() -> None:
    """Ten steps make the peak, and of a fall that begins on the last of them ten are wanted: nineteen."""
    assert not stability(range(18), [0.5] * 18, 18).judged
    assert stability(range(19), [0.5] * 19, 19).judged


def test_onset_is_a_step_not_a_row() -> None:
    reward = [0.2] * 10 + [0.8] * 40 + [0.0] * 40
    shifted = stability([step + 1000 for step in _steps(reward)], reward, 90)
    assert shifted.collapse == 1056


def test_negative_rewards_fall_too() -> None:
    reward = [-1.0] * 10 + [-0.2] * 40 + [-1.0] * 40
    assert stability(_steps(reward), reward, 90).collapse is not None


def test_signal_onset_needs_five_steps_outside() -> None:
    calm = [1.0, 1.1] * 25
    found = signal_onset(range(70), [*calm, 9.0, 9.0, 1.0, *[9.0] * 10, *[1.0] * 7])
    assert (found.step, found.judged) == (53, True)
    assert signal_onset(range(60), [*calm, *[1.0] * 10]) == (None, True)
    assert signal_onset(range(20), calm[:20]) == (None, False)


def test_flags() -> None:
    assert length_pinned(0.91)
    assert not length_pinned(0.9)
    assert entropy_adrift([1.0, 0.11, 0.09, 2.9, 3.1]).tolist() == [False, False, False, False, True]


def test_entropy_that_stays_below_a_tenth_of_its_start_has_collapsed() -> None:
    """From 1 to 0 after 30 steps the EMA is .9^t: below .1 at t = 22, the 52nd value, and so for ten steps on end."""
    entropy = [1.0] * 30 + [0.0] * 40
    assert entropy_collapse(_steps(entropy), entropy, 70) == (51, True)
    assert entropy_collapse(_steps(entropy), [value + 0.11 for value in entropy], 70) == (None, True)
    # It comes back before ten steps are over.
    assert entropy_collapse(range(90), [*[1.0] * 30, *[0.0] * 25, *[1.0] * 35], 90) == (None, True)
    # 19 values could show it, 18 could not.
    assert [entropy_collapse(range(n), [1.0] * n, 40) for n in (19, 18)] == [(None, True), (None, False)]
