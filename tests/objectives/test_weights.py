"""The mask of whole responses that are far off the policy, against a table for a pencil and its limits."""

import math
from dataclasses import replace

import pytest
import torch
from measuring import batch_of
from torch import Tensor

from gspo_lab.objectives import PRESETS, Batch, Objective, surrogate
from gspo_lab.objectives.objective import off_policy, token_weights

GRPO = PRESETS["grpo"]

# Three responses with A = 1, -1, -1; log mu - log pi of their tokens:
#   response 0: 1, 1        mean 1, but A > 0
#   response 1: 1/4, 3/4    mean 1/2
#   response 2: 1           mean 1; its second place is off the mask
MASK = [[1, 1], [1, 1], [1, 0]]
SAMPLER = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 9.0]], dtype=torch.float64)
LOGP = -torch.tensor([[1.0, 1.0], [0.25, 0.75], [1.0, 0.0]], dtype=torch.float64)


def three_responses() -> Batch:
    return replace(batch_of(MASK, [1.0, -1.0, -1.0]), sampler_logp_BT=SAMPLER)


@pytest.mark.parametrize(
    ("limit", "masked"),
    [
        (0.4, [[0, 0], [1, 1], [1, 0]]),
        # At the limit itself a response stays.
        (0.5, [[0, 0], [0, 0], [1, 0]]),
        (1.0, [[0, 0], [0, 0], [0, 0]]),
    ],
)
def test_responses_far_off_the_policy_with_a_negative_advantage_are_masked(
    limit: float, masked: list[list[int]]
) -> None:
    assert off_policy(LOGP, three_responses(), limit).int().tolist() == masked
    settings = GRPO.replace(off_policy_mask=limit)
    assert token_weights(LOGP, three_responses(), settings).tolist() == (1 - torch.tensor(masked)).tolist()


def loss_and_gradient(batch: Batch, settings: Objective) -> tuple[float, Tensor]:
    leaf = LOGP.clone().requires_grad_()
    loss = surrogate(leaf, batch, settings).loss
    loss.backward()
    assert leaf.grad is not None
    return float(loss.detach()), leaf.grad


def test_a_masked_response_keeps_its_place_in_the_denominator() -> None:
    """Ratios e^-1 for response 0, e^-.25 and e^-.75 for response 1: A < 0 and below .8 the latter is held at .8."""
    loss, gradient = loss_and_gradient(three_responses(), GRPO.replace(off_policy_mask=0.5))
    assert loss == pytest.approx(-(math.exp(-1) - (0.8 + 0.8) / 2) / 3)
    assert gradient[2].tolist() == [0.0, 0.0]
    assert gradient[0].abs().sum() > 0


def test_a_limit_that_nothing_reaches_changes_no_bit() -> None:
    batch = three_responses()
    (plain, gradient), (masked, masked_gradient) = (
        loss_and_gradient(batch, settings) for settings in (GRPO, GRPO.replace(off_policy_mask=1e9))
    )
    assert plain == masked
    assert torch.equal(gradient, masked_gradient)


def test_what_the_sampler_could_not_score_is_no_evidence() -> None:
    batch = replace(three_responses(), sampler_logp_BT=SAMPLER * math.nan)
    assert not off_policy(LOGP, batch, 1e-6).any()


def test_the_mask_and_a_correction_multiply() -> None:
    both = GRPO.replace(off_policy_mask=0.5, mismatch_correction="tis", mismatch_low=0.0, mismatch_high=2.0)
    correction = both.replace(off_policy_mask=None)
    weight_BT = token_weights(LOGP, three_responses(), both)
    assert weight_BT[2, 0] == 0
    assert torch.equal(weight_BT[:2], token_weights(LOGP, three_responses(), correction)[:2])
    assert both.weighs_tokens
    assert not GRPO.weighs_tokens
