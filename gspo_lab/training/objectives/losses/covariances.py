"""Clip-Cov and KL-Cov: the few tokens that would cost most entropy lose their gradient, or are held
by a penalty.
"""

import math
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from gspo_lab.common.keys import HUGE
from gspo_lab.recording.records.update import CLIP_FRACTION
from gspo_lab.training.objectives.losses.clipping import clipped
from gspo_lab.training.objectives.losses.loss import Loss, LossInputs, Metrics, everywhere, own_key
from gspo_lab.training.objectives.settings import Common

if TYPE_CHECKING:
    from torch import Tensor

DIFFERS = "covariances over the whole mini-batch's tokens with A != 0, not each micro-batch's"
CLIP_COV_KEY = own_key("clip-cov", affects="update")


class ClipCov(Common):
    """How many tokens, and between which covariances."""

    clip_cov_share: Annotated[float, CLIP_COV_KEY] = Field(
        2e-4,
        gt=0,
        le=1,
        description="share of the mini-batch's tokens that lose their gradient, at least one",
    )
    clip_cov_low: Annotated[float, CLIP_COV_KEY] = Field(
        1.0,
        ge=-HUGE,
        le=HUGE,
        description="lowest covariance of those tokens",
    )
    clip_cov_high: Annotated[float, CLIP_COV_KEY] = Field(
        5.0, ge=-HUGE, le=HUGE, description="highest covariance of those tokens"
    )


def covariance(inputs: LossInputs) -> "Tensor":
    """[B, T], (A - mean A) (log pi - mean log pi) over the mini-batch's tokens with A != 0, NaN
    elsewhere: 2505.22617 eq. 10."""
    adv_BT = inputs.batch.adv_BT
    logp_BT = inputs.logp_BT.detach()
    active_BT = inputs.active_BT
    product_BT: Tensor = (adv_BT - adv_BT[active_BT].mean()) * (logp_BT - logp_BT[active_BT].mean())
    return product_BT.masked_fill(~active_BT, math.nan)


def _largest(score_BT: "Tensor", inputs: LossInputs, share: float) -> "Tensor":
    """[B, T], True at the tokens with the largest scores.

    `share` of the mini-batch's tokens are marked, at least one, and none whose score is NaN."""
    number = max(int(share * int(inputs.batch.mask_BT.sum())), 1)
    known_N = score_BT.nan_to_num(nan=-math.inf).flatten()
    best_n = known_N.topk(min(number, len(known_N))).indices
    return (
        inputs.active_BT.new_zeros(len(known_N)).index_fill(0, best_n, True).view_as(score_BT)
        & ~score_BT.isnan()
    )


def _clip_candidates(settings: ClipCov, inputs: LossInputs) -> "Tensor":
    """[B, T], True at the tokens that lose their gradient. Which of the candidates they are follows
    from how many there are, so that a run can be repeated: 2505.22617 eq. 11."""
    import torch

    covariance_BT = covariance(inputs)
    _, metrics = clipped(inputs, settings)
    candidate_BT = (
        (covariance_BT > settings.clip_cov_low)
        & (covariance_BT < settings.clip_cov_high)
        & ~metrics[CLIP_FRACTION]
    )
    count = int(candidate_BT.sum())
    place_N = torch.randperm(count, generator=torch.Generator().manual_seed(count)).argsort()
    drawn_BT = covariance_BT.new_full(candidate_BT.shape, math.nan).masked_scatter(
        candidate_BT, -place_N.to(covariance_BT)
    )
    return _largest(drawn_BT, inputs, settings.clip_cov_share)


def clip_cov(inputs: LossInputs, settings: ClipCov) -> "tuple[Tensor, Metrics]":
    """min(r A, clip(r) A), 0 at the selected tokens: Clip-Cov, 2505.22617 eq. 12."""
    selected_BT = inputs.batch.selected_BT
    assert selected_BT is not None
    value_BT, metrics = clipped(inputs, settings)
    metrics[CLIP_FRACTION] = metrics[CLIP_FRACTION] | selected_BT
    return value_BT.masked_fill(selected_BT, 0.0), metrics


CLIP_COV = Loss(
    name="clip-cov",
    source="2505.22617 eq. 10-12",
    formula=(
        "`clip`'s, 0 at `clip_cov_share` of the tokens, drawn from those with `clip_cov_low` < (A -"
        " mean A) (log pi - mean log pi) < `clip_cov_high`"
    ),
    term=clip_cov,
    settings=ClipCov,
    select=_clip_candidates,
    lower_bound=False,
    reinforce_on_policy=False,
    clips_at_1=True,
    differs=DIFFERS,
)

KL_COV_KEY = own_key("kl-cov")


class KlCov(Common):
    """How many tokens, and how much they are held."""

    kl_cov_share: Annotated[float, KL_COV_KEY] = Field(
        2e-4,
        gt=0,
        le=1,
        description="share of the mini-batch's tokens with the penalty, at least one",
    )
    kl_cov_coef: Annotated[float, KL_COV_KEY] = Field(
        1.0, ge=0, le=HUGE, description="weight of the penalty |log pi - log pi_old|"
    )


def kl_cov(inputs: LossInputs, settings: KlCov) -> "tuple[Tensor, Metrics]":
    """r A, less kl_cov_coef |l| at the selected tokens: KL-Cov, 2505.22617 eq. 13-14.

    |l| is the estimate of KL in the paper's code."""
    assert inputs.batch.selected_BT is not None
    penalty_BT = settings.kl_cov_coef * inputs.log_ratio_BT.abs().masked_fill(
        ~inputs.batch.selected_BT, 0.0
    )
    value_BT = inputs.ratio_BT * inputs.batch.adv_BT - penalty_BT
    return value_BT, {"gate_mean": everywhere(inputs, 1.0)}


KL_COV = Loss(
    name="kl-cov",
    source="2505.22617 eq. 10, 13-14",
    formula=(
        "rho A, less `kl_cov_coef` abs(l) at the `kl_cov_share` of tokens with the largest (A -"
        " mean A) (log pi - mean log pi)"
    ),
    term=kl_cov,
    settings=KlCov,
    select=lambda settings, inputs: _largest(covariance(inputs), inputs, settings.kl_cov_share),
    clips=None,
    reads_range=False,
    differs=DIFFERS,
)
