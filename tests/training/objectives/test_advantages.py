"""A critic's mathematics, computed by hand.

Advantages and returns token by token, whitening, the clipped value loss.
"""

import math

import pytest
import torch
from torch import Tensor

from gspo_lab.training.objectives import (
    advantages,
    at_last_token,
    decoupled,
    explained_variance,
    gae,
    overlong_penalty,
    sequence_advantages,
    turn_advantages,
    value_loss,
    whitened,
)

REWARDS = torch.tensor(
    [[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [0.1, 0.1, 0.1, 0.1]], dtype=torch.float64
)


# Two prompts, two responses each. "correct": (1, 0) and (1, 1); "style": (0, 1) and (3, 1).
# Within its group each is (+, -) 1 / sqrt 2 or 0: "correct" (+, -), (0, 0); "style" (-, +), (+, -).
BY_NAME = torch.tensor([[[1.0, 0.0], [1.0, 1.0]], [[0.0, 1.0], [3.0, 1.0]]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        # Both weigh 1: (0, 0), (+, -) 1 / sqrt 2, whose standard deviation is sqrt(1 / 3): sqrt(3 /
        # 2).
        ((1.0, 1.0), [[0.0, 0.0], [math.sqrt(1.5), -math.sqrt(1.5)]]),
        # 2 and 1: four times 1 / sqrt 2, sqrt(2 / 3): sqrt(3 / 4).
        ((2.0, 1.0), [[math.sqrt(0.75), -math.sqrt(0.75)]] * 2),
        # A name of weight 0 is no reward.
        ((1.0, 0.0), [[math.sqrt(1.5), -math.sqrt(1.5)], [0.0, 0.0]]),
    ],
)
def test_gdpo_normalises_each_reward_by_itself(
    weights: tuple[float, float], expected: list[list[float]]
) -> None:
    assert torch.allclose(
        decoupled(BY_NAME, weights), torch.tensor(expected, dtype=torch.float64), atol=1e-5
    )
    scaled = BY_NAME * torch.tensor([1.0, 100.0], dtype=torch.float64)[:, None, None]
    assert torch.allclose(decoupled(scaled, weights), decoupled(BY_NAME, weights), atol=1e-5)
    assert decoupled(BY_NAME * 0 + 7, weights).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_pencil() -> None:
    # Group 0: mean 1/4, deviations 3/4, -1/4 (x3); variance (9/16 + 3/16) / 3 = 1/4, std 1/2.
    by_std = advantages(REWARDS, "group-mean-std")
    assert by_std[0].tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)
    assert advantages(REWARDS, "group-mean")[0].tolist() == pytest.approx(
        [0.75, -0.25, -0.25, -0.25]
    )
    # Leave-one-out: 1 - 0 = 1; 0 - 1/3.
    assert advantages(REWARDS, "leave-one-out")[0].tolist() == pytest.approx(
        [1.0, -1 / 3, -1 / 3, -1 / 3]
    )
    # Batch std of the 12 centred rewards: squares 9/16 + 3/16 + 4 x 1/4 = 7/4, / 11.
    by_batch = advantages(REWARDS, "batch-std")
    assert by_batch[0, 0].item() == pytest.approx(0.75 / (1.75 / 11) ** 0.5, rel=1e-5)


@pytest.mark.parametrize("method", ["group-mean-std", "group-mean", "leave-one-out", "batch-std"])
def test_equal_rewards_give_exactly_zero_and_groups_sum_to_zero(method: str) -> None:
    out = advantages(REWARDS, method)
    assert out[2].tolist() == [0.0, 0.0, 0.0, 0.0]
    assert out.sum(dim=1).abs().max() < 1e-12
    assert advantages(torch.full((2, 3), 0.1), method).tolist() == [[0.0, 0.0, 0.0]] * 2


def test_over_the_whole_batch_an_equal_group_keeps_its_distance() -> None:
    """Rewards 1, 1 and 0, 0 have mean 1/2 and deviation sqrt(4 x 1/4 / 3) = 0.577.

    If all are equal, no advantage remains.
    """
    reward_PG = torch.tensor([[1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    actual = advantages(reward_PG, "batch-mean-std").flatten().tolist()
    assert actual == pytest.approx([math.sqrt(3) / 2] * 2 + [-math.sqrt(3) / 2] * 2, abs=1e-5)
    assert not advantages(torch.full((3, 4), 0.1), "batch-mean-std").any()


NONE = math.nan
# Two groups of three responses, of 1 to 3 turns.
EARNED = torch.tensor(
    [
        [[1.0, NONE, NONE], [0.0, 0.5, NONE], [-0.5, 0.0, 1.5]],
        [[0.0, 1.0, NONE], [0.0, 0.0, NONE], [0.0, 0.0, NONE]],
    ],
    dtype=torch.float64,
)


def test_turns_by_pencil() -> None:
    out = turn_advantages(EARNED, "group-mean")
    # Returns of group 0: 1; 0.5, 0.5; 1, 1.5, 1.5. First turns: mean 5/6. Second: 0.5 and 1.5.
    # Third: alone.
    assert out[0].tolist() == pytest.approx(
        [
            pytest.approx(row, abs=1e-6)
            for row in [[1 / 6, 0, 0], [-1 / 3, -0.5, 0], [1 / 6, 0.5, 0]]
        ]
    )
    # Group 1: 1, 1; 0, 0; 0, 0 at either turn.
    assert out[1, :, 0].tolist() == pytest.approx([2 / 3, -1 / 3, -1 / 3], abs=1e-6)
    assert torch.equal(out[1, :, 0], out[1, :, 1])
    # Two values of a group are 1/sqrt(2) standard deviations (n - 1) from their mean.
    assert turn_advantages(EARNED, "group-mean-std")[0, 1:, 1].tolist() == pytest.approx(
        [-(0.5**0.5), 0.5**0.5], abs=1e-5
    )


@pytest.mark.parametrize("method", ["group-mean-std", "group-mean", "leave-one-out"])
def test_first_turns_have_their_responses_advantages(method: str) -> None:
    rewards = EARNED.nansum(dim=2).float()
    assert torch.equal(turn_advantages(EARNED, method)[..., 0], advantages(rewards, method))
    # Of responses of one turn nothing changes, bit for bit.
    assert torch.equal(
        turn_advantages(rewards.double()[..., None], method)[..., 0], advantages(rewards, method)
    )


def test_equal_sums_of_other_turns_are_equal() -> None:
    earned = torch.tensor(
        [[[-0.1, -0.1, 1.0], [-0.1, 0.9, NONE], [0.0, -0.2, 1.0]]], dtype=torch.float64
    )
    assert turn_advantages(earned, "group-mean-std")[0, :, 0].tolist() == [0.0, 0.0, 0.0]


def test_the_last_tokens_cost_a_line() -> None:
    """DAPO's eq. 13 with L_max 10 and L_cache 4.

    Nothing up to 6 tokens, a quarter a token, all of it from 10 on.
    """
    lengths = torch.tensor([[1.0, 6.0, 7.0], [9.0, 10.0, 12.0]])
    assert overlong_penalty(lengths, 10, 4, 1.0).tolist() == [[0, 0, 0.25], [0.75, 1, 1]]
    assert overlong_penalty(lengths, 10, 4, 0.5).tolist() == [[0, 0, 0.125], [0.375, 0.5, 0.5]]
    # The whole limit as buffer: length costs from the first token on.
    assert overlong_penalty(lengths, 10, 10, 1.0)[0].tolist() == pytest.approx([0.1, 0.6, 0.7])


ALL = torch.ones(1, 3, dtype=torch.bool)


def row(*numbers: float) -> Tensor:
    return torch.tensor([numbers], dtype=torch.float64)


def test_three_tokens_with_gamma_and_lambda() -> None:
    """gamma 0.9, lambda 0.5, V = 0.5, 0.2, 0.8, reward 1 at the end.

    delta_2 = 1 - 0.8 = 0.2; delta_1 = 0.9 x 0.8 - 0.2 = 0.52; delta_0 = 0.9 x 0.2 - 0.5 = -0.32;
    A_2 = 0.2; A_1 = 0.52 + 0.45 x 0.2 = 0.61; A_0 = -0.32 + 0.45 x 0.61 = -0.0455; R = A + V.
    """
    adv_BT, return_BT = gae(row(0, 0, 1), row(0.5, 0.2, 0.8), ALL, gamma=0.9, gae_lambda=0.5)
    assert adv_BT[0].tolist() == pytest.approx([-0.0455, 0.61, 0.2])
    assert return_BT[0].tolist() == pytest.approx([0.4545, 0.81, 1.0])


def test_lambda_1_is_the_return_less_the_value_and_lambda_0_the_td_error() -> None:
    """Discounted reward 0.81, 0.9, 1; TD errors as above."""
    value_BT = row(0.5, 0.2, 0.8)
    adv_BT, return_BT = gae(row(0, 0, 1), value_BT, ALL, gamma=0.9, gae_lambda=1.0)
    assert return_BT[0].tolist() == pytest.approx([0.81, 0.9, 1.0])
    assert adv_BT[0].tolist() == pytest.approx([0.31, 0.7, 0.2])
    adv_BT, _ = gae(row(0, 0, 1), value_BT, ALL, gamma=0.9, gae_lambda=0.0)
    assert adv_BT[0].tolist() == pytest.approx([-0.32, 0.52, 0.2])


def test_a_critic_that_knows_nothing_gives_every_token_the_reward() -> None:
    adv_BT, return_BT = gae(row(0, 0, 0.7), row(0, 0, 0), ALL, gamma=1.0, gae_lambda=1.0)
    assert adv_BT.tolist() == return_BT.tolist() == [[0.7, 0.7, 0.7]]


def test_a_tools_tokens_are_no_steps() -> None:
    """Values and rewards off the mask change nothing.

    The others are the three tokens above.
    """
    mask_BT = torch.tensor([[True, False, True, True, False]])
    reward_BT = row(0, 9, 0, 1, 9)
    value_BT = row(0.5, 9, 0.2, 0.8, 9)
    adv_BT, return_BT = gae(reward_BT, value_BT, mask_BT, gamma=0.9, gae_lambda=0.5)
    assert adv_BT[0].tolist() == pytest.approx([-0.0455, 0, 0.61, 0.2, 0])
    assert return_BT[0].tolist() == pytest.approx([0.4545, 0, 0.81, 1.0, 0])


def test_the_reward_stands_at_the_last_token_of_the_mask() -> None:
    mask_BT = torch.tensor(
        [[True, True, False, False], [True, False, True, False], [False, False, False, False]]
    )
    actual = at_last_token(torch.tensor([0.5, 2.0, 3.0]), mask_BT)
    assert actual.tolist() == [[0, 0.5, 0, 0], [0, 0, 2.0, 0], [0, 0, 0, 0]]


def test_whitening_is_over_the_masks_tokens() -> None:
    """1, 2, 3 and 6: mean 3, squares 4 + 1 + 0 + 9 = 14, variance 14 / 3."""
    mask_BT = torch.tensor([[True, True, False], [True, True, False]])
    adv_BT = torch.tensor([[1.0, 2.0, 50.0], [3.0, 6.0, -50.0]], dtype=torch.float64)
    std = math.sqrt(14 / 3)
    expected = [-2 / std, -1 / std, 0, 0, 3 / std, 0]
    assert whitened(adv_BT, mask_BT).flatten().tolist() == pytest.approx(expected, abs=1e-8)
    # Nothing to tell apart, or a single token: no advantage, and no division by 0.
    assert not whitened(torch.full((2, 3), 0.3), mask_BT).any()
    assert whitened(row(5.0), torch.ones(1, 1, dtype=torch.bool)).tolist() == [[0.0]]


def test_a_response_s_one_advantage_is_the_mean_or_the_sum_of_its_tokens() -> None:
    mask_BT = torch.tensor([[True, True, False], [False, False, False]])
    adv_BT = torch.tensor([[1.0, 3.0, 9.0], [9.0, 9.0, 9.0]])
    assert sequence_advantages(adv_BT, mask_BT, "mean").tolist() == [[2, 2, 0], [0, 0, 0]]
    assert sequence_advantages(adv_BT, mask_BT, "sum").tolist() == [[4, 4, 0], [0, 0, 0]]


def test_the_clipped_value_loss() -> None:
    """Old value 1, clip 0.5, return 3.

    V = 2: the clipped 1.5 is farther from 3 (2.25 > 1) and holds it. V = 4: the clipped 1.5 does
    too (2.25 > 1). V = 0: V itself is farther (9 > 6.25). V = 1.2 is inside: 3.24. Off the mask:
    nothing. Half the mean over the 4 tokens of 2.25 + 2.25 + 9 + 3.24.
    """
    value_BT = row(2, 4, 0, 1.2, 100).requires_grad_()
    mask_BT = torch.tensor([[True, True, True, True, False]])
    out = value_loss(
        value_BT,
        torch.full_like(value_BT, 1.0),
        torch.full_like(value_BT, 3.0),
        mask_BT,
        tokens=4,
        clip=0.5,
    )
    assert float(out.loss.detach()) == pytest.approx(16.74 / 8)
    assert out.clipped_BT.tolist() == [[True, True, False, False, False]]
    out.loss.backward()
    assert value_BT.grad[0].tolist() == pytest.approx([0, 0, -3 / 4, -1.8 / 4, 0])
    wide = value_loss(
        value_BT,
        torch.zeros_like(value_BT),
        torch.full_like(value_BT, 3.0),
        mask_BT,
        tokens=4,
        clip=1e9,
    )
    assert float(wide.loss.detach()) == pytest.approx((1 + 1 + 9 + 3.24) / 8)
    assert not wide.clipped_BT.any()


def test_parts_of_a_minibatch_add_up() -> None:
    torch.manual_seed(0)
    value_BT, old_BT, return_BT = torch.randn(3, 4, 6, dtype=torch.float64)
    mask_BT = torch.arange(6)[None, :] < torch.tensor([6, 2, 4, 1])[:, None]
    inputs = (value_BT, old_BT, return_BT, mask_BT)
    complete = value_loss(*inputs, tokens=13, clip=0.3)
    pieces = [
        value_loss(*(x[rows] for x in inputs), tokens=13, clip=0.3)
        for rows in (slice(2), slice(2, 4))
    ]
    assert float(sum(part.loss for part in pieces)) == pytest.approx(float(complete.loss))
    assert float(value_loss(*inputs[:3], mask_BT & False, tokens=0, clip=0.3).loss) == 0.0


def test_explained_variance() -> None:
    """Returns 0, 1, 2 have variance 2/3.

    Values equal to the returns explain all of it, a constant none, and errors -1, 0, 1 take all of
    it back.
    """
    return_BT = row(0, 1, 2)
    assert explained_variance(return_BT, return_BT, ALL) == pytest.approx(1.0)
    assert explained_variance(row(5, 5, 5), return_BT, ALL) == pytest.approx(0.0)
    assert explained_variance(row(1, 1, 1), return_BT, ALL) == pytest.approx(0.0)
    assert explained_variance(row(2, 1, 0), return_BT, ALL) == pytest.approx(-3.0)
    assert explained_variance(return_BT, row(1, 1, 1), ALL) is None
    assert explained_variance(return_BT, return_BT, ALL & False) is None
