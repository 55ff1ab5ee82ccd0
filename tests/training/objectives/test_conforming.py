"""The check of a loss for other people's test suites: what passes, and which departure it names."""

import math
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gspo_lab.training.objectives import PRESETS, assert_conforms, loss_of
from gspo_lab.training.objectives.conforming import Equation

GSPO = Equation(3e-4, 4e-4, "mean")
GRPO = Equation(0.2, 0.27, "token")
KL = 0.5
TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


def departure(loss: Callable[..., Any], rule: str, kl_coef: float = 0.0) -> str:
    """The departure that the check names, "" if the loss conforms."""
    try:
        assert_conforms(loss, rule, kl_coef)
    except AssertionError as refusal:
        return str(refusal).splitlines()[0].removeprefix(f"the loss is not {rule}'s: ")
    return ""


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_conforms_or_departs_as_its_paper_does(preset: str) -> None:
    settings = PRESETS[preset].replace(kl_coef=KL)
    rule = "grpo" if settings.importance_sampling_level == "token" else "gspo"
    assert departure(loss_of(settings), rule, KL) == TABLES["presets"].get(
        preset, "no line in test_conforming.toml"
    )


def test_the_equations_with_a_pencil() -> None:
    l_BT = torch.tensor([[0.375, -0.373], [-0.375, 0.25]], dtype=torch.float64)
    adv_BT = torch.tensor([[1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    mask_BT = torch.tensor([[True, True], [True, False]])
    # s = e^.001 and e^-.375: both leave the range along their advantage.
    tensors = (l_BT, 0 * l_BT, adv_BT, mask_BT)
    loss, clipped = GSPO(*tensors)
    assert (float(loss), clipped) == (pytest.approx(-(1.0004 - 0.9997) / 2), 3)
    loss, clipped = GRPO(*tensors)
    assert (float(loss), clipped) == (pytest.approx(-(1.27 + math.exp(-0.373) - 1.6) / 4), 2)
    # k3 with log pi_ref - log pi = .25: it is added to the loss.
    loss_kl, _ = replace(GRPO, kl_coef=KL)(*tensors, l_BT + 0.25)
    assert float(loss_kl - loss) == pytest.approx(KL * (math.exp(0.25) - 1.25))


@pytest.mark.parametrize("name", TABLES["gspo"])
def test_a_departure_is_named(name: str) -> None:
    assert departure(replace(GSPO, kl_coef=KL, **TABLES["gspo"][name]), "gspo", KL) == name


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("the opposite sign", lambda *tensors: -GSPO(*tensors)[0]),
        ("the factor 0.25", lambda *tensors: GSPO(*tensors)[0] / 4),
        ("a ratio without gradient", lambda logp, *others: GSPO(logp.detach(), *others)),
        (
            "log-ratios computed in half precision",
            lambda logp, old, *others: GSPO((logp - old).exp().log(), 0 * old, *others),
        ),
        ("another count of clipped tokens", lambda *tensors: (GSPO(*tensors)[0], 0)),
        (
            "old_logp is ignored",
            lambda logp, old, *others: GSPO(logp, logp.detach(), *others),
        ),
        (
            "the advantages are ignored or centred",
            lambda logp, old, adv, mask: GSPO(logp, old, adv - adv.mean(), mask),
        ),
        ("a loss or gradient that is not finite", lambda *tensors: GSPO(*tensors)[0] * math.nan),
    ],
)
def test_a_loss_of_another_form_is_named(name: str, loss: Callable[..., Any]) -> None:
    assert departure(loss, "gspo") == name


def test_what_was_seen_stands_beside_the_paper_s() -> None:
    """Both tokens of e^.001 are clipped at 1.0004."""
    seen = (
        "clipped above: loss -1.000400, the paper's -1.000400; gradients apart by 0; clipped tokens"
        " 0, the paper's 2"
    )
    with pytest.raises(AssertionError, match=seen):
        assert_conforms(lambda *tensors: (GSPO(*tensors)[0], 0), "gspo")
