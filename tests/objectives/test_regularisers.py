"""The unbiased estimate of the KL divergence, by hand and against the divergence's own gradient."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gspo_lab.objectives import PRESETS, Batch, surrogate
from gspo_lab.objectives.objective import k3, weighted_k3

UNBIASED = PRESETS["grpo"].replace(kl_coef=1.0, kl_estimate="unbiased")
LN = math.log


def kl_alone(old_BT: Tensor, ref_BT: Tensor) -> Batch:
    """One response without advantage: the loss is the KL term's."""
    mask_BT = torch.ones(old_BT.shape, dtype=torch.bool)
    return Batch(mask_BT, torch.zeros_like(old_BT), old_BT, 1, old_BT.shape[1], ref_logp_BT=ref_BT)


def test_pencil() -> None:
    """pi = 1/2, pi_old = 1/4, pi_ref = 1/8: w = 2, d = -ln 4, so 2 (1/4 + ln 4 - 1); its gradient is -w d = 2 ln 4."""
    old_BT, ref_BT = (torch.tensor([[LN(p)]], dtype=torch.float64) for p in (1 / 4, 1 / 8))
    leaf = torch.tensor([[LN(1 / 2)]], dtype=torch.float64, requires_grad=True)
    out = surrogate(leaf, kl_alone(old_BT, ref_BT), UNBIASED)
    out.loss.backward()
    assert leaf.grad is not None
    assert float(out.kl_sum or 0) == pytest.approx(2 * (LN(4) - 3 / 4)) == float(out.loss.detach())
    assert float(leaf.grad) == pytest.approx(2 * LN(4))


def test_at_ratio_1_the_value_is_k3_s_and_the_gradient_is_not() -> None:
    """k3 pulls with 1 - e^d, the unbiased estimate with -d: equal to first order, far apart where pi < pi_ref."""
    d_BT = torch.tensor([[2.0, -1.0, 1e-3]], dtype=torch.float64)
    zero_BT = torch.zeros_like(d_BT)
    slopes = {}
    for estimate in ("k3", "unbiased"):
        leaf = zero_BT.clone().requires_grad_()
        out = surrogate(leaf, kl_alone(zero_BT, d_BT), UNBIASED.replace(kl_estimate=estimate))
        out.loss.backward()
        assert float(out.kl_sum or 0) == pytest.approx(float(k3(d_BT).sum()))
        assert leaf.grad is not None
        slopes[estimate] = 3 * leaf.grad[0]
    assert slopes["k3"].tolist() == pytest.approx([1 - math.exp(2), 1 - math.exp(-1), -math.expm1(1e-3)])
    assert slopes["unbiased"].tolist() == pytest.approx([-2.0, 1.0, -1e-3])


def test_its_mean_gradient_is_that_of_the_divergence_and_k3_s_is_not() -> None:
    """Three tokens, summed with the old policy's probabilities: no sampling, so no tolerance for chance."""
    torch.manual_seed(0)
    old_V, ref_V = (torch.randn(3, dtype=torch.float64).log_softmax(0) for _ in range(2))
    logits_V = torch.randn(3, dtype=torch.float64, requires_grad=True)
    logp_V = logits_V.log_softmax(0)
    (exact_V,) = torch.autograd.grad((logp_V.exp() * (logp_V - ref_V)).sum(), logits_V, retain_graph=True)
    d_V = ref_V - logp_V
    for estimate_V, unbiased in ((weighted_k3(d_V, logp_V - old_V), True), (k3(d_V), False)):
        (mean_V,) = torch.autograd.grad((old_V.exp() * estimate_V).sum(), logits_V, retain_graph=True)
        assert torch.allclose(mean_V, exact_V) is unbiased


@pytest.mark.parametrize(("log_ratio", "log_ref"), [(200.0, 0.0), (-300.0, 0.0), (37.0, 500.0), (0.0, 500.0)])
def test_it_is_finite_in_single_precision_however_far_the_policies_are_apart(log_ratio: float, log_ref: float) -> None:
    leaf = torch.tensor([[log_ratio]], requires_grad=True)
    out = surrogate(leaf, kl_alone(torch.zeros(1, 1), torch.tensor([[log_ref]])), UNBIASED)
    out.loss.backward()
    assert leaf.grad is not None
    assert out.loss.detach().isfinite()
    assert leaf.grad.norm().isfinite()


def test_coefficient_0_is_the_plain_loss_whatever_the_estimate() -> None:
    batch = replace(kl_alone(torch.zeros(1, 2), torch.full((1, 2), -3.0)), adv_BT=torch.ones(1, 2))
    logp_BT = torch.tensor([[0.1, -0.2]])
    plain, unbiased = (
        surrogate(logp_BT, batch, UNBIASED.replace(kl_coef=0.0, kl_estimate=how)) for how in ("k3", "unbiased")
    )
    assert torch.equal(plain.loss, unbiased.loss)
    assert unbiased.kl_sum is None


def test_the_entropy_is_added_to_every_token_s_term_and_aggregated_with_it() -> None:
    """Entropies 1 and 3 of the first response, 5 of the second: with a token mean 9 / 3, with a mean over responses of
    token means (2 + 5) / 2. The ratios are 1, so the terms themselves are A."""
    mask_BT = torch.tensor([[True, True], [True, False]])
    entropy_BT = torch.tensor([[1.0, 3.0], [5.0, 0.0]], dtype=torch.float64)
    zero_BT = torch.zeros_like(entropy_BT)
    batch = Batch(mask_BT, torch.tensor([[2.0, 2.0], [0.0, 0.0]], dtype=torch.float64), zero_BT, 2, 3)
    for aggregation, plain, bonus in (("token-mean", 4 / 3, 9 / 3), ("seq-mean-token-mean", 1.0, 7 / 2)):
        settings = PRESETS["grpo"].replace(entropy_coef=0.1, aggregation=aggregation)
        assert float(surrogate(zero_BT, batch, settings, entropy_BT=entropy_BT).loss) == pytest.approx(
            -plain - 0.1 * bonus
        )
        none = surrogate(zero_BT, batch, settings.replace(entropy_coef=0.0), entropy_BT=entropy_BT)
        assert torch.equal(none.loss, surrogate(zero_BT, batch, settings.replace(entropy_coef=0.0)).loss)


def test_its_gradient_raises_the_entropy() -> None:
    """A step along the gradient of one distribution's entropy, whatever the token that was drawn."""
    logits_V = torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64, requires_grad=True)

    def entropy() -> Tensor:
        logp_V = logits_V.log_softmax(0)
        return -(logp_V.exp() * logp_V).sum()

    mask_BT = torch.ones(1, 1, dtype=torch.bool)
    logp_BT = logits_V.log_softmax(0)[0].view(1, 1)
    batch = Batch(mask_BT, torch.zeros(1, 1, dtype=torch.float64), logp_BT.detach(), 1, 1)
    before = entropy()
    surrogate(logp_BT, batch, PRESETS["grpo"].replace(entropy_coef=1.0), entropy_BT=before.view(1, 1)).loss.backward()
    with torch.no_grad():
        logits_V -= 0.1 * logits_V.grad
    assert entropy() > before
