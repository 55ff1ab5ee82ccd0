"""The objectives against tables that can be checked with a pencil, and against each other."""

import math

import pytest
import torch
from measuring import batch_of
from torch import Tensor

from gspo_lab.objectives import PRESETS, Batch, surrogate
from gspo_lab.objectives.ratios import Level
from gspo_lab.objectives.settings import Aggregation

GRPO, GSPO, GSPO_TOKEN = PRESETS["grpo"], PRESETS["gspo"], PRESETS["gspo-token"]
LN = math.log


# Two responses of unequal length, A = +1 and A = -1. The old log-probs are 0, so logp is l_t itself.
#   response 0, 3 tokens: w = 1.5, 1.0, 0.5          s = (1.5 * 1.0 * 0.5)^(1/3) = 0.75^(1/3)
#   response 1, 1 token:  w = 0.5                     s = 0.5
MASK = [[1, 1, 1], [1, 0, 0]]
LOGP = torch.tensor([[LN(1.5), 0.0, LN(0.5)], [LN(0.5), 0.0, 0.0]], dtype=torch.float64)
WIDE = GRPO.replace(clip_low=0.2, clip_high=0.2)

PENCIL = [
    # GRPO clips 1.5 to 1.2 (A > 0) and 0.5 up to 0.8 (A < 0, response 1); 0.5 at A > 0 stays.
    #   terms 1.2, 1.0, 0.5 (sum 2.7, mean 0.9) and -0.8
    ("token", "seq-mean-token-mean", -(0.9 - 0.8) / 2),
    ("token", "token-mean", -(2.7 - 0.8) / 4),
    ("token", "seq-mean-token-sum", -(2.7 - 0.8) / 2),
    ("token", "constant", -(2.7 - 0.8) / (2 * 10)),
    # GSPO: 0.75^(1/3) = 0.9086 lies inside; 0.5 is clipped up to 0.8. The sequence's term counts once per token.
    ("sequence", "seq-mean-token-mean", -(0.75 ** (1 / 3) - 0.8) / 2),
    ("sequence", "token-mean", -(3 * 0.75 ** (1 / 3) - 0.8) / 4),
    ("sequence", "seq-mean-token-sum", -(3 * 0.75 ** (1 / 3) - 0.8) / 2),
    ("sequence", "constant", -(3 * 0.75 ** (1 / 3) - 0.8) / (2 * 10)),
]


@pytest.mark.parametrize(("level", "aggregation", "loss"), PENCIL)
def test_pencil(level: Level, aggregation: Aggregation, loss: float) -> None:
    settings = WIDE.replace(importance_sampling_level=level, aggregation=aggregation, aggregation_constant=10.0)
    out = surrogate(LOGP, batch_of(MASK, [1.0, -1.0]), settings)
    assert float(out.loss) == pytest.approx(loss, abs=1e-12)


@pytest.mark.parametrize("aggregation", ["seq-mean-token-mean", "token-mean", "seq-mean-token-sum", "constant"])
def test_gspo_token_has_gspo_value_clip_and_gradient(aggregation: Aggregation) -> None:
    torch.manual_seed(3)
    batch, logp = random_batch()
    out = []
    for settings in (GSPO, GSPO_TOKEN):
        leaf = logp.clone().requires_grad_()
        result = surrogate(leaf, batch, settings.replace(aggregation=aggregation))
        result.loss.backward()
        out.append((float(result.loss.detach()), leaf.grad, result.clipped_BT))
    (loss_a, grad_a, clip_a), (loss_b, grad_b, clip_b) = out
    assert loss_a == pytest.approx(loss_b, rel=1e-6)
    assert torch.linalg.norm(grad_a - grad_b) <= 1e-6 * torch.linalg.norm(grad_a)
    assert torch.linalg.norm(grad_a) > 0
    assert torch.equal(clip_a, clip_b)
    assert clip_a.any()


def test_gspo_token_differs_when_advantages_vary_within_a_response() -> None:
    torch.manual_seed(4)
    batch, logp = random_batch()
    batch = replace_adv(batch, batch.adv_BT * torch.rand_like(batch.adv_BT))
    grads = []
    for settings in (GSPO, GSPO_TOKEN):
        leaf = logp.clone().requires_grad_()
        surrogate(leaf, batch, settings.replace(clip_low=0.9, clip_high=9.0)).loss.backward()
        grads.append(leaf.grad)
    assert torch.linalg.norm(grads[0] - grads[1]) > 0.05 * torch.linalg.norm(grads[0])


def test_one_token_responses_make_gspo_and_grpo_equal() -> None:
    torch.manual_seed(6)
    logp = torch.randn(8, 1, dtype=torch.float64) * 0.3
    batch = batch_of([[1]] * 8, torch.randn(8).tolist())
    same = [surrogate(logp, batch, s.replace(clip_low=0.1, clip_high=0.1)) for s in (GRPO, GSPO)]
    assert float(same[0].loss) == pytest.approx(float(same[1].loss), abs=1e-15)
    assert torch.equal(same[0].clipped_BT, same[1].clipped_BT)
    assert same[0].clipped_BT.any()


def test_equal_lengths_hide_the_aggregation_and_unequal_ones_show_it() -> None:
    torch.manual_seed(9)
    for lengths, alike in (([5] * 6, True), ([1, 2, 3, 4, 5, 5], False)):
        batch, logp = random_batch(lengths)
        losses = [
            float(surrogate(logp, batch, GRPO.replace(aggregation=a)).loss)
            for a in ("seq-mean-token-mean", "token-mean")
        ]
        assert (losses[0] == pytest.approx(losses[1], rel=1e-9)) is alike


def test_dual_clip_caps_the_loss_and_takes_the_gradient() -> None:
    # w = 5 with A = -2: min gives -10, a dual clip at 3 gives -6 and no gradient; with A = +2 it does nothing.
    for adv, loss, capped in ((-2.0, 6.0, True), (2.0, -2.54, False)):
        leaf = torch.tensor([[LN(5.0)]], dtype=torch.float64, requires_grad=True)
        out = surrogate(leaf, batch_of([[1]], [adv]), GRPO.replace(dual_clip=3.0))
        out.loss.backward()
        assert float(out.loss.detach()) == pytest.approx(loss)
        assert float(leaf.grad) == 0.0
        assert bool(out.dual_clipped_BT) is capped
        assert bool(out.clipped_BT) is not capped


def test_an_overflowing_ratio_at_zero_advantage_adds_nothing() -> None:
    leaf = torch.tensor([[2000.0, 0.0], [0.1, 0.1]], dtype=torch.float64, requires_grad=True)
    out = surrogate(leaf, batch_of([[1, 1], [1, 1]], [0.0, 1.0]), GRPO)
    out.loss.backward()
    assert torch.isfinite(out.loss.detach())
    assert leaf.grad[0].tolist() == [0.0, 0.0]
    assert leaf.grad[1].abs().sum() > 0


@pytest.mark.parametrize("level", ["token", "sequence", "sequence-token"])
def test_an_overflowing_ratio_whose_clip_binds_has_no_gradient(level: Level) -> None:
    # e^200 is infinite in float32; A > 0 clips it to 1.27, so the loss is finite and the gradient 0, not NaN.
    leaf = torch.tensor([[200.0, 200.0]], requires_grad=True)
    batch = Batch(torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 2), torch.zeros(1, 2), responses=1, tokens=2)
    out = surrogate(leaf, batch, GRPO.replace(importance_sampling_level=level))
    out.loss.backward()
    assert float(out.loss.detach()) == pytest.approx(-1.27)
    assert leaf.grad.tolist() == [[0.0, 0.0]]


def test_kl_term_is_k3_aggregated_like_the_rest() -> None:
    # d = log pi_ref - log pi = ln 2 on one of two tokens: k3 = 2 - ln 2 - 1. The policy term is 0 (A = 0).
    batch = batch_of([[1, 1]], [0.0])
    batch = Batch(
        batch.mask_BT,
        batch.adv_BT,
        batch.old_logp_BT,
        1,
        2,
        ref_logp_BT=torch.tensor([[LN(2.0), 0.0]], dtype=torch.float64),
    )
    out = surrogate(torch.zeros(1, 2, dtype=torch.float64), batch, GRPO.replace(kl_coef=0.5))
    assert float(out.loss) == pytest.approx(0.5 * (1 - LN(2.0)) / 2)
    assert float(out.kl_sum) == pytest.approx(1 - LN(2.0))


@pytest.mark.parametrize("nats", [0.01, -0.5, 1.0, 10.0])
def test_the_kl_term_pulls_in_single_precision(nats: float) -> None:
    """The gradient of exp(d) - d - 1 by log pi is 1 - exp(d): half of it at the mean over two tokens."""
    mask_BT, adv_BT = torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2)
    batch = Batch(mask_BT, adv_BT, adv_BT, 1, 2, ref_logp_BT=torch.tensor([[nats, 0.0]]))
    logp_BT = torch.zeros(1, 2, requires_grad=True)
    surrogate(logp_BT, batch, GRPO.replace(kl_coef=1.0)).loss.backward()
    assert logp_BT.grad is not None
    assert logp_BT.grad[0].tolist() == pytest.approx([-math.expm1(nats) / 2, 0.0], rel=1e-5)


@pytest.mark.parametrize("nats", [39.0, 89.0, 500.0])
def test_the_kl_term_is_finite_however_far_the_policies_are_apart(nats: float) -> None:
    """exp(89) is infinite in float32. Behind 40 nats k3 is its tangent there: it grows by e^40 - 1 a nat."""
    mask_BT, adv_BT = torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2)
    batch = Batch(mask_BT, adv_BT, adv_BT, 1, 2, ref_logp_BT=torch.tensor([[nats, 0.0]]))
    logp_BT = torch.zeros(1, 2, requires_grad=True)
    out = surrogate(logp_BT, batch, GRPO.replace(kl_coef=1.0))
    near = min(nats, 40.0)
    assert float(out.kl_sum) == pytest.approx(math.exp(near) - near - 1 + (nats - near) * math.expm1(40), rel=1e-5)
    out.loss.backward()
    assert logp_BT.grad is not None
    assert logp_BT.grad[0].tolist() == pytest.approx([-math.expm1(near) / 2, 0.0], rel=1e-5)
    assert logp_BT.grad.norm().isfinite()


def test_a_response_without_tokens_counts_as_one_with_term_zero() -> None:
    batch = batch_of([[1, 1], [0, 0]], [1.0, 1.0])
    assert float(surrogate(torch.zeros(2, 2, dtype=torch.float64), batch, GSPO).loss) == pytest.approx(-0.5)


def random_batch(lengths: list[int] | None = None) -> tuple[Batch, Tensor]:
    lengths = lengths or [1, 2, 3, 5, 5, 4]
    mask = [[int(t < n) for t in range(max(lengths))] for n in lengths]
    old = torch.randn(len(lengths), max(lengths), dtype=torch.float64) * torch.tensor(mask)
    batch = batch_of(mask, torch.randn(len(lengths)).tolist(), old)
    return batch, old + 0.2 * torch.randn_like(old)


def replace_adv(batch: Batch, adv_BT: Tensor) -> Batch:
    return Batch(batch.mask_BT, adv_BT, batch.old_logp_BT, batch.responses, batch.tokens)
