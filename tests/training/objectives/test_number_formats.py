"""Public functions compute in single precision at least, whatever format they are given."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from measuring import numbers
from torch import Tensor

from gspo_lab.training import objectives
from gspo_lab.training.objectives import PRESETS, Batch, prepared, response_detail, surrogate
from gspo_lab.training.objectives.losses import LOSSES

FORMATS = [torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.uint8, torch.bool]
BANDS = {"grpo": (0.2, 0.27), "gspo": (3e-4, 4e-4)}
MASK = torch.ones(8, 30, dtype=torch.bool)
MASK[2, 11:] = False


def values(format: torch.dtype, *shape: int) -> Tensor:
    """Random numbers that the format holds exactly."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).abs().to(format)


def batch(old_BT: Tensor, adv_BT: Tensor, mask_BT: Tensor = MASK) -> Batch:
    return Batch(
        mask_BT,
        adv_BT * mask_BT,
        old_BT * mask_BT,
        8,
        int(mask_BT.sum()),
        ref_logp_BT=old_BT * mask_BT,
        sampler_logp_BT=old_BT * mask_BT,
    )


def loss(preset: str) -> Callable[[Callable[..., Tensor]], Any]:
    def of(inputs: Callable[..., Tensor]) -> Any:
        settings = PRESETS[preset].replace(kl_coef=0.1, entropy_coef=0.1)
        rows = batch(inputs(8, 30), inputs(8, 1).expand(8, 30))
        out = surrogate(inputs(8, 30) * MASK, rows, settings, entropy_BT=inputs(8, 30))
        return out.loss, out.ratio_BT, out.clipped_BT, out.metrics["kl"]

    return of


def normalised(method: str) -> Callable[[Callable[..., Tensor]], Any]:
    return lambda inputs: objectives.advantages(inputs(3, 4), method)


def record(inputs: Callable[..., Tensor]) -> Any:
    l_BT = inputs(8, 30) * MASK
    adv_BT = inputs(8, 1).expand(8, 30) * MASK
    everyone = torch.ones(8, dtype=torch.bool)
    metrics = {"clip_fraction_tokens": MASK, "gate_mean": inputs(8, 30)}
    out = numbers(l_BT, MASK, adv_BT, everyone, PRESETS["gspo"], BANDS, metrics)
    return list(out.values()), response_detail(l_BT, MASK, adv_BT, MASK)


FUNCTIONS: dict[str, Callable[[Callable[..., Tensor]], Any]] = {
    **{preset: loss(preset) for preset in ("grpo", "gspo", "dppo-kl", "vespo", "fspo", "kl-cov")},
    "record": record,
    "prepared": lambda given: (
        prepared(
            given(8, 30) * MASK,
            batch(given(8, 30), given(8, 1).expand(8, 30)),
            PRESETS["bapo"],
            LOSSES["bapo"],
        )[0].clip_high
    ),
    **{
        how: normalised(how)
        for how in ("group-mean-std", "group-mean", "leave-one-out", "batch-mean-std")
    },
    "decoupled": lambda given: objectives.decoupled(given(2, 3, 4), (1.0, 0.5)),
    "overlong_penalty": lambda given: objectives.overlong_penalty(given(3, 4), 2, 1, 1.0),
    "turn_advantages": lambda given: objectives.turn_advantages(given(2, 4, 3), "group-mean-std"),
    "at_last_token": lambda given: objectives.at_last_token(given(8), MASK),
    "gae": lambda given: objectives.gae(
        given(8, 30), given(8, 30), MASK, gamma=0.99, gae_lambda=0.95
    ),
    "whitened": lambda given: objectives.whitened(given(8, 30), MASK),
    "sequence_advantages": lambda given: objectives.sequence_advantages(given(8, 30), MASK, "mean"),
    "value_loss": lambda given: (
        objectives.value_loss(
            given(8, 30), given(8, 30) * 0, given(8, 30), MASK, tokens=9, clip=0.2
        ).loss
    ),
    "explained_variance": lambda given: objectives.explained_variance(
        given(8, 31)[:, 1:], given(8, 30), MASK
    ),
    "mismatch_measures": lambda given: list(
        objectives.mismatch_measures(given(8, 30) * MASK, MASK).values()
    ),
}


@pytest.mark.parametrize("format", FORMATS, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_format_gives_what_the_same_numbers_in_single_precision_give(
    name: str, format: torch.dtype
) -> None:
    function = FUNCTIONS[name]
    actual = function(lambda *shape: values(format, *shape))
    expected = function(lambda *shape: values(format, *shape).float())
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def test_a_half_precision_leaf_has_its_gradient_and_double_precision_stays() -> None:
    old_BT = values(torch.bfloat16, 8, 30)
    adv_BT = torch.ones(8, 30)
    leaf = (old_BT * MASK).requires_grad_()
    surrogate(leaf, batch(old_BT, adv_BT), PRESETS["gspo"]).loss.backward()
    assert (leaf.grad.dtype, bool(leaf.grad.any())) == (torch.bfloat16, True)
    double = surrogate(leaf.detach().double(), batch(old_BT.double(), adv_BT), PRESETS["gspo"])
    assert double.loss.dtype == torch.float64


def test_a_mask_of_numbers_is_a_mask() -> None:
    old_BT = values(torch.float32, 8, 30)
    actual = [
        surrogate(0.9 * old_BT * MASK, batch(old_BT, torch.ones(8, 30), mask), PRESETS["gspo"])
        for mask in (MASK, MASK.long(), MASK.float())
    ]
    assert actual[0].loss == actual[1].loss == actual[2].loss


def test_complex_numbers_are_refused() -> None:
    with pytest.raises(TypeError, match=r"complex64 tensor is no log-prob"):
        objectives.advantages(torch.zeros(2, 2, dtype=torch.complex64), "group-mean")


def test_gspo_s_range_is_seen_in_bfloat16() -> None:
    """64 responses moved by about .004.

    With ratios in bfloat16 there would be five different ones.
    """
    torch.manual_seed(0)
    mask_BT = torch.ones(64, 30, dtype=torch.bool)
    adv_BT = torch.randn(64, 1).expand(64, 30)
    old_BT = (-2 * torch.rand(64, 30)).bfloat16()
    new_BT = (old_BT + 0.02 * torch.randn(64, 30)).bfloat16()
    rows = Batch(mask_BT, adv_BT.bfloat16(), old_BT, 64, 1920)
    out = surrogate(new_BT, rows, PRESETS["gspo"])
    assert out.ratio_BT.dtype == torch.float32
    assert len(out.ratio_BT.unique()) > 50
