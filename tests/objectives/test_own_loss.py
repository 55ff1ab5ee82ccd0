"""A policy loss from a user's own file: found, checked, its settings read, and trained with."""

from pathlib import Path
from typing import Any

import pytest
import torch
from measuring import batch_of
from pydantic import ValidationError

from gspo_lab.errors import LabError
from gspo_lab.objectives import Objective, surrogate
from gspo_lab.objectives.losses import LOSSES, Common, loss_of
from gspo_lab.objectives.losses.bapo import Bapo
from gspo_lab.objectives.losses.vespo import Vespo

MINE = '''
from pydantic import Field
from gspo_lab.objectives.losses import Common, Loss, Moved, Term, weighted


class Mine(Common):
    power: float = Field(1.0, ge=0)


def term(moved: Moved, settings: Mine) -> Term:
    """sg(r^power) A log pi."""
    return weighted(moved, moved.ratio_BT.detach() ** settings.power)


LOSS = Loss(name="mine", source="mine", formula="", term=term, settings=Mine, clips=None, reads_range=False)
OTHER = 3
'''


def named(folder: Path, what: str = "LOSS", **options: Any) -> Objective:
    (folder / "mine.py").write_text(MINE, encoding="utf-8")
    return Objective(policy_loss=f"mine.py:{what}", loss_options=options)


def test_it_is_found_and_reads_its_own_settings(tmp_path: Path) -> None:
    """With power 0 it is REINFORCE: the gradient of one token of two is -A / 2; with power 2 it is r^2 times that."""
    batch = batch_of([[1, 1]], [1.0])
    for power, factor in ((0.0, 1.0), (2.0, 4.0)):
        loss, settings = loss_of(named(tmp_path, power=power), tmp_path)
        leaf = torch.full((1, 2), 2.0, dtype=torch.float64).log().requires_grad_()
        surrogate(leaf, batch, settings, loss).loss.backward()
        assert leaf.grad is not None
        assert leaf.grad.tolist() == [[pytest.approx(-factor / 2)] * 2]


def test_what_is_none_or_does_not_fit_is_told(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"'mine\.py:OTHER' is int; it must be a gspo_lab\.objectives\.losses\.Loss"):
        loss_of(named(tmp_path, "OTHER"), tmp_path)
    with pytest.raises(LabError, match=r"objective\.loss_options\.power: Input should be greater than or equal to 0"):
        loss_of(named(tmp_path, power=-1.0), tmp_path)
    with pytest.raises(LabError, match=r"objective\.loss_options\.pwer: Extra inputs"):
        loss_of(named(tmp_path, pwer=1.0), tmp_path)


def test_a_lab_s_loss_needs_no_file(tmp_path: Path) -> None:
    objective = Objective(policy_loss="sapo")
    assert loss_of(objective, tmp_path) == (LOSSES["sapo"], objective)


def test_an_unknown_loss_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValidationError, match=r"must be one of bapo, .* or 'file\.py:LOSS'.*'sapo'"):
        Objective(policy_loss="spao")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (Vespo(policy_loss="vespo"), None),
        (
            Vespo(policy_loss="vespo", mismatch_correction="tis"),
            "mismatch_correction = 'tis' with policy_loss = 'vespo'",
        ),
        (Bapo(policy_loss="bapo"), None),
        (Bapo(policy_loss="bapo", bapo_clip_low=0.3), "bapo_clip_low = 0.3, bapo_clip_high = 2: bounds move up"),
    ],
)
def test_a_loss_refuses_settings_that_cannot_be_together(settings: Common, reason: str | None) -> None:
    reasons = list(LOSSES[settings.policy_loss].refuses(settings))
    assert len(reasons) == (reason is not None)
    assert all(line.startswith(str(reason)) for line in reasons)
