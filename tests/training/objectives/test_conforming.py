"""The check of a loss for other people's test suites: what passes, and which departure it names."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gspo_lab.training.objectives import PRESETS, assert_conforms, loss_of
from gspo_lab.training.objectives.conforming import Equation

GSPO = Equation(3e-4, 4e-4, "mean")
GRPO = Equation(0.2, 0.27, "token")


@pytest.mark.parametrize("preset", ["grpo", "gspo", "gspo-token"])
def test_the_lab_s_own_losses_conform(preset: str) -> None:
    assert_conforms(loss_of(PRESETS[preset]), preset.removesuffix("-token"))


def test_the_equations_with_a_pencil() -> None:
    l_BT = torch.tensor([[0.375, -0.373], [-0.375, 0.25]], dtype=torch.float64)
    adv_BT = torch.tensor([[1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    mask_BT = torch.tensor([[True, True], [True, False]])
    # s = e^.001 and e^-.375: both leave the range along their advantage.
    loss, clipped = GSPO(l_BT, 0 * l_BT, adv_BT, mask_BT)
    assert (float(loss), clipped) == (pytest.approx(-(1.0004 - 0.9997) / 2), 3)
    loss, clipped = GRPO(l_BT, 0 * l_BT, adv_BT, mask_BT)
    first = (1.27 + math.exp(-0.373)) / 2
    assert (float(loss), clipped) == (pytest.approx(-(first - 0.8) / 2), 2)


@pytest.mark.parametrize(
    ("departure", "changes"),
    [
        ("token ratio", {"ratio": "token"}),
        ("sum of the log-ratios instead of their mean", {"ratio": "sum"}),
        ("token aggregation", {"weight": "batch"}),
        ("no division by the response's length", {"weight": "one"}),
        ("the range of the other rule", {"low": 0.2, "high": 0.27}),
        ("no clip", {"low": 1.0, "high": math.inf}),
        ("the larger of the two terms", {"pick": "maximum"}),
        ("padding counted", {"counts_padding": True}),
        ("the opposite sign", {"sign": -1}),
        ("a ratio without gradient", {"detached": True}),
        ("token aggregation and no clip", {"weight": "batch", "low": 1.0, "high": math.inf}),
        ("no departure that is known here", {"low": 1e-3}),
    ],
)
def test_a_departure_is_named(departure: str, changes: dict[str, Any]) -> None:
    with pytest.raises(AssertionError) as refusal:
        assert_conforms(replace(GSPO, **changes), "gspo")
    assert str(refusal.value).splitlines()[0] == f"the loss is not gspo's: {departure}"


def test_half_precision_and_a_wrong_count_are_told() -> None:
    def halved(logp_BT: Tensor, old_BT: Tensor, adv_BT: Tensor, mask_BT: Tensor) -> Any:
        mean_B = (logp_BT * mask_BT).sum(1) / mask_BT.sum(1).to(logp_BT.dtype)
        return GSPO(mean_B.exp().log()[:, None].expand_as(mask_BT), old_BT, adv_BT, mask_BT)

    with pytest.raises(AssertionError, match="log-ratios computed in half precision"):
        assert_conforms(halved, "gspo")
    with pytest.raises(AssertionError, match="0 clipped tokens, the paper's 2"):
        assert_conforms(lambda *tensors: (loss_of(PRESETS["gspo"])(*tensors)[0], 0), "gspo")
    with pytest.raises(AssertionError, match="the loss is not grpo's: sequence ratio"):
        assert_conforms(replace(GRPO, ratio="mean"), "grpo")
