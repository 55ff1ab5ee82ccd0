import math

import pytest
import torch

from gspo_lab.objectives import advantages

REWARDS = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [0.1, 0.1, 0.1, 0.1]], dtype=torch.float64)


def test_pencil() -> None:
    # Group 0: mean 1/4, deviations 3/4, -1/4 (x3); variance (9/16 + 3/16) / 3 = 1/4, std 1/2.
    by_std = advantages(REWARDS, "group-mean-std")
    assert by_std[0].tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)
    assert advantages(REWARDS, "group-mean")[0].tolist() == pytest.approx([0.75, -0.25, -0.25, -0.25])
    # Leave-one-out: 1 - 0 = 1; 0 - 1/3.
    assert advantages(REWARDS, "leave-one-out")[0].tolist() == pytest.approx([1.0, -1 / 3, -1 / 3, -1 / 3])
    # Batch std of the 12 centred rewards: squares 9/16 + 3/16 + 4 x 1/4 = 7/4, / 11.
    by_batch = advantages(REWARDS, "batch-std")
    assert by_batch[0, 0].item() == pytest.approx(0.75 / (1.75 / 11) ** 0.5, rel=1e-5)


@pytest.mark.parametrize("how", ["group-mean-std", "group-mean", "leave-one-out", "batch-std"])
def test_equal_rewards_give_exactly_zero_and_groups_sum_to_zero(how: str) -> None:
    out = advantages(REWARDS, how)
    assert out[2].tolist() == [0.0, 0.0, 0.0, 0.0]
    assert out.sum(dim=1).abs().max() < 1e-12
    assert advantages(torch.full((2, 3), 0.1), how).tolist() == [[0.0] * 3] * 2


def test_over_the_whole_batch_an_equal_group_keeps_its_distance() -> None:
    """Rewards 1, 1 and 0, 0: mean 1/2, deviation sqrt(4 x 1/4 / 3) = 0.577; all equal, nothing is told apart."""
    reward_PG = torch.tensor([[1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    found = advantages(reward_PG, "batch-mean-std").flatten().tolist()
    assert found == pytest.approx([math.sqrt(3) / 2] * 2 + [-math.sqrt(3) / 2] * 2, abs=1e-5)
    assert not advantages(torch.full((3, 4), 0.1), "batch-mean-std").any()
