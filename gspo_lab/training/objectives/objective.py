"""The surrogate objectives. GRPO, GSPO and GSPO-token differ in one line of `ratios.py`.

Shapes: B responses, T response tokens (padded); everything is [B, T]. Only tensor methods: this
imports without torch. A mismatch, at equal weights, is d_t = log pi_old(y_t) of the trainer - log
mu(y_t) of the sampler.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.records.update import CLIP_FRACTION
from gspo_lab.training.objectives.losses import LOSSES, Common, Loss, LossInputs, Metrics
from gspo_lab.training.objectives.losses.loss import LARGEST_LOG_RATIO
from gspo_lab.training.objectives.ratios import RATIOS, Batch, sequence_mean, single_precision

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Surrogate:
    """`loss` is a scalar to minimise; the rest has no gradient. `log_ratio_BT` is l_t, `ratio_BT`
    the level's ratio (1 where A = 0), and `metrics` what a `Recorder` reads.
    """

    loss: "Tensor"
    log_ratio_BT: "Tensor"
    ratio_BT: "Tensor"
    metrics: Metrics

    @property
    def clipped_BT(self) -> "Tensor":
        """[B, T], True where the policy loss takes a token's gradient."""
        clipped_BT: Tensor = self.metrics.get(CLIP_FRACTION, self.ratio_BT != self.ratio_BT)
        return clipped_BT


def prepared(
    logp_BT: "Tensor", batch: Batch, settings: Common, loss: Loss[Any]
) -> "tuple[Common, Tensor | None]":
    """What a loss makes of one whole mini-batch under the log-probs `logp_BT`, which have no
    gradient: its settings for it, and the tokens that it selects, if it does."""

    def size(part: Batch, candidate: Common) -> float:
        return abs(
            float(
                surrogate(
                    logp_BT, part, candidate.replace(kl_coef=0.0, entropy_coef=0.0), loss
                ).loss
            )
        )

    logp_BT = single_precision(logp_BT)
    settings = settings if loss.prepare is None else loss.prepare(settings, batch, size)
    return settings, None if loss.select is None else loss.select(
        settings, loss_inputs(logp_BT, batch, settings)
    )


def loss_inputs(logp_BT: "Tensor", batch: Batch, settings: Common) -> LossInputs:
    """How far the policy with the log-probs `logp_BT` moved on a batch, by the ratio of the
    settings' level.
    """
    log_ratio_BT = (logp_BT - batch.old_logp_BT).masked_fill(~batch.mask_BT, 0.0)
    level = RATIOS[settings.importance_sampling_level]
    log_r_BT = level.log_ratio(log_ratio_BT, batch.mask_BT).expand_as(log_ratio_BT)
    # A = 0 adds nothing, not even where its ratio overflows: its gradient must not become zero
    # times infinity.
    active_BT = batch.mask_BT & (batch.adv_BT != 0)
    ratio_BT = log_r_BT.masked_fill(~active_BT, 0.0).clamp(max=LARGEST_LOG_RATIO).exp()
    return LossInputs(batch, logp_BT, log_ratio_BT, ratio_BT, active_BT)


def surrogate(
    logp_BT: "Tensor",
    batch: Batch,
    settings: Common,
    loss: Loss[Any] | None = None,
    entropy_BT: "Tensor | None" = None,
) -> Surrogate:
    """The loss of a mini-batch, or of a part of one, under the current policy's log-probs
    `logp_BT`.

    With the default policy loss and aggregation it is minus the mean over responses of the mean
    over tokens of min(r A, clip(r) A): arXiv 2507.18071 eq. 2 (GRPO), 5-7 (GSPO), 13-14
    (GSPO-token). `loss` is the policy loss where it is not one of the lab's. `entropy_BT` are the
    policy's entropies, given only with an entropy coefficient alpha; the loss is then L - alpha H,
    as in 2505.22617 section 4.1. A loss that selects tokens, and was told of none, takes the batch
    for the whole mini-batch."""
    loss = loss or LOSSES[settings.policy_loss]
    logp_BT = single_precision(logp_BT)
    inputs = loss_inputs(logp_BT, batch, settings)
    if loss.select is not None and batch.selected_BT is None:
        inputs = replace(inputs, batch=replace(batch, selected_BT=loss.select(settings, inputs)))
    term_BT, metrics = loss.term(inputs, settings)
    if settings.weighs_tokens:
        weight_BT = token_weights(logp_BT, batch, settings)
        term_BT = term_BT * weight_BT
        metrics["correction_weight_mean"] = weight_BT
        metrics["correction_masked_tokens"] = weight_BT == 0
    if settings.kl_coef > 0 and batch.ref_logp_BT is not None:
        kl_BT = kl_estimate(logp_BT, batch, settings)
        term_BT = term_BT - settings.kl_coef * kl_BT
        metrics["kl"] = kl_BT.detach().sum()
    if settings.entropy_coef > 0:
        assert entropy_BT is not None
        term_BT = term_BT + settings.entropy_coef * single_precision(entropy_BT)

    loss_of_part = -aggregate(term_BT, batch, settings)
    return Surrogate(loss_of_part, inputs.log_ratio_BT.detach(), inputs.ratio_BT.detach(), metrics)


def aggregate(term_BT: "Tensor", batch: Batch, settings: Common) -> "Tensor":
    """One number from token terms (0 off the mask), with the denominators of the whole mini-batch.

    `seq-mean-token-mean` is both papers'; `token-mean` is one mean over the mini-batch's tokens,
    which is how verl and TRL read DAPO (2503.14476 eq. 8 has one per group); `constant` is Dr.
    GRPO's (2503.20783). A response without tokens counts as a response whose term is 0.
    """
    aggregation = settings.aggregation
    if aggregation == "token-mean":
        return term_BT.sum() / max(batch.tokens, 1)
    if aggregation == "seq-mean-token-mean":
        mean_B1: Tensor = sequence_mean(term_BT, batch.mask_BT)
        return mean_B1[:, 0].sum() / batch.responses
    if aggregation == "seq-mean-token-sum":
        return term_BT.sum() / batch.responses
    return term_BT.sum() / (batch.responses * settings.aggregation_constant)


LARGEST_KL_LOG_RATIO = 40.0
"""Behind it k3 goes on along its tangent: e^40 squared, and summed over a gradient, is still finite
in float32.
"""


def kl_estimate(logp_BT: "Tensor", batch: Batch, settings: Common) -> "Tensor":
    """Each token's estimate of KL(pi, pi_ref), by `settings.kl_estimate`.

    `batch` needs `ref_logp_BT`.
    """
    assert batch.ref_logp_BT is not None
    d_BT = (batch.ref_logp_BT - logp_BT).masked_fill(~batch.mask_BT, 0.0)
    if settings.kl_estimate == "k3":
        return k3(d_BT)
    return weighted_k3(d_BT, (logp_BT - batch.old_logp_BT).masked_fill(~batch.mask_BT, 0.0))


def weighted_k3(d_BT: "Tensor", log_ratio_BT: "Tensor") -> "Tensor":
    """w (exp(d) - d - 1), w = pi / pi_old: DeepSeek-V3.2's unbiased estimate, arXiv 2512.02556 eq.
    7.

    w exp(d) is pi_ref / pi_old and has no gradient. The other part, -w (d + 1), has the gradient
    -w d of log pi. Its mean over tokens of the old policy is the gradient of KL(pi, pi_ref). A
    ratio beyond e^38 has no gradient.
    """
    far_BT = log_ratio_BT.detach() > LARGEST_LOG_RATIO
    near_d_BT = d_BT.where(~far_BT, d_BT.detach())
    known_BT = (log_ratio_BT + d_BT).detach().clamp(max=LARGEST_LOG_RATIO).exp()
    return known_BT - log_ratio_BT.clamp(max=LARGEST_LOG_RATIO).exp() * (near_d_BT + 1)


def k3(d_BT: "Tensor") -> "Tensor":
    """exp(d) - d - 1 of http://joschu.net/blog/kl-approx.html, d = log pi_ref - log pi; a line
    behind d = 40.
    """
    near_BT = d_BT.clamp(max=LARGEST_KL_LOG_RATIO)
    # Cut off at 0: the slope of 2e17 must not reach the near part's gradient, not even where it
    # would cancel.
    beyond_BT = (d_BT - LARGEST_KL_LOG_RATIO).clamp(min=0) * math.expm1(LARGEST_KL_LOG_RATIO)
    return near_BT.exp() - near_BT - 1 + beyond_BT


LARGEST_LOG_WEIGHT = 80.0
"""e^80 is still finite in float32; what is larger lies outside every range."""


def token_weights(logp_BT: "Tensor", batch: Batch, settings: Common) -> "Tensor":
    """[B, T]: the product of all factors of a token's term; 1 everywhere where the settings have
    none.
    """
    weight_BT = mismatch_weight(batch, settings)
    if settings.off_policy_mask is None:
        return weight_BT
    return weight_BT.masked_fill(off_policy(logp_BT, batch, settings.off_policy_mask), 0.0)


def off_policy(logp_BT: "Tensor", batch: Batch, limit: float) -> "Tensor":
    """[B, T], True where A < 0 in a response whose mean of log mu - log pi is above `limit`, in
    nats per token: arXiv 2512.02556 eq. 9, with the sampler's mu as pi_old, TRL's
    `off_policy_mask_threshold`."""
    assert batch.sampler_logp_BT is not None
    moved_BT = (batch.sampler_logp_BT - logp_BT.detach()).masked_fill(~batch.mask_BT, 0.0)
    masked_BT: Tensor = (batch.adv_BT < 0) & (sequence_mean(moved_BT, batch.mask_BT) > limit)
    return masked_BT


def mismatch_weight(batch: Batch, settings: Common) -> "Tensor":
    """[B, T] detached factors of the token terms; 1 everywhere without a correction.

    With k_t = exp(d_t), K = prod k_t over the response and a range [low, high]:

        tis              k_t limited to the range             Yao et al. 2025, fengyao.notion.site
        icepop           k_t inside the range, else 0         arXiv 2510.18855
        sequence-mask    K inside the range, else 0           MIS, Liu, Li et al., richardli.xyz
        geometric-mask   1 where K^(1/L) is inside, else 0    Geo-RS of the same
    """
    if settings.mismatch_correction == "none":
        return batch.adv_BT.new_ones(batch.adv_BT.shape)
    assert batch.sampler_logp_BT is not None
    assert settings.mismatch_low is not None
    assert settings.mismatch_high is not None
    mask_BT = batch.mask_BT
    d_BT = (batch.old_logp_BT - batch.sampler_logp_BT).detach().masked_fill(~mask_BT, 0.0)
    if settings.mismatch_correction in ("sequence-mask", "geometric-mask"):
        d_BT = d_BT.sum(dim=1, keepdim=True).expand_as(d_BT)
    if settings.mismatch_correction == "geometric-mask":
        d_BT = d_BT / mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
    weight_BT = d_BT.clamp(max=LARGEST_LOG_WEIGHT).exp()
    if settings.mismatch_correction == "tis":
        return weight_BT.clamp(settings.mismatch_low, settings.mismatch_high)
    inside_BT = (weight_BT >= settings.mismatch_low) & (weight_BT <= settings.mismatch_high)
    if settings.mismatch_correction == "geometric-mask":
        return inside_BT.to(weight_BT.dtype)
    return weight_BT.masked_fill(~inside_BT, 0.0)


def mismatch_measures(d_NT: "Tensor", mask_NT: "Tensor") -> JsonObject:
    """The fields of a StepRecord that follow from d at the tokens of `mask_NT`; nothing where it
    marks none.
    """
    import numpy as np

    mask = mask_NT.cpu().numpy()
    mask = mask[mask.any(axis=1)]
    if not len(mask):
        return {}
    d_NT64 = np.where(mask, d_NT[mask_NT.any(dim=1)].double().cpu().numpy(), 0.0)
    d_X = d_NT64[mask]
    length_N = mask.sum(axis=1)
    total_N = d_NT64.sum(axis=1)
    mean_N = total_N / length_N
    with np.errstate(over="ignore"):
        k3 = float((np.exp(d_X) - 1 - d_X).mean())
    return {
        "mismatch_k1": float(-d_X.mean()),
        "mismatch_k3": k3,
        "mismatch_abs_mean": float(np.abs(d_X).mean()),
        "mismatch_abs_max": float(np.abs(d_X).max()),
        "mismatch_outside_2": float((np.abs(d_X) > math.log(2)).mean()),
        "mismatch_std_tokens": float(d_X.std()),
        "mismatch_std_responses": float(mean_N.std()),
        "mismatch_std_independent": float(d_X.std() * np.sqrt((1 / length_N).mean())),
        "mismatch_abs_max_responses": float(np.abs(mean_N).max()),
        "mismatch_outside_2_responses": float((np.abs(total_N) > math.log(2)).mean()),
    }
