"""What keeps a policy near the one that sampled: the clip of GRPO and GSPO, and what other papers put in its place.

Shapes: B responses, T response tokens (padded); everything is [B, T]. Each loss says which ratio it reads, what a
token adds to the objective and, where it takes gradients away, from which tokens. Only tensor methods are used, so that
this file imports without torch. docs/reference/objectives.md has the formulas side by side.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gspo_lab.objectives.batch import Batch
from gspo_lab.objectives.clipping import binds
from gspo_lab.objectives.presets import ObjectiveSettings, PolicyLoss
from gspo_lab.objectives.ratios import sequence_mean

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_LOG_RATIO = 38.0
"""A ratio's gradient has its size, and its norm sums squares: e^76 is finite in float32. What is larger is cut off
here and has no gradient: no infinity, no NaN, no update that is lost to one token."""

DPPO_LARGEST_RATIO = 20.0
"""Where DPPO truncates its weight, as verl does (`clip_ratio_c`)."""

DCPO_LARGEST_RATIO = 10.0
"""DCPO's highest upper bound, as in its authors' code (lime-RL/DCPO, `get_clip_low_high`)."""

SMALLEST_LOG_RATIO = -20.0
"""What a gate is divided by has this logarithm at least."""

VESPO_LARGEST, VESPO_SMALLEST = 20.0, math.log(1e-8)
"""VESPO's own limits of l_t, on both sides, and of log W, as in TRL's reading of its code."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What a policy loss reads: the mini-batch and how far the policy moved on it.

    `log_ratio_BT` is l_t (0 off the mask), `ratio_BT` the ratio of the level (1 where A = 0), both with the gradient of
    `logp_BT`; `active_BT` the tokens of the mask with A != 0.
    """

    batch: Batch
    logp_BT: "Tensor"
    log_ratio_BT: "Tensor"
    ratio_BT: "Tensor"
    active_BT: "Tensor"


@dataclass(frozen=True, slots=True)
class Term:
    """What a token adds, to be maximised: `value_BT`.

    `clipped_BT` is where the loss takes a token's gradient, None for one that takes none; `dual_BT` is where the dual
    clip does, None without one. `gate_BT` is what a loss without a clip leaves of the ratio's own gradient: the
    detached weight of A grad log pi, divided by the ratio.
    """

    value_BT: "Tensor"
    clipped_BT: "Tensor | None" = None
    dual_BT: "Tensor | None" = None
    gate_BT: "Tensor | None" = None


def clip(moved: Moved, settings: ObjectiveSettings) -> Term:
    """min(r A, clip(r, 1 - clip_low, 1 + clip_high) A): arXiv 1707.06347 eq. 7; the dual clip is 1912.09729's."""
    ratio_BT, adv_BT, mask_BT = moved.ratio_BT, moved.batch.adv_BT, moved.batch.mask_BT
    clipped_ratio_BT = ratio_BT.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    value_BT = (ratio_BT * adv_BT).minimum(clipped_ratio_BT * adv_BT)
    low_BT, high_BT = binds(ratio_BT.detach(), adv_BT, mask_BT, settings.clip_low, settings.clip_high)
    if (cap := settings.dual_clip) is None:
        return Term(value_BT, low_BT | high_BT)
    dual_BT = mask_BT & (adv_BT < 0) & (ratio_BT.detach() > cap)
    return Term(value_BT.where(~dual_BT, cap * adv_BT), low_BT | high_BT, dual_BT)


def dcpo(moved: Moved, settings: ObjectiveSettings) -> Term:
    """The same with bounds that widen where the old policy gave a token a small probability q: arXiv 2509.02333.

    .5 + .5 sqrt(max(1 - 4 clip_low / q, 0)) and .5 + .5 sqrt(1 + 4 clip_high / q), at most 10; without its smoothed
    advantages and its dual clip.
    """
    ratio_BT, adv_BT = moved.ratio_BT, moved.batch.adv_BT
    rarity_BT = (-moved.batch.old_logp_BT.detach()).clamp(max=LARGEST_LOG_RATIO).exp()
    low_BT = 0.5 + 0.5 * (1 - 4 * settings.clip_low * rarity_BT).clamp(min=0).sqrt()
    high_BT = (0.5 + 0.5 * (1 + 4 * settings.clip_high * rarity_BT).sqrt()).clamp(max=DCPO_LARGEST_RATIO)
    value_BT = (ratio_BT * adv_BT).minimum(ratio_BT.maximum(low_BT).minimum(high_BT) * adv_BT)
    under_BT, over_BT = binds(ratio_BT.detach(), adv_BT, moved.batch.mask_BT, 1 - low_BT, high_BT - 1)
    return Term(value_BT, under_BT | over_BT)


def gmpo(moved: Moved, settings: ObjectiveSettings) -> Term:
    """exp(mean of c_t) A, c_t = l_t clipped on the side of A: the clip of a token before the mean. arXiv 2507.20673."""
    mask_BT, adv_BT = moved.batch.mask_BT, moved.batch.adv_BT
    bounds = math.log1p(-settings.clip_low), math.log1p(settings.clip_high)
    l_BT = moved.log_ratio_BT.masked_fill(~moved.active_BT, 0.0)
    clamped_BT = l_BT.clamp(*bounds)
    c_BT = l_BT.minimum(clamped_BT).where(adv_BT > 0, l_BT.maximum(clamped_BT))
    ratio_BT = sequence_mean(c_BT, mask_BT).clamp(max=LARGEST_LOG_RATIO).exp().expand_as(l_BT)
    low_BT, high_BT = (l_BT < bounds[0]) & (adv_BT < 0), (l_BT > bounds[1]) & (adv_BT > 0)
    return Term(ratio_BT * adv_BT, (low_BT | high_BT) & moved.active_BT)


def fspo(moved: Moved, settings: ObjectiveSettings) -> Term:
    """The clip on the sequence's whole ratio W, within exp(-clip_low sqrt(L)), exp(clip_high sqrt(L)): 2509.09177."""
    adv_BT, active_BT = moved.batch.adv_BT, moved.active_BT
    root_B1 = moved.batch.mask_BT.sum(dim=1, keepdim=True, dtype=moved.log_ratio_BT.dtype).sqrt()
    log_whole_BT = _spread_sum(moved.log_ratio_BT).masked_fill(~active_BT, 0.0)
    low_B1, high_B1 = -settings.clip_low * root_B1, settings.clip_high * root_B1
    held_BT = log_whole_BT.maximum(low_B1).minimum(high_B1)
    whole_BT = log_whole_BT.clamp(max=LARGEST_LOG_RATIO).exp()
    value_BT = (whole_BT * adv_BT).minimum(held_BT.clamp(max=LARGEST_LOG_RATIO).exp() * adv_BT)
    under_BT, over_BT = (log_whole_BT < low_B1) & (adv_BT < 0), (log_whole_BT > high_B1) & (adv_BT > 0)
    return Term(value_BT, ((under_BT | over_BT) & active_BT).detach())


def dppo_tv(moved: Moved, settings: ObjectiveSettings) -> Term:
    """sg(min(w, 20)) A log pi where the token's probability moved along A by no more than clip_low or clip_high.

    DPPO's binary total variation, arXiv 2602.04879; against the sampler where `update.old_logprobs = "sampler"`.
    """
    moved_BT = moved.logp_BT.detach().exp() - moved.batch.old_logp_BT.exp()
    return _masked(moved, moved_BT < -settings.clip_low, moved_BT > settings.clip_high)


def dppo_kl(moved: Moved, settings: ObjectiveSettings) -> Term:
    """The same with the KL divergence of the two-way choice, this token or another, as the measure of the move."""
    logp_BT, old_BT = moved.logp_BT.detach().masked_fill(~moved.batch.mask_BT, 0.0), moved.batch.old_logp_BT
    p_BT, q_BT = logp_BT.exp(), old_BT.exp()
    kl_BT = q_BT * (old_BT - logp_BT) + (1 - q_BT) * ((1 - q_BT + 1e-8) / (1 - p_BT + 1e-8)).log()
    fell_BT, rose_BT = (p_BT < q_BT) & (kl_BT > settings.clip_low), (p_BT > q_BT) & (kl_BT > settings.clip_high)
    return _masked(moved, fell_BT, rose_BT)


def cispo(moved: Moved, settings: ObjectiveSettings) -> Term:
    """sg(clip(r, 1 - clip_low, 1 + clip_high)) A log pi: no token loses its gradient. arXiv 2506.13585 eq. 4-5."""
    weight_BT = moved.ratio_BT.detach().clamp(1 - settings.clip_low, 1 + settings.clip_high)
    return _weighted(moved, weight_BT)


def reinforce(moved: Moved, settings: ObjectiveSettings) -> Term:
    """A log pi: no ratio, and so no correction for a policy that has moved since it sampled."""
    return _weighted(moved, _all(moved, 1.0))


def vespo(moved: Moved, settings: ObjectiveSettings) -> Term:
    """sg(W^k exp(lambda (1 - W))) A log pi, W the whole sequence's ratio, k and lambda by the sign of A: 2602.10693."""
    up_BT = moved.batch.adv_BT >= 0
    l_BT = moved.log_ratio_BT.detach().clamp(-VESPO_LARGEST, VESPO_LARGEST)
    log_whole_BT = _spread_sum(l_BT).clamp(VESPO_SMALLEST, VESPO_LARGEST)
    gain_BT = settings.vespo_lambda_positive * (1 - log_whole_BT.exp()) + settings.vespo_k_positive * log_whole_BT
    loss_BT = settings.vespo_lambda_negative * (1 - log_whole_BT.exp()) + settings.vespo_k_negative * log_whole_BT
    return _weighted(moved, gain_BT.where(up_BT, loss_BT).clamp(max=LARGEST_LOG_RATIO).exp())


def sapo(moved: Moved, settings: ObjectiveSettings) -> Term:
    """(4 / tau) sigmoid(tau (r - 1)) A, tau by the sign of A; it leaves sech^2(tau (r - 1) / 2). arXiv 2511.20347."""
    adv_BT, ratio_BT = moved.batch.adv_BT, moved.ratio_BT
    tau_BT = _all(moved, settings.sapo_tau_positive).where(adv_BT > 0, _all(moved, settings.sapo_tau_negative))
    risen_BT = (tau_BT * (ratio_BT - 1)).sigmoid()
    gate_BT = (4 * risen_BT * (1 - risen_BT)).detach()
    return Term(risen_BT * (4 / tau_BT) * adv_BT, gate_BT=gate_BT)


def pspo(moved: Moved, settings: ObjectiveSettings) -> Term:
    """((1 - a) r + a) A, a = pspo_smoothing: probabilities smoothed toward the old ones. arXiv 2509.21282."""
    kept = 1 - settings.pspo_smoothing
    value_BT = (kept * moved.ratio_BT + settings.pspo_smoothing) * moved.batch.adv_BT
    return Term(value_BT, gate_BT=_all(moved, kept))


POLICY_LOSSES: dict[PolicyLoss, Callable[[Moved, ObjectiveSettings], Term]] = {
    "clip": clip,
    "dcpo": dcpo,
    "bapo": clip,  # in the range that `balance` finds for each mini-batch
    "gmpo": gmpo,
    "fspo": fspo,
    "dppo-tv": dppo_tv,
    "dppo-kl": dppo_kl,
    "cispo": cispo,
    "reinforce": reinforce,
    "vespo": vespo,
    "sapo": sapo,
    "pspo": pspo,
}


def _all(moved: Moved, value: float) -> "Tensor":
    """The same number at every token."""
    return moved.ratio_BT.new_full(moved.ratio_BT.shape, value)


def _spread_sum(x_BT: "Tensor") -> "Tensor":
    """A response's sum, at each of its tokens."""
    return x_BT.sum(dim=1, keepdim=True).expand_as(x_BT)


def _weighted(moved: Moved, weight_BT: "Tensor") -> Term:
    """weight A log pi, the weight without gradient."""
    logp_BT = moved.logp_BT.masked_fill(~moved.active_BT, 0.0)
    gate_BT = weight_BT / moved.ratio_BT.detach().clamp(min=math.exp(SMALLEST_LOG_RATIO))
    return Term(weight_BT * moved.batch.adv_BT * logp_BT, gate_BT=gate_BT)


def _masked(moved: Moved, fell_BT: "Tensor", rose_BT: "Tensor") -> Term:
    """sg(min(r, 20)) A log pi, without the tokens that fell too far with A < 0 or rose too far with A > 0."""
    adv_BT = moved.batch.adv_BT
    clipped_BT = moved.active_BT & ((fell_BT & (adv_BT < 0)) | (rose_BT & (adv_BT > 0)))
    weight_BT = moved.ratio_BT.detach().clamp(max=DPPO_LARGEST_RATIO).masked_fill(clipped_BT, 0.0)
    logp_BT = moved.logp_BT.masked_fill(~moved.active_BT, 0.0)
    return Term(weight_BT * adv_BT * logp_BT, clipped_BT)
