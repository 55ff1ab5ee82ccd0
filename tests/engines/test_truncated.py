"""Truncated responses in the loss: trained, masked, or dropped from its denominator too."""

from typing import Any

import pytest
import torch

from gspo_lab.engines.native.experience import pack
from gspo_lab.objectives import Batch, surrogate
from gspo_lab.objectives.presets import Objective
from gspo_lab.samplers.base import Request, Rollout


@pytest.mark.parametrize(
    ("aggregation", "how", "loss"),
    [
        # Response 0: 2 tokens, A = 1. Response 1: 3 tokens, A = -2, truncated. All ratios are 1.
        ("seq-mean-token-mean", "train", -(1 - 2) / 2),
        ("seq-mean-token-mean", "mask", -1 / 2),
        ("seq-mean-token-mean", "drop", -1 / 1),
        ("token-mean", "train", -(2 * 1 - 3 * 2) / 5),
        ("token-mean", "mask", -2 / 5),
        ("token-mean", "drop", -2 / 2),
        ("seq-mean-token-sum", "train", -(2 * 1 - 3 * 2) / 2),
        ("seq-mean-token-sum", "mask", -2 / 2),
        ("seq-mean-token-sum", "drop", -2 / 1),
    ],
)
def test_terms_and_denominators_with_a_pencil(aggregation: Any, how: Any, loss: float) -> None:
    request = Request("p", (1, 2), 0, 0)
    rollouts = [Rollout(request, [3] * size, [-1.0] * size, "", size == 3) for size in (2, 3)]
    experience = pack(rollouts, 0, torch.device("cpu"))
    experience.credit(torch.tensor([[1.0], [-2.0]]))
    experience.leave_out(rollouts, how)
    responses, tokens = experience.counts(torch.arange(2))
    logp = experience.sampler_logp_NT
    batch = Batch(experience.mask_NT, experience.adv_NT, logp, responses=responses, tokens=tokens)
    assert surrogate(logp, batch, Objective(aggregation=aggregation)).loss.item() == pytest.approx(loss)


def test_a_mini_batch_of_truncated_responses_alone_has_no_loss() -> None:
    rollouts = [Rollout(Request("p", (1,), 0, 0), [3], [-1.0], "", True)]
    experience = pack(rollouts, 0, torch.device("cpu"))
    experience.credit(torch.tensor([[1.0]]))
    experience.leave_out(rollouts, "drop")
    assert experience.counts(torch.arange(1)) == (1, 0)
    assert not experience.adv_NT.any()
