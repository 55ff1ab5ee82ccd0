"""Corrections and measures of the sampler's difference, on numbers that a pencil can follow."""

import math
from dataclasses import replace

import pytest
import torch
from measuring import ratio_measures

from gspo_lab.objectives import PRESETS, Batch, mismatch_measures, mismatch_weight, surrogate
from gspo_lab.objectives.ratios import Level
from gspo_lab.objectives.settings import Correction

LN = math.log
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]], dtype=torch.bool)
# k = 4, 1/4, 1 (product 1, geometric mean 1) and 1.5, 1.5 (product 2.25, geometric mean 1.5)
D = torch.tensor([[LN(4), LN(0.25), 0.0], [LN(1.5), LN(1.5), 0.0]], dtype=torch.float64)
ADV = torch.tensor([[1.0], [-1.0]], dtype=torch.float64) * MASK


def batch() -> Batch:
    sampler_BT = torch.tensor([[-1.0, -2.0, -3.0], [-0.5, -1.5, 0.0]], dtype=torch.float64)
    return Batch(MASK, ADV, (sampler_BT + D) * MASK, 2, 5, sampler_logp_BT=sampler_BT)


@pytest.mark.parametrize(
    ("correction", "low", "high", "weights"),
    [
        ("none", None, None, [[1, 1, 1], [1, 1, 1]]),
        ("tis", 0.0, 2.0, [[2, 0.25, 1], [1.5, 1.5, 1]]),
        ("tis", 0.5, 2.0, [[2, 0.5, 1], [1.5, 1.5, 1]]),
        ("icepop", 0.5, 5.0, [[4, 0, 1], [1.5, 1.5, 1]]),
        ("sequence-mask", 0.0, 2.0, [[1, 1, 1], [0, 0, 0]]),
        ("sequence-mask", 0.0, 2.5, [[1, 1, 1], [2.25, 2.25, 2.25]]),
        ("geometric-mask", 0.8, 1.2, [[1, 1, 1], [0, 0, 0]]),
        ("geometric-mask", 0.8, 1.6, [[1, 1, 1], [1, 1, 1]]),
    ],
)
def test_weights(correction: Correction, low: float | None, high: float | None, weights: list[list[float]]) -> None:
    settings = PRESETS["grpo"].replace(mismatch_correction=correction, mismatch_low=low, mismatch_high=high)
    found = mismatch_weight(batch(), settings)
    assert found.shape == MASK.shape
    assert found[MASK].tolist() == pytest.approx(torch.tensor(weights, dtype=torch.float64)[MASK].tolist())
    assert not found.requires_grad


@pytest.mark.parametrize("level", ["token", "sequence", "sequence-token"])
def test_the_weight_multiplies_the_terms_and_their_gradient_but_no_kl(level: Level) -> None:
    settings = PRESETS["grpo"].replace(importance_sampling_level=level, aggregation="token-mean", kl_coef=0.1)
    corrected = settings.replace(mismatch_correction="sequence-mask", mismatch_low=0.0, mismatch_high=2.0)
    data = replace(batch(), ref_logp_BT=torch.zeros(2, 3, dtype=torch.float64))
    found = []
    for one in (settings, corrected):
        leaf = data.old_logp_BT.clone().requires_grad_()
        out = surrogate(leaf, data, one)
        out.loss.backward()
        assert leaf.grad is not None
        found.append((out, leaf.grad))
    (plain, plain_grad), (masked, masked_grad) = found
    # All ratios are 1: the terms are A, 3 tokens of +1 and 2 of -1, of which the mask takes the latter two away.
    assert float(masked.loss.detach()) - float(plain.loss.detach()) == pytest.approx(-2 / 5)
    assert torch.allclose(masked_grad[0], plain_grad[0])
    kl_only = surrogate_gradient_of_kl(data)
    assert torch.allclose(masked_grad[1], kl_only[1])
    assert masked.kl_sum == plain.kl_sum


def surrogate_gradient_of_kl(data: Batch) -> torch.Tensor:
    leaf = data.old_logp_BT.clone().requires_grad_()
    silent = replace(data, adv_BT=torch.zeros_like(data.adv_BT))
    surrogate(leaf, silent, PRESETS["grpo"].replace(aggregation="token-mean", kl_coef=0.1)).loss.backward()
    assert leaf.grad is not None
    return leaf.grad


def test_measures() -> None:
    out = mismatch_measures(D, MASK)
    tokens = [LN(4), -LN(4), 0.0, LN(1.5), LN(1.5)]
    mean = sum(tokens) / 5
    assert out["mismatch_k1"] == pytest.approx(-mean)
    assert out["mismatch_k3"] == pytest.approx((4 + 0.25 + 1 + 1.5 + 1.5) / 5 - 1 - mean)
    assert out["mismatch_abs_max"] == pytest.approx(LN(4))
    assert out["mismatch_outside_2"] == pytest.approx(2 / 5)
    sd = math.sqrt(sum(x * x for x in tokens) / 5 - mean**2)
    assert out["mismatch_std_tokens"] == pytest.approx(sd)
    # Means of the responses: 0 and ln 1.5
    assert out["mismatch_std_responses"] == pytest.approx(LN(1.5) / 2)
    assert out["mismatch_abs_max_responses"] == pytest.approx(LN(1.5))
    assert out["mismatch_std_independent"] == pytest.approx(sd * math.sqrt((1 / 3 + 1 / 2) / 2))
    # Products 1 and 2.25
    assert out["mismatch_outside_2_responses"] == 0.5
    assert mismatch_measures(D, MASK & False) == {}


def test_independent_tokens_spread_as_said() -> None:
    torch.manual_seed(0)
    mask = torch.arange(40) < torch.randint(5, 41, (4000, 1))
    out = mismatch_measures(0.01 * torch.randn(mask.shape, dtype=torch.float64) * mask, mask)
    assert out["mismatch_std_responses"] == pytest.approx(out["mismatch_std_independent"], rel=0.05)


def test_flips_are_the_tokens_that_one_program_alone_clips() -> None:
    # Against the trainer nothing has moved; against the sampler 4 > 1.27 at A > 0 and nothing < .8 at A < 0; the
    # sequences' ratios are 1 and 1.5, of which the second is no move against A < 0.
    bands = {"grpo": (0.2, 0.27), "gspo": (3e-4, 4e-4)}
    everyone = torch.ones(2, dtype=torch.bool)
    still = torch.zeros_like(D)
    for own, other in ((still, D), (D, still)):
        out = ratio_measures(own, MASK, ADV, everyone, PRESETS["grpo"], bands, other_log_ratio_BT=other)
        assert out["flip_fraction_tokens_grpo"] == pytest.approx(1 / 5)
        assert out["flip_fraction_tokens_gspo"] == 0.0
        out = ratio_measures(own, MASK, -ADV, everyone, PRESETS["grpo"], bands, other_log_ratio_BT=other)
        # Signs turned: 1/4 < .8 at A < 0, 1.5 twice at A > 0; the second response whole.
        assert out["flip_fraction_tokens_grpo"] == pytest.approx(3 / 5)
        assert out["flip_fraction_tokens_gspo"] == pytest.approx(2 / 5)
    assert "flip_fraction_tokens_grpo" not in ratio_measures(D, MASK, ADV, everyone, PRESETS["grpo"], bands)


def test_clips_by_the_sign_of_the_advantage_and_what_a_correction_leaves() -> None:
    weight_BT = torch.tensor([[1.0, 0.0, 1.0], [0.5, 0.5, 1.0]])
    out = ratio_measures(
        D,
        MASK,
        ADV,
        torch.ones(2, dtype=torch.bool),
        PRESETS["grpo"],
        {"grpo": (0.2, 0.27), "gspo": (3e-4, 4e-4)},
        weight_BT=weight_BT,
    )
    assert out["clip_fraction_positive_tokens"] == pytest.approx(1 / 3)
    assert out["clip_fraction_negative_tokens"] == 0.0
    assert out["correction_weight_mean"] == pytest.approx((1 + 0 + 1 + 0.5 + 0.5) / 5)
    assert out["correction_masked_tokens"] == pytest.approx(1 / 5)
    # Of five active tokens one is clipped, another one masked.
    assert out["effective_fraction_tokens"] == pytest.approx(3 / 5)
