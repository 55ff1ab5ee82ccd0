import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspo_lab.errors import LabError
from gspo_lab.stats.holm import Step, holm, step_down


def test_by_hand() -> None:
    # Sorted .01, .02, .04: 3 x .01 = .03, 2 x .02 = .04, 1 x .04 = .04.
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    # The second product, 2 x .011 = .022, may not fall below the first, 3 x .01 = .03.
    assert holm([0.01, 0.011, 0.9]) == pytest.approx([0.03, 0.03, 0.9])


def test_untestable_claims_stay_none_and_a_declared_family_counts_them() -> None:
    assert holm([None, 0.01, 0.5]) == [None, pytest.approx(0.02), 0.5]
    assert holm([None, 0.01, 0.5], family=3) == [None, pytest.approx(0.03), 1.0]
    assert holm([]) == []
    with pytest.raises(LabError, match="family of 1"):
        holm([0.1, 0.2], family=1)
    with pytest.raises(LabError, match="between 0 and 1"):
        holm([1.5])


@given(st.lists(st.floats(0, 1), max_size=8))
def test_never_below_the_raw_p_and_in_the_same_order(p_values: list[float]) -> None:
    adjusted = [value for value in holm(p_values) if value is not None]
    assert all(raw <= high <= 1 for raw, high in zip(p_values, adjusted, strict=True))
    by_raw = [high for _, high in sorted(zip(p_values, adjusted, strict=True))]
    assert by_raw == sorted(by_raw)


def test_steps_by_hand() -> None:
    # .01 < .05 / 3, .02 < .05 / 2, .04 < .05: all rejected, each at its own level.
    assert step_down([0.04, 0.01, 0.02], 0.05) == [Step(True, 0.05), Step(True, 0.05 / 3), Step(True, 0.025)]
    # .03 is not below .05 / 2: it and what is larger were tested there. What could not be tested counts in the family.
    assert step_down([0.011, 0.03, None], 0.05) == [Step(True, 0.05 / 3), Step(False, 0.025), Step(False, 0.025)]
    assert step_down([None], 0.05) == [Step(False, 0.05)]
    assert step_down([0.02], 0.05, lambda alpha: alpha / 4) == [Step(False, 0.0125)]


@given(st.lists(st.floats(0, 1), max_size=8))
def test_steps_reject_what_the_adjusted_p_values_reject(p_values: list[float]) -> None:
    adjusted = [value is not None and value < 0.05 for value in holm(p_values)]
    assert [step.rejected for step in step_down(p_values, 0.05)] == adjusted
