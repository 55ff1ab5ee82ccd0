"""GAE and the clipped value loss against verl 0.9's and AReaL 1.0.4's.

The batches are ragged and have tools' tokens in them.

How to run it: see test_peer_parity.py and test_areal_parity.py.
"""

from typing import Any

import pytest
import torch
from cases import imported, peer
from torch import Tensor

from gspo_lab.training.objectives import (
    at_last_token,
    gae,
    sequence_advantages,
    value_loss,
    whitened,
)

pytestmark = pytest.mark.filterwarnings("ignore")

STEPS = [(1.0, 1.0), (0.99, 0.95), (0.9, 0.0)]


def ragged() -> tuple[Tensor, Tensor, Tensor]:
    """Rewards at the end, values, and a loss mask with gaps, [6, 64]; every response has tokens."""
    generator = torch.Generator().manual_seed(3)
    length_B1 = torch.tensor([4, 9, 17, 30, 47, 64])[:, None]
    mask_BT = (torch.arange(64)[None, :] < length_B1) & (
        torch.rand(6, 64, generator=generator) < 0.8
    )
    mask_BT[:, 0] = True
    value_BT = torch.randn(6, 64, generator=generator) * mask_BT
    return at_last_token(torch.tensor([1.0, 0.0, 0.5, 1.0, 0.0, -1.0]), mask_BT), value_BT, mask_BT


@pytest.fixture(scope="module")
def areal() -> Any:
    peer("areal", "1.0.4")

    def load() -> Any:
        from areal.utils import functional

        return functional

    return imported("areal", load)


@pytest.mark.parametrize(("gamma", "gae_lambda"), STEPS)
def test_verl_s_advantages_and_returns(verl_modules: Any, gamma: float, gae_lambda: float) -> None:
    core_algos, *_ = verl_modules
    reward_BT, value_BT, mask_BT = ragged()
    reference = core_algos.compute_gae_advantage_return(
        reward_BT, value_BT, mask_BT.float(), gamma, gae_lambda
    )
    adv_BT, return_BT = gae(reward_BT, value_BT, mask_BT, gamma=gamma, gae_lambda=gae_lambda)
    assert torch.allclose(whitened(adv_BT, mask_BT), reference[0] * mask_BT, atol=1e-5)
    assert torch.allclose(return_BT, reference[1] * mask_BT, atol=1e-5)


def values() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Values, returns, the values before the update, and the mask; [6, 64]."""
    _, value_BT, mask_BT = ragged()
    return_BT = torch.randn(6, 64)
    return value_BT, return_BT, value_BT + 0.3 * torch.randn(6, 64), mask_BT


@pytest.mark.parametrize("clip", [0.1, 0.5, 1e9])
def test_verl_s_value_loss(verl_modules: Any, clip: float) -> None:
    core_algos, *_ = verl_modules
    value_BT, return_BT, old_BT, mask_BT = values()
    actual = []
    for reference in (False, True):
        leaf = value_BT.clone().requires_grad_()
        if reference:
            loss, share = core_algos.compute_value_loss(
                leaf, return_BT, old_BT, mask_BT.float(), clip
            )
        else:
            out = value_loss(leaf, old_BT, return_BT, mask_BT, tokens=int(mask_BT.sum()), clip=clip)
            loss = out.loss
            share = out.clipped_BT.sum() / mask_BT.sum()
        loss.backward()
        actual.append((float(loss.detach()), float(share), leaf.grad))
    assert actual[0][:2] == pytest.approx(actual[1][:2], abs=1e-6)
    assert torch.allclose(actual[0][2], actual[1][2], atol=1e-8)


def test_areal_s_value_loss(areal: Any) -> None:
    value_BT, return_BT, old_BT, mask_BT = values()
    reference, stat = areal.ppo_critic_loss_fn(value_BT, old_BT, return_BT, 0.2, mask_BT)
    lab = value_loss(value_BT, old_BT, return_BT, mask_BT, tokens=int(mask_BT.sum()), clip=0.2)
    assert float(lab.loss) == pytest.approx(float(reference), abs=1e-6)
    beyond_BT = (value_BT - old_BT).abs() > 0.2  # AReaL counts some that rounding alone has moved
    assert torch.equal(lab.clipped_BT, stat["clip_mask"] & beyond_BT)


def test_areal_s_code_means_a_response_s_advantages(areal: Any) -> None:
    """Its page on GSPO says sum."""
    _, adv_BT, mask_BT = ragged()
    _, reference = areal.functional._compute_sequence_level_ratio_and_advantages(
        adv_BT * 0, adv_BT, mask_BT, None
    )
    assert torch.allclose(
        sequence_advantages(adv_BT, mask_BT, "mean"), reference * mask_BT, atol=1e-6
    )
