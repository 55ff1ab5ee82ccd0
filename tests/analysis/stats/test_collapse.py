import numpy as np
import pytest
from assertions import assert_fields

from gspo_lab.analysis.stats.collapse import (
    entropy_adrift,
    entropy_collapse,
    length_pinned,
    required_steps,
    signal_onset,
    stability,
)


def _steps(values: list[float]) -> list[int]:
    return list(range(len(values)))


def test_a_fall_to_nothing_is_a_collapse_from_the_step_it_qualifies() -> None:
    reward = [0.2] * 10 + [0.8] * 40 + [0.0] * 40
    found = stability(_steps(reward), reward, 90)
    # From .8 the EMA falls by .9 a step; it is below .4 (half the peak) after 7 steps of 0: .9^7 =
    # .478 < .5 - and the regression bar, .8 - .5 (.8 - .2) = .5, is crossed after 5: .9^5 = .590 <
    # .625. The EMA's weights have converged.
    assert_fields(
        found,
        collapse=56,
        cause="reward",
        regression=54,
        peak=pytest.approx(0.8, abs=0.01),
        start=pytest.approx(0.2),
    )


RISE = [0.2] * 10 + [0.8] * 40


@pytest.mark.parametrize(
    ("reward", "fatal", "collapse", "cause", "regressed"),
    [
        (RISE + [0.45] * 40, [], None, None, True),  # half of the gain
        (RISE + [0.0] * 8 + [0.8] * 40, [], None, None, False),  # a short dip
        ([-1.0] * 10 + [-0.2] * 40 + [-1.0] * 40, [], 56, "reward", True),
        ([0.1] * 40, [33, 31], 31, "non-finite", False),  # a constant, whose averages are rounded
        (RISE + [0.0] * 40, [88], 56, "reward", True),  # the first of two causes counts
        # The start is .5 / 10 = .05, the EMA .05 x .9^t / (1 - .9^(t + 1)): .0254 at t = 10, .0219
        # < .05 / 2 at t = 11.
        ([0.5] + [0.0] * 39, [], 11, "reward", True),
        ([0.5, 0.1, 0.0], [], None, None, False),
        ([0.5] * 18, [], None, None, False),
    ],
)
def test_falls_and_what_is_none(
    reward: list[float], fatal: list[int], collapse: int | None, cause: str | None, regressed: bool
) -> None:
    steps = [step + 1000 for step in _steps(reward)]  # an onset is a step, not a row
    found = stability(steps, reward, len(reward), nonfinite_steps=[1000 + step for step in fatal])
    assert_fields(found, collapse=None if collapse is None else 1000 + collapse, cause=cause)
    assert (found.regression is not None) == regressed
    assert found.judged == (
        len(reward) >= 19
    )  # ten steps make the peak, ten from the last of them on a fall


def test_windows_are_ten_steps_or_five_percent_and_noise_is_no_fall() -> None:
    assert [required_steps(planned) for planned in (40, 200, 201, 1000)] == [10, 10, 11, 50]
    rng = np.random.default_rng(0)
    for _ in range(50):
        reward = np.linspace(0.2, 0.6, 200) + rng.normal(0, 0.1, 200)
        found = stability(range(200), reward, 200)
        assert_fields(found, collapse=None, regression=None)


def test_signal_onset_needs_five_steps_outside() -> None:
    calm = [1.0, 1.1] * 25
    found = signal_onset(range(70), [*calm, 9.0, 9.0, 1.0, *[9.0] * 10, *[1.0] * 7])
    assert_fields(found, step=53, judged=True)
    assert signal_onset(range(60), [*calm, *[1.0] * 10]) == (None, True)
    assert signal_onset(range(20), calm[:20]) == (None, False)


def test_flags() -> None:
    assert length_pinned(0.91)
    assert not length_pinned(0.9)
    assert entropy_adrift([1.0, 0.11, 0.09, 2.9, 3.1]).tolist() == [
        False,
        False,
        False,
        False,
        True,
    ]


def test_entropy_that_stays_below_a_tenth_of_its_start_has_collapsed() -> None:
    """From 1 to 0 after 30 steps the EMA is .9^t.

    It is below .1 at t = 22, the 52nd value, and stays there for ten steps.
    """
    entropy = [1.0] * 30 + [0.0] * 40
    assert entropy_collapse(_steps(entropy), entropy, 70) == (51, True)
    assert entropy_collapse(_steps(entropy), [value + 0.11 for value in entropy], 70) == (
        None,
        True,
    )
    # It comes back before ten steps are over.
    assert entropy_collapse(range(90), [*[1.0] * 30, *[0.0] * 25, *[1.0] * 35], 90) == (None, True)
    # 19 values could show it, 18 could not.
    assert [entropy_collapse(range(n), [1.0] * n, 40) for n in (19, 18)] == [
        (None, True),
        (None, False),
    ]
