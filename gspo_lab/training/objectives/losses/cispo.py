"""CISPO: the clip of a weight, so that no token loses its gradient."""

from typing import TYPE_CHECKING

from gspo_lab.training.objectives.losses.loss import Loss, LossInputs, Metrics, weighted
from gspo_lab.training.objectives.settings import Common

if TYPE_CHECKING:
    from torch import Tensor


def term(inputs: LossInputs, settings: Common) -> "tuple[Tensor, Metrics]":
    """sg(clip(r, 1 - clip_low, 1 + clip_high)) A log pi: CISPO, 2506.13585 eq. 4-5."""
    return weighted(
        inputs, inputs.ratio_BT.detach().clamp(1 - settings.clip_low, 1 + settings.clip_high)
    )


LOSS = Loss(
    name="cispo",
    source="2506.13585 eq. 4-5",
    formula="sg(clip(rho, 1 - clip_low, 1 + clip_high)) A log pi; `clip_low = 1`: no lower bound",
    term=term,
    clips=None,
    lower_bound=False,
)
