"""VESPO: a smooth weight of the whole sequence's ratio W."""

import math
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from gspo_lab.keys import HUGE
from gspo_lab.objectives.losses.loss import LARGEST_LOG_RATIO, Loss, LossInputs, Term, own_key, spread_sum, weighted
from gspo_lab.objectives.settings import Common

LARGEST, SMALLEST = 20.0, math.log(1e-8)
"""Limits of l_t, on both sides, and of log W, as in TRL's reading of its code."""

OWN = own_key("vespo")


class Vespo(Common):
    """Exponent and decay, by the sign of A."""

    vespo_k_positive: Annotated[float, OWN] = Field(2.0, ge=0, le=HUGE, description="the exponent k where A >= 0")
    vespo_lambda_positive: Annotated[float, OWN] = Field(
        3.0, gt=0, le=HUGE, description="the decay lambda where A >= 0"
    )
    vespo_k_negative: Annotated[float, OWN] = Field(3.0, ge=0, le=HUGE, description="the exponent k where A < 0")
    vespo_lambda_negative: Annotated[float, OWN] = Field(2.0, gt=0, le=HUGE, description="the decay lambda where A < 0")


def term(moved: LossInputs, settings: Vespo) -> Term:
    """sg(W^k exp(lambda (1 - W))) A log pi."""
    up_BT = moved.batch.adv_BT >= 0
    l_BT = moved.log_ratio_BT.detach().clamp(-LARGEST, LARGEST)
    log_whole_BT = spread_sum(l_BT).clamp(SMALLEST, LARGEST)
    gain_BT = settings.vespo_lambda_positive * (1 - log_whole_BT.exp()) + settings.vespo_k_positive * log_whole_BT
    loss_BT = settings.vespo_lambda_negative * (1 - log_whole_BT.exp()) + settings.vespo_k_negative * log_whole_BT
    return weighted(moved, gain_BT.where(up_BT, loss_BT).clamp(max=LARGEST_LOG_RATIO).exp())


def refused(settings: Vespo) -> Iterator[str]:
    """A correction beside W."""
    if settings.mismatch_correction != "none":
        yield (
            f"mismatch_correction = '{settings.mismatch_correction}' with policy_loss = 'vespo': its paper "
            "puts the mismatch into W, which is not done here; use mismatch_correction = 'none'"
        )


LOSS = Loss(
    name="vespo",
    source="2602.10693",
    formula="sg(W^k exp(lambda (1 - W))) A log pi, k and lambda by the sign of A",
    term=term,
    settings=Vespo,
    clips=None,
    reads_range=False,
    ratio="own",
    refuses=refused,
    differs="its paper puts the mismatch of sampler and trainer into W; here W leaves it out",
)
