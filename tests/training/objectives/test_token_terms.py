"""What acts on every token's term beside the policy loss.

KL estimates, entropy, the mask of far responses.
"""

import math
from dataclasses import replace

import pytest
import torch
from case_tables import cases
from measuring import batch_of, gradient
from torch import Tensor

from gspo_lab.training.objectives import PRESETS, Batch, surrogate
from gspo_lab.training.objectives.objective import k3, off_policy, token_weights, weighted_k3

GRPO = PRESETS["grpo"]
LN = math.log
UNBIASED = GRPO.replace(kl_coef=1.0, kl_estimate="unbiased")


def kl_alone(old_BT: Tensor, ref_BT: Tensor) -> Batch:
    """One response without advantage: the loss is the KL term's."""
    mask_BT = torch.ones(old_BT.shape, dtype=torch.bool)
    return Batch(mask_BT, torch.zeros_like(old_BT), old_BT, 1, old_BT.shape[1], ref_logp_BT=ref_BT)


def test_the_unbiased_estimate_by_pencil() -> None:
    """pi = 1/2, pi_old = 1/4, pi_ref = 1/8 give 2 (1/4 + ln 4 - 1).

    w = 2, d = -ln 4. Its gradient is -w d = 2 ln 4.
    """
    new_BT = torch.tensor([[LN(1 / 2)]], dtype=torch.float64)
    old_BT = torch.tensor([[LN(1 / 4)]], dtype=torch.float64)
    ref_BT = torch.tensor([[LN(1 / 8)]], dtype=torch.float64)
    out, grad_BT = gradient(UNBIASED, kl_alone(old_BT, ref_BT), new_BT)
    assert (
        float(out.metrics["kl"]) == pytest.approx(2 * (LN(4) - 3 / 4)) == float(out.loss.detach())
    )
    assert float(grad_BT) == pytest.approx(2 * LN(4))


def test_at_ratio_1_the_value_is_k3_s_and_the_gradient_is_not() -> None:
    """k3 pulls with 1 - e^d, the unbiased estimate with -d.

    They are equal to first order, and far apart where pi < pi_ref.
    """
    d_BT = torch.tensor([[2.0, -1.0, 1e-3]], dtype=torch.float64)
    zero_BT = torch.zeros_like(d_BT)
    for estimate, slopes in (
        ("k3", [1 - math.exp(2), 1 - math.exp(-1), -math.expm1(1e-3)]),
        ("unbiased", [-2.0, 1.0, -1e-3]),
    ):
        out, grad_BT = gradient(
            UNBIASED.replace(kl_estimate=estimate), kl_alone(zero_BT, d_BT), zero_BT
        )
        assert float(out.metrics["kl"]) == pytest.approx(float(k3(d_BT).sum()))
        assert (3 * grad_BT[0]).tolist() == pytest.approx(slopes)


def test_its_mean_gradient_is_that_of_the_divergence_and_k3_s_is_not() -> None:
    """Three tokens, summed with the old policy's probabilities.

    Nothing is sampled, so there is no tolerance for chance.
    """
    torch.manual_seed(0)
    old_V, ref_V = torch.randn(2, 3, dtype=torch.float64).log_softmax(1)
    logits_V = torch.randn(3, dtype=torch.float64, requires_grad=True)
    logp_V = logits_V.log_softmax(0)
    (exact_V,) = torch.autograd.grad(
        (logp_V.exp() * (logp_V - ref_V)).sum(), logits_V, retain_graph=True
    )
    d_V = ref_V - logp_V
    for estimate_V, unbiased in ((weighted_k3(d_V, logp_V - old_V), True), (k3(d_V), False)):
        (mean_V,) = torch.autograd.grad(
            (old_V.exp() * estimate_V).sum(), logits_V, retain_graph=True
        )
        assert torch.allclose(mean_V, exact_V) is unbiased


@pytest.mark.parametrize(
    ("log_ratio", "log_ref"), [(200.0, 0.0), (-300.0, 0.0), (37.0, 500.0), (0.0, 500.0)]
)
def test_it_is_finite_in_single_precision_however_far_the_policies_are_apart(
    log_ratio: float, log_ref: float
) -> None:
    batch = kl_alone(torch.zeros(1, 1), torch.tensor([[log_ref]]))
    out, grad_BT = gradient(UNBIASED, batch, torch.tensor([[log_ratio]]))
    assert out.loss.detach().isfinite()
    assert grad_BT.norm().isfinite()


def test_the_entropy_is_added_to_every_token_s_term_and_aggregated_with_it() -> None:
    """Entropies 1 and 3 of the first response, 5 of the second.

    With a token mean 9 / 3, with a mean over responses of token means (2 + 5) / 2. The ratios are
    1, so the terms themselves are A.
    """
    entropy_BT = torch.tensor([[1.0, 3.0], [5.0, 0.0]], dtype=torch.float64)
    zero_BT = torch.zeros_like(entropy_BT)
    batch = batch_of([[1, 1], [1, 0]], [2.0, 0.0])
    for aggregation, plain, bonus in (
        ("token-mean", 4 / 3, 9 / 3),
        ("seq-mean-token-mean", 1.0, 7 / 2),
    ):
        settings = GRPO.replace(entropy_coef=0.1, aggregation=aggregation)
        loss = surrogate(zero_BT, batch, settings, entropy_BT=entropy_BT).loss
        assert float(loss) == pytest.approx(-plain - 0.1 * bonus)
        none = settings.replace(entropy_coef=0.0, kl_coef=0.0)
        unasked = surrogate(zero_BT, batch, none)
        assert torch.equal(
            surrogate(zero_BT, batch, none, entropy_BT=entropy_BT).loss, unasked.loss
        )
        assert "kl" not in unasked.metrics


# Three responses with A = 1, -1, -1; log mu - log pi of their tokens:
#   response 0: 1, 1        mean 1, but A > 0
#   response 1: 1/4, 3/4    mean 1/2
#   response 2: 1           mean 1; its second place is off the mask
SAMPLER = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 9.0]], dtype=torch.float64)
LOGP = -torch.tensor([[1.0, 1.0], [0.25, 0.75], [1.0, 0.0]], dtype=torch.float64)
THREE = replace(batch_of([[1, 1], [1, 1], [1, 0]], [1.0, -1.0, -1.0]), sampler_logp_BT=SAMPLER)


@pytest.mark.parametrize(
    ("limit", "masked"),
    cases(__file__, "responses_far_off_the_policy_with_a_negative_advantage_are_masked"),
)
def test_responses_far_off_the_policy_with_a_negative_advantage_are_masked(
    limit: float, masked: list[list[int]]
) -> None:
    assert off_policy(LOGP, THREE, limit).int().tolist() == masked
    settings = GRPO.replace(off_policy_mask=limit)
    assert token_weights(LOGP, THREE, settings).tolist() == (1 - torch.tensor(masked)).tolist()
    unscored = replace(THREE, sampler_logp_BT=SAMPLER * math.nan)
    assert not off_policy(LOGP, unscored, limit).any(), (
        "what the sampler could not score is no evidence"
    )


def test_a_masked_response_keeps_its_place_in_the_denominator() -> None:
    """Ratios are e^-1 for response 0, e^-.25 and e^-.75 for response 1.

    With A < 0 the last lies below .8 and is held at .8.
    """
    out, grad_BT = gradient(GRPO.replace(off_policy_mask=0.5), THREE, LOGP)
    assert float(out.loss.detach()) == pytest.approx(-(math.exp(-1) - (0.8 + 0.8) / 2) / 3)
    assert grad_BT[2].tolist() == [0.0, 0.0]
    assert grad_BT[0].abs().sum() > 0


def test_the_mask_and_a_correction_multiply() -> None:
    settings = GRPO.replace(
        off_policy_mask=0.5, mismatch_correction="tis", mismatch_low=0.0, mismatch_high=2.0
    )
    weight_BT = token_weights(LOGP, THREE, settings)
    assert weight_BT[2, 0] == 0
    assert torch.equal(
        weight_BT[:2], token_weights(LOGP, THREE, settings.replace(off_policy_mask=None))[:2]
    )
    assert (settings.weighs_tokens, GRPO.weighs_tokens) == (True, False)


def test_its_gradient_raises_the_entropy() -> None:
    """A step along the gradient of one distribution's entropy raises it.

    It does so whatever token was drawn.
    """
    logits_V = torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64, requires_grad=True)

    def entropy() -> Tensor:
        logp_V = logits_V.log_softmax(0)
        return -(logp_V.exp() * logp_V).sum()

    mask_BT = torch.ones(1, 1, dtype=torch.bool)
    logp_BT = logits_V.log_softmax(0)[0].view(1, 1)
    batch = Batch(mask_BT, torch.zeros(1, 1, dtype=torch.float64), logp_BT.detach(), 1, 1)
    initial = entropy()
    surrogate(
        logp_BT, batch, PRESETS["grpo"].replace(entropy_coef=1.0), entropy_BT=initial.view(1, 1)
    ).loss.backward()
    with torch.no_grad():
        logits_V -= 0.1 * logits_V.grad
    assert entropy() > initial
