"""KL-Cov: a KL penalty on the few tokens that would cost most entropy."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from gspo_lab.keys import HUGE
from gspo_lab.objectives.losses.clip_cov import covariance
from gspo_lab.objectives.losses.loss import Loss, LossInputs, Term, everywhere, own_key
from gspo_lab.objectives.settings import Common

if TYPE_CHECKING:
    from torch import Tensor

OWN = own_key("kl-cov", later=True)


class KlCov(Common):
    """How many tokens, and how much they are held."""

    kl_cov_share: Annotated[float, OWN] = Field(
        2e-4, gt=0, le=1, description="the share of the mini-batch's tokens with the penalty, one at least"
    )
    kl_cov_coef: Annotated[float, OWN] = Field(
        1.0, ge=0, le=HUGE, description="weight of the penalty |log pi - log pi_old|"
    )


def select(settings: KlCov, moved: LossInputs) -> "Tensor":
    """[B, T], True at the tokens with the largest covariances."""
    import torch

    covariance_N = covariance(moved).nan_to_num(nan=-torch.inf).flatten()
    number = max(int(settings.kl_cov_share * int(moved.batch.mask_BT.sum())), 1)
    selected_N = torch.zeros_like(covariance_N, dtype=torch.bool)
    selected_N[covariance_N.topk(min(number, len(covariance_N))).indices] = True
    return selected_N.view_as(moved.active_BT) & moved.active_BT


def term(moved: LossInputs, settings: KlCov) -> Term:
    """r A, less kl_cov_coef |l| at the selected tokens: 2505.22617 section 4.2, with the estimate of KL of its code."""
    assert moved.batch.selected_BT is not None
    penalty_BT = settings.kl_cov_coef * moved.log_ratio_BT.abs().masked_fill(~moved.batch.selected_BT, 0.0)
    return Term(moved.ratio_BT * moved.batch.adv_BT - penalty_BT, gate_BT=everywhere(moved, 1.0))


LOSS = Loss(
    name="kl-cov",
    source="2505.22617 section 4.2",
    formula="rho A, less `kl_cov_coef` abs(l) at the `kl_cov_share` of tokens with the largest (A - mean A) "
    "(log pi - mean log pi)",
    term=term,
    settings=KlCov,
    select=select,
    clips=None,
    reads_range=False,
    differs="covariances are over the whole mini-batch's tokens with A != 0; its code takes each micro-batch alone",
)
