"""The check of a loss for other people's test suites: what passes, and which departure it names."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from gspo_lab.training.objectives import PRESETS, Batch, assert_conforms, surrogate
from gspo_lab.training.objectives.conforming import Equation

GSPO = Equation(3e-4, 4e-4, "mean")
GRPO = Equation(0.2, 0.27, "token")


def lab(preset: str) -> Callable[..., Any]:
    def loss(logp_BT: Tensor, old_BT: Tensor, adv_BT: Tensor, mask_BT: Tensor) -> Any:
        batch = Batch(mask_BT, adv_BT * mask_BT, old_BT, len(mask_BT), int(mask_BT.sum()))
        out = surrogate(logp_BT, batch, PRESETS[preset])
        return out.loss, out.clipped_BT.sum()

    return loss


@pytest.mark.parametrize(
    ("preset", "rule"), [("grpo", "grpo"), ("gspo", "gspo"), ("gspo-token", "gspo")]
)
def test_the_lab_s_own_losses_conform(preset: str, rule: Any) -> None:
    assert_conforms(lab(preset), rule)


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
    ("rule", "equation", "departure"),
    [
        ("gspo", Equation(3e-4, 4e-4, "token"), "token ratio"),
        ("gspo", Equation(3e-4, 4e-4, "sum"), "sum of the log-ratios instead of their mean"),
        ("gspo", Equation(3e-4, 4e-4, "mean", token_mean=True), "token aggregation"),
        ("gspo", Equation(0.2, 0.27, "mean"), "the range of the other rule"),
        ("gspo", Equation(3e-4, 4e-4, "mean", counts_padding=True), "padding counted"),
        ("grpo", Equation(0.2, 0.27, "mean"), "sequence ratio"),
        ("grpo", Equation(0.1, 0.27, "token"), "no departure that is known here"),
        (
            "gspo",
            Equation(0.2, 0.27, "mean", token_mean=True),
            "token aggregation and the range of the other rule",
        ),
    ],
)
def test_a_departure_is_named(rule: Any, equation: Equation, departure: str) -> None:
    with pytest.raises(AssertionError) as refusal:
        assert_conforms(equation, rule)
    assert str(refusal.value).splitlines()[0] == f"the loss is not {rule}'s: {departure}"


def test_half_precision_and_a_wrong_count_are_told() -> None:
    def halved(logp_BT: Tensor, old_BT: Tensor, adv_BT: Tensor, mask_BT: Tensor) -> Any:
        l_BT = (logp_BT - old_BT) * mask_BT
        mean_BT = (l_BT.sum(1) / mask_BT.sum(1).to(l_BT.dtype))[:, None].expand_as(l_BT)
        ratio_BT = mean_BT.exp()
        bounded_BT = ratio_BT.clamp(1 - 3e-4, 1 + 4e-4)
        term_BT = (ratio_BT * adv_BT).minimum(bounded_BT * adv_BT) * mask_BT
        return -(term_BT.sum(1) / mask_BT.sum(1)).mean()

    with pytest.raises(AssertionError, match="log-ratios computed in half precision"):
        assert_conforms(halved, "gspo")
    with pytest.raises(AssertionError, match="0 clipped tokens, the paper's 2"):
        assert_conforms(lambda *tensors: (lab("gspo")(*tensors)[0], 0), "gspo")
