import math

import pytest
import torch

from gspo_lab.objectives import advantages, overlong_penalty, turn_advantages

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


NONE = math.nan
# Two groups of three responses, of 1 to 3 turns.
EARNED = torch.tensor(
    [[[1.0, NONE, NONE], [0.0, 0.5, NONE], [-0.5, 0.0, 1.5]], [[0.0, 1.0, NONE], [0.0, 0.0, NONE], [0.0, 0.0, NONE]]],
    dtype=torch.float64,
)


def test_turns_by_pencil() -> None:
    out = turn_advantages(EARNED, "group-mean")
    # Returns of group 0: 1; 0.5, 0.5; 1, 1.5, 1.5. First turns: mean 5/6. Second: 0.5 and 1.5. Third: alone.
    assert out[0].tolist() == pytest.approx(
        [pytest.approx(row, abs=1e-6) for row in [[1 / 6, 0, 0], [-1 / 3, -0.5, 0], [1 / 6, 0.5, 0]]]
    )
    # Group 1: 1, 1; 0, 0; 0, 0 at either turn.
    assert out[1, :, 0].tolist() == pytest.approx([2 / 3, -1 / 3, -1 / 3], abs=1e-6)
    assert torch.equal(out[1, :, 0], out[1, :, 1])
    # Two values of a group are 1/sqrt(2) standard deviations (n - 1) from their mean.
    assert turn_advantages(EARNED, "group-mean-std")[0, 1:, 1].tolist() == pytest.approx(
        [-(0.5**0.5), 0.5**0.5], abs=1e-5
    )


@pytest.mark.parametrize("how", ["group-mean-std", "group-mean", "leave-one-out"])
def test_first_turns_have_their_responses_advantages(how: str) -> None:
    rewards = EARNED.nansum(dim=2).float()
    assert torch.equal(turn_advantages(EARNED, how)[..., 0], advantages(rewards, how))
    # Of responses of one turn nothing changes, bit for bit.
    assert torch.equal(turn_advantages(rewards.double()[..., None], how)[..., 0], advantages(rewards, how))


def test_equal_sums_of_other_turns_are_equal() -> None:
    earned = torch.tensor([[[-0.1, -0.1, 1.0], [-0.1, 0.9, NONE], [0.0, -0.2, 1.0]]], dtype=torch.float64)
    assert turn_advantages(earned, "group-mean-std")[0, :, 0].tolist() == [0.0, 0.0, 0.0]


def test_the_last_tokens_cost_a_line() -> None:
    """DAPO's eq. 13 with L_max 10 and L_cache 4: nothing up to 6 tokens, a quarter a token, all of it from 10 on."""
    lengths = torch.tensor([[1.0, 6.0, 7.0], [9.0, 10.0, 12.0]])
    assert overlong_penalty(lengths, 10, 4, 1.0).tolist() == [[0, 0, 0.25], [0.75, 1, 1]]
    assert overlong_penalty(lengths, 10, 4, 0.5).tolist() == [[0, 0, 0.125], [0.375, 0.5, 0.5]]
    # The whole limit as buffer: length costs from the first token on.
    assert overlong_penalty(lengths, 10, 10, 1.0)[0].tolist() == pytest.approx([0.1, 0.6, 0.7])
