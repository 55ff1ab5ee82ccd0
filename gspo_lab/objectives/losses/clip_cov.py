"""Clip-Cov: the clip, and a few tokens without a gradient that would cost most entropy."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from gspo_lab.keys import HUGE
from gspo_lab.objectives.losses import clip
from gspo_lab.objectives.losses.loss import Loss, LossInputs, Term, own_key
from gspo_lab.objectives.settings import Common

if TYPE_CHECKING:
    from torch import Tensor

OWN = own_key("clip-cov", acts="update", later=True)


class ClipCov(Common):
    """How many tokens, and between which covariances."""

    clip_cov_share: Annotated[float, OWN] = Field(
        2e-4, gt=0, le=1, description="the share of the mini-batch's tokens that lose their gradient, one at least"
    )
    clip_cov_low: Annotated[float, OWN] = Field(
        1.0, ge=-HUGE, le=HUGE, description="they are drawn from tokens whose covariance is above this"
    )
    clip_cov_high: Annotated[float, OWN] = Field(
        5.0, ge=-HUGE, le=HUGE, description="and below this, and which the clip does not bind"
    )


def covariance(moved: LossInputs) -> "Tensor":
    """[B, T], (A - mean A) (log pi - mean log pi) over the mini-batch's tokens with A != 0, NaN elsewhere: 2505.22617
    section 4.2."""
    active_BT = moved.active_BT
    count = active_BT.sum().clip(min=1)

    def centred(x_BT: "Tensor") -> "Tensor":
        return x_BT - x_BT.masked_fill(~active_BT, 0.0).sum() / count

    product_BT: Tensor = centred(moved.batch.adv_BT) * centred(moved.logp_BT.detach())
    return product_BT.masked_fill(~active_BT, float("nan"))


def select(settings: ClipCov, moved: LossInputs) -> "Tensor":
    """[B, T], True at the tokens that lose their gradient. Which of the candidates they are follows from how many there
    are, so that a run can be repeated."""
    import torch

    covariance_BT = covariance(moved)
    candidate_BT = (covariance_BT > settings.clip_cov_low) & (covariance_BT < settings.clip_cov_high)
    clipped_BT = clip.term(moved, settings).clipped_BT
    assert clipped_BT is not None
    candidate_N2 = (candidate_BT & ~clipped_BT).nonzero()
    number = max(int(settings.clip_cov_share * int(moved.batch.mask_BT.sum())), 1)
    shuffled_N = torch.randperm(len(candidate_N2), generator=torch.Generator().manual_seed(len(candidate_N2)))
    selected_BT = torch.zeros_like(candidate_BT)
    selected_BT[tuple(candidate_N2[shuffled_N[:number].to(candidate_N2.device)].T)] = True
    return selected_BT


def term(moved: LossInputs, settings: ClipCov) -> Term:
    """min(r A, clip(r) A), 0 at the selected tokens: 2505.22617 section 4.2."""
    plain, selected_BT = clip.term(moved, settings), moved.batch.selected_BT
    assert selected_BT is not None
    assert plain.clipped_BT is not None
    return Term(plain.value_BT.masked_fill(selected_BT, 0.0), plain.clipped_BT | selected_BT)


LOSS = Loss(
    name="clip-cov",
    source="2505.22617 section 4.2",
    formula="`clip`'s, 0 at `clip_cov_share` of the tokens, drawn from those with `clip_cov_low` < (A - mean A) "
    "(log pi - mean log pi) < `clip_cov_high`",
    term=term,
    settings=ClipCov,
    select=select,
    lower_bound=False,
    alike_at_1=False,
    clips_at_1=True,
    differs="covariances are over the whole mini-batch's tokens with A != 0; its code takes each micro-batch alone",
)
