"""Losses that remove the gradient of tokens whose ratio left a range.

They are the clip of PPO, GRPO and GSPO, and its relatives.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from gspo_lab.common.keys import HUGE
from gspo_lab.recording.records.update import CLIP_FRACTION
from gspo_lab.training.objectives.losses.loss import (
    LARGEST_LOG_RATIO,
    Loss,
    LossInputs,
    Metrics,
    own_key,
    spread_sum,
)
from gspo_lab.training.objectives.ratios import Array, Batch, sequence_mean
from gspo_lab.training.objectives.settings import Common

if TYPE_CHECKING:
    from torch import Tensor


def binds(ratio: Array, adv: Array, mask: Array, below: Array, above: Array) -> tuple[Array, Array]:
    """Two masks of the tokens whose gradient the clip removes.

    The first has those below the range with A < 0, the second those above it with A > 0. The range
    is 1 - `below` to 1 + `above`; both may differ by token."""
    return mask & (adv < 0) & (ratio < 1 - below), mask & (adv > 0) & (ratio > 1 + above)


def clipped(inputs: LossInputs, settings: Common) -> "tuple[Tensor, Metrics]":
    """min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), which is PPO's: 1707.06347 eq. 7.

    The dual clip is that of 1912.09729."""
    ratio_BT = inputs.ratio_BT
    adv_BT = inputs.batch.adv_BT
    mask_BT = inputs.batch.mask_BT
    clipped_ratio_BT = ratio_BT.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    value_BT = (ratio_BT * adv_BT).minimum(clipped_ratio_BT * adv_BT)
    low_BT, high_BT = binds(
        ratio_BT.detach(), adv_BT, mask_BT, settings.clip_low, settings.clip_high
    )
    metrics = {CLIP_FRACTION: low_BT | high_BT}
    if (cap := settings.dual_clip) is None:
        return value_BT, metrics
    dual_BT = mask_BT & (adv_BT < 0) & (ratio_BT.detach() > cap)
    metrics["dual_clip_fraction_tokens"] = dual_BT
    return value_BT.where(~dual_BT, cap * adv_BT), metrics


CLIP = Loss(
    name="clip",
    source="1707.06347 eq. 7",
    formula="min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A)",
    term=clipped,
)

DCPO_LARGEST_RATIO = 10.0
"""The highest upper bound, as in its authors' code (lime-RL/DCPO, `get_clip_low_high`)."""


def dcpo(inputs: LossInputs, settings: Common) -> "tuple[Tensor, Metrics]":
    """min(r A, clip(r) A) between bounds that widen where the old policy gave a token a small
    probability q: DCPO, 2509.02333, the bounds of eq. 4 in the term of eq. 8."""
    ratio_BT = inputs.ratio_BT
    adv_BT = inputs.batch.adv_BT
    rarity_BT = (-inputs.batch.old_logp_BT.detach()).clamp(max=LARGEST_LOG_RATIO).exp()
    low_BT = 0.5 + 0.5 * (1 - 4 * settings.clip_low * rarity_BT).clamp(min=0).sqrt()
    high_BT = (0.5 + 0.5 * (1 + 4 * settings.clip_high * rarity_BT).sqrt()).clamp(
        max=DCPO_LARGEST_RATIO
    )
    value_BT = (ratio_BT * adv_BT).minimum(ratio_BT.maximum(low_BT).minimum(high_BT) * adv_BT)
    under_BT, over_BT = binds(
        ratio_BT.detach(), adv_BT, inputs.batch.mask_BT, 1 - low_BT, high_BT - 1
    )
    return value_BT, {CLIP_FRACTION: under_BT | over_BT}


DCPO = Loss(
    name="dcpo",
    source="2509.02333 eq. 4, 8",
    formula=(
        "`clip`'s between .5 + .5 sqrt(max(1 - 4 clip_low / q, 0)) and .5 + .5 sqrt(1 + 4 clip_high"
        " / q), at most 10"
    ),
    term=dcpo,
    differs="no smoothed advantages, no dual clip; mean over responses, not sum",
)

DPPO_LARGEST_RATIO = 20.0
"""The largest weight of a token, as in verl (`clip_ratio_c`)."""


def dppo_tv(inputs: LossInputs, settings: Common) -> "tuple[Tensor, Metrics]":
    """DPPO's mask by how far pi moved: 2602.04879 eq. 12 with the binary total variation of eq. 13.

    The move is against the sampler with `update.old_logprobs = "sampler"`.
    """
    moved_BT = inputs.logp_BT.detach().exp() - inputs.batch.old_logp_BT.exp()
    return _masked_by_divergence(
        inputs, moved_BT < -settings.clip_low, moved_BT > settings.clip_high
    )


def dppo_kl(inputs: LossInputs, settings: Common) -> "tuple[Tensor, Metrics]":
    """DPPO's mask by the KL divergence of the two-way choice, this token or another.

    2602.04879 eq. 12, 14.
    """
    logp_BT = inputs.logp_BT.detach().masked_fill(~inputs.batch.mask_BT, 0.0)
    old_BT = inputs.batch.old_logp_BT
    p_BT = logp_BT.exp()
    q_BT = old_BT.exp()
    kl_BT = q_BT * (old_BT - logp_BT) + (1 - q_BT) * ((1 - q_BT + 1e-8) / (1 - p_BT + 1e-8)).log()
    fell_BT = (p_BT < q_BT) & (kl_BT > settings.clip_low)
    rose_BT = (p_BT > q_BT) & (kl_BT > settings.clip_high)
    return _masked_by_divergence(inputs, fell_BT, rose_BT)


def _moved_along_advantage(inputs: LossInputs, fell_BT: "Tensor", rose_BT: "Tensor") -> "Tensor":
    """[B, T], the active tokens that fell with A < 0 or rose with A > 0."""
    adv_BT = inputs.batch.adv_BT
    return inputs.active_BT & ((fell_BT & (adv_BT < 0)) | (rose_BT & (adv_BT > 0)))


def _masked_by_divergence(
    inputs: LossInputs, fell_BT: "Tensor", rose_BT: "Tensor"
) -> "tuple[Tensor, Metrics]":
    """sg(min(r, 20)) A log pi, without the tokens that fell too far with A < 0 or rose too far with
    A > 0.
    """
    adv_BT = inputs.batch.adv_BT
    clipped_BT = _moved_along_advantage(inputs, fell_BT, rose_BT)
    weight_BT = inputs.ratio_BT.detach().clamp(max=DPPO_LARGEST_RATIO).masked_fill(clipped_BT, 0.0)
    logp_BT = inputs.logp_BT.masked_fill(~inputs.active_BT, 0.0)
    return weight_BT * adv_BT * logp_BT, {CLIP_FRACTION: clipped_BT}


DPPO_TV = Loss(
    name="dppo-tv",
    source="2602.04879 eq. 12-13",
    formula=(
        "sg(min(rho, 20)) A log pi, unless pi - q > clip_high with A > 0, or q - pi > clip_low with"
        " A < 0"
    ),
    term=dppo_tv,
)
DPPO_KL = Loss(
    name="dppo-kl",
    source="2602.04879 eq. 12, 14",
    formula="`dppo-tv`'s by q log(q / pi) + (1 - q) log((1 - q) / (1 - pi))",
    term=dppo_kl,
)


def fspo(inputs: LossInputs, settings: Common) -> "tuple[Tensor, Metrics]":
    """min(W A, clip(W) A) on the sequence's whole ratio W, in a range that grows with the root of
    the length: FSPO, 2509.09177, the length-fair clip without its drift term."""
    adv_BT = inputs.batch.adv_BT
    active_BT = inputs.active_BT
    root_B1 = inputs.batch.mask_BT.sum(dim=1, keepdim=True, dtype=inputs.log_ratio_BT.dtype).sqrt()
    log_whole_BT = spread_sum(inputs.log_ratio_BT).masked_fill(~active_BT, 0.0)
    low_B1 = -settings.clip_low * root_B1
    high_B1 = settings.clip_high * root_B1
    held_BT = log_whole_BT.maximum(low_B1).minimum(high_B1)
    whole_BT = log_whole_BT.clamp(max=LARGEST_LOG_RATIO).exp()
    value_BT = (whole_BT * adv_BT).minimum(held_BT.clamp(max=LARGEST_LOG_RATIO).exp() * adv_BT)
    return value_BT, {
        CLIP_FRACTION: _moved_along_advantage(inputs, log_whole_BT < low_B1, log_whole_BT > high_B1)
    }


FSPO = Loss(
    name="fspo",
    source="2509.09177",
    formula="min(W A, clip(W) A) within exp(-clip_low sqrt(L)), exp(clip_high sqrt(L))",
    term=fspo,
    clips="whole responses",
    ratio="own",
    reinforce_on_policy=False,
)


def gmpo(inputs: LossInputs, settings: Common) -> "tuple[Tensor, Metrics]":
    """exp(mean of c_t) A, c_t = l_t clipped on the side of A: GMPO, 2507.20673 eq. 4."""
    mask_BT = inputs.batch.mask_BT
    adv_BT = inputs.batch.adv_BT
    bounds = math.log1p(-settings.clip_low), math.log1p(settings.clip_high)
    l_BT = inputs.log_ratio_BT.masked_fill(~inputs.active_BT, 0.0)
    clamped_BT = l_BT.clamp(*bounds)
    c_BT = l_BT.minimum(clamped_BT).where(adv_BT > 0, l_BT.maximum(clamped_BT))
    ratio_BT = sequence_mean(c_BT, mask_BT).clamp(max=LARGEST_LOG_RATIO).exp().expand_as(l_BT)
    clipped_BT = _moved_along_advantage(inputs, l_BT < bounds[0], l_BT > bounds[1])
    return ratio_BT * adv_BT, {CLIP_FRACTION: clipped_BT}


GMPO = Loss(
    name="gmpo",
    source="2507.20673 eq. 4",
    formula=(
        "exp(mean of c_t) A, c_t = l_t held within log(1 - clip_low), log(1 + clip_high) on the"
        " side of A"
    ),
    term=gmpo,
    clips="tokens, before the mean",
    ratio="sequence",
    differs="a mismatch correction's factor is each token's; verl takes the geometric mean",
)

BAPO_STEP = 0.05
"""How far BAPO's upper bound moves at a time."""

BAPO_KEY = own_key("bapo")


class Bapo(Common):
    """BAPO's keys: how far the range may widen, and the share that positive terms should reach."""

    bapo_clip_low: Annotated[float, BAPO_KEY] = Field(
        0.1,
        gt=0,
        lt=1,
        description="the lower bound ends at 1 - this",
    )
    bapo_clip_high: Annotated[float, BAPO_KEY] = Field(
        2.0,
        gt=0,
        le=HUGE,
        description="the upper bound ends at 1 + this",
    )
    bapo_share: Annotated[float, BAPO_KEY] = Field(
        0.5, gt=0, lt=1, description="share of the loss that tokens with A > 0 should have"
    )


def balanced(settings: Bapo, batch: Batch, size: Callable[[Batch, Bapo], float]) -> Bapo:
    """The settings with the range of this whole mini-batch: BAPO, 2510.18927 eq. 8, algorithm 1.

    The range changes if terms with A > 0 have less than bapo_share of the loss. Then the lower
    bound becomes 1 - bapo_clip_low, and the upper bound rises until they have their share, to 1 +
    bapo_clip_high at most. The paper's code raises the lower bound in steps; that does not change
    the size of clipped terms. `size` is the size of a batch's loss at settings.
    """
    rising = replace(batch, adv_BT=batch.adv_BT.clip(0))
    falling = replace(batch, adv_BT=batch.adv_BT.clip(max=0))

    def has_its_share(range_settings: Bapo) -> bool:
        return (
            size(rising, range_settings) * (1 - settings.bapo_share)
            >= size(falling, range_settings) * settings.bapo_share
        )

    if has_its_share(settings):
        return settings
    steps = math.ceil((settings.bapo_clip_high - settings.clip_high) / BAPO_STEP - 1e-9)
    ends = [
        *(settings.clip_high + BAPO_STEP * step for step in range(steps)),
        settings.bapo_clip_high,
    ]
    wider = [settings.replace(clip_low=settings.bapo_clip_low, clip_high=end) for end in ends]
    return next(filter(has_its_share, wider), wider[-1])


def bapo(inputs: LossInputs, settings: Bapo) -> "tuple[Tensor, Metrics]":
    """PPO's clip in the range of `balanced`."""
    value_BT, metrics = clipped(inputs, settings)
    metrics["bapo_clip_low"] = settings.clip_low
    metrics["bapo_clip_high"] = settings.clip_high
    return value_BT, metrics


def _refused(settings: Bapo) -> Iterator[str]:
    """The message for bounds that would have to move down."""
    low = settings.bapo_clip_low
    high = settings.bapo_clip_high
    if not (low <= settings.clip_low and settings.clip_high <= high):
        yield (
            f"bapo_clip_low = {low:g}, bapo_clip_high = {high:g}: bounds move up, from 1 - clip_low"
            f" = {1 - settings.clip_low:g} and 1 + clip_high = {1 + settings.clip_high:g}; give"
            " bapo_clip_low <= clip_low and bapo_clip_high >= clip_high"
        )


BAPO = Loss(
    name="bapo",
    source="2510.18927 eq. 8; WooooDyy/BAPO, `recipe/bapo/policy_loss.py`",
    formula="`clip`'s in a range that moves with every mini-batch",
    term=bapo,
    settings=Bapo,
    prepare=balanced,
    refuses=_refused,
    differs=(
        "terms of the whole mini-batch, not each micro-batch; algorithm 1 moves the upper bound"
        " first; no dual clip at 3"
    ),
)
