"""BAPO: the clip in a range that follows from a whole mini-batch and must be known before its first gradient."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from gspo_lab.keys import HUGE
from gspo_lab.objectives.losses.clip import term
from gspo_lab.objectives.losses.loss import Loss, own_key
from gspo_lab.objectives.ratios import Batch
from gspo_lab.objectives.settings import Common

STEP = 0.05
"""How far the upper bound moves at a time."""

OWN = own_key("bapo")


class Bapo(Common):
    """Where the range may end, and for what."""

    bapo_clip_low: Annotated[float, OWN] = Field(
        0.1, gt=0, lt=1, description="where the lower bound ends, 1 - bapo_clip_low; it begins at 1 - clip_low"
    )
    bapo_clip_high: Annotated[float, OWN] = Field(
        2.0, gt=0, le=HUGE, description="where the upper bound ends, 1 + bapo_clip_high; it begins at 1 + clip_high"
    )
    bapo_share: Annotated[float, OWN] = Field(
        0.5, gt=0, lt=1, description="the share of the loss that tokens with A > 0 should have"
    )


def balanced(settings: Bapo, batch: Batch, size: Callable[[Batch, Bapo], float]) -> Bapo:
    """The settings with the range for this whole mini-batch.

    Where the terms with A > 0 have less than bapo_share of all terms' sizes, the lower bound ends at 1 - bapo_clip_low,
    and the upper one rises from 1 + clip_high until they have it, to 1 + bapo_clip_high at most. The code raises the
    lower bound step by step too; but what is clipped keeps its size at the bound, so that no step gains a share.
    """
    rising, falling = (replace(batch, adv_BT=adv_BT) for adv_BT in (batch.adv_BT.clip(0), batch.adv_BT.clip(max=0)))

    def has_its_share(at: Bapo) -> bool:
        return size(rising, at) * (1 - settings.bapo_share) >= size(falling, at) * settings.bapo_share

    if has_its_share(settings):
        return settings
    steps = math.ceil((settings.bapo_clip_high - settings.clip_high) / STEP - 1e-9)
    ends = [*(settings.clip_high + STEP * step for step in range(steps)), settings.bapo_clip_high]
    wider = [settings.replace(clip_low=settings.bapo_clip_low, clip_high=end) for end in ends]
    return next(filter(has_its_share, wider), wider[-1])


def refused(settings: Bapo) -> Iterator[str]:
    """Bounds that would have to move down."""
    low, high = settings.bapo_clip_low, settings.bapo_clip_high
    if not (low <= settings.clip_low and settings.clip_high <= high):
        yield (
            f"bapo_clip_low = {low:g}, bapo_clip_high = {high:g}: bounds move up, from 1 - clip_low = "
            f"{1 - settings.clip_low:g} and 1 + clip_high = {1 + settings.clip_high:g}; give bapo_clip_low <= "
            "clip_low and bapo_clip_high >= clip_high"
        )


LOSS = Loss(
    name="bapo",
    source="2510.18927; WooooDyy/BAPO, `recipe/bapo/policy_loss.py`",
    formula="`clip`'s in a range that moves with every mini-batch",
    term=term,
    settings=Bapo,
    prepare=balanced,
    refuses=refused,
    differs="terms are those of the whole mini-batch, where its code takes each micro-batch alone; no dual clip at 3",
)
