"""The numbers recorded of every mini-batch's ratios: what was clipped, what the other rule would have clipped, how far
the policy moved. Definitions: `gspo_lab/records.py` and docs/metrics.md. Shapes as in objective.py.
"""

from typing import TYPE_CHECKING, Any

from gspo_lab.objectives.objective import binds, sequence_mean
from gspo_lab.objectives.presets import RULES, ObjectiveSettings
from gspo_lab.records import BAND_SCALES, QUANTILES

if TYPE_CHECKING:
    from torch import Tensor

Bands = dict[str, tuple[float, float]]


def ratio_measures(
    log_ratio_BT: "Tensor", mask_BT: "Tensor", adv_BT: "Tensor", settings: ObjectiveSettings, bands: Bands
) -> dict[str, Any]:
    """The fields of an UpdateRecord that follow from l_t, the mask and the advantages of one whole mini-batch.

    `log_ratio_BT` is l_t, 0 off the mask; `bands` are the reference ranges of the two rules.
    """
    length_B = mask_BT.sum(dim=1)
    tokens = int(length_B.sum())
    responses = mask_BT.shape[0]
    mean_BT = sequence_mean(log_ratio_BT, mask_BT)
    ratio_BT = {"grpo": log_ratio_BT.exp(), "gspo": mean_BT.exp()}
    own = RULES[settings.importance_sampling_level]

    clipped_BT = binds(ratio_BT[own], adv_BT, mask_BT, settings.clip_low, settings.clip_high)
    clipped_B = clipped_BT.sum(dim=1)
    clipped = int(clipped_B.sum())
    high = int((clipped_BT & (adv_BT > 0)).sum())
    active_BT = mask_BT & (adv_BT != 0)
    active = int(active_BT.sum())
    dual = 0
    if settings.dual_clip is not None:
        dual = int((mask_BT & (adv_BT < 0) & (ratio_BT[own] > settings.dual_clip)).sum())

    l_N = log_ratio_BT[mask_BT].double()
    w_N = l_N.exp()
    log_s_B = mean_BT[:, 0][length_B > 0].double()
    s_B = log_s_B.exp()
    negative_N = ratio_BT["grpo"][mask_BT & (adv_BT < 0)]
    return {
        "responses": responses,
        "response_tokens": tokens,
        "active_tokens": active,
        "clipped_tokens": clipped,
        "clip_fraction_tokens": clipped / tokens,
        "clip_fraction_tokens_high": high / tokens,
        "clip_fraction_tokens_low": (clipped - high) / tokens,
        "clip_fraction_active_tokens": clipped / active if active else None,
        "clip_fraction_responses": float((clipped_B / length_B.clamp(min=1)).mean()),
        "clip_any_responses": float((clipped_B > 0).double().mean()),
        "would_clip_fraction_tokens_grpo": _would_clip(ratio_BT["grpo"], adv_BT, mask_BT, bands["grpo"]) / tokens,
        "would_clip_fraction_tokens_gspo": _would_clip(ratio_BT["gspo"], adv_BT, mask_BT, bands["gspo"]) / tokens,
        "dual_clip_fraction_tokens": dual / tokens if settings.dual_clip is not None else None,
        "effective_fraction_tokens": (active - clipped - dual) / tokens,
        "log_ratio_std_tokens": float(l_N.std(correction=0)),
        "log_ratio_std_responses": float(log_s_B.std(correction=0)),
        "log_ratio_max_abs": float(l_N.abs().max()),
        "log_ratio_quantiles_tokens": _quantiles(l_N),
        "log_ratio_quantiles_responses": _quantiles(log_s_B),
        "ratio_max_negative": float(negative_N.max()) if negative_N.numel() else None,
        "ess_tokens": _ess(w_N),
        "ess_responses": _ess(s_B),
        "chi2_tokens": float((w_N * w_N).mean()) - 1,
        "chi2_responses": float((s_B * s_B).mean()) - 1,
        "stale_k1": float(-l_N.mean()),
        "stale_k3": float((w_N - 1 - l_N).mean()),
        "band_counts": {rule: _band_counts(ratio_BT[rule], adv_BT, mask_BT, bands[rule]) for rule in bands},
    }


def response_detail(
    log_ratio_BT: "Tensor",
    mask_BT: "Tensor",
    adv_BT: "Tensor",
    clipped_BT: "Tensor",
    *,
    tokens: bool = False,
) -> dict[str, list[Any]]:
    """Each response's own numbers, for statistics that need more than means; with `tokens` also every l_t."""
    out: dict[str, list[Any]] = {
        "length": mask_BT.sum(dim=1).tolist(),
        "advantage": _rounded(adv_BT.masked_fill(~mask_BT, 0.0)[:, 0]),
        "sum_log_ratio": _rounded(log_ratio_BT.sum(dim=1)),
        "sum_square_log_ratio": _rounded((log_ratio_BT * log_ratio_BT).sum(dim=1)),
        "max_abs_log_ratio": _rounded(log_ratio_BT.abs().amax(dim=1)),
        "clipped_tokens": clipped_BT.sum(dim=1).tolist(),
    }
    if tokens:
        out["log_ratios"] = [_rounded(row[mask]) for row, mask in zip(log_ratio_BT, mask_BT, strict=True)]
    return out


def _would_clip(ratio_BT: "Tensor", adv_BT: "Tensor", mask_BT: "Tensor", band: tuple[float, float]) -> int:
    return int(binds(ratio_BT, adv_BT, mask_BT, *band).sum())


def _band_counts(
    ratio_BT: "Tensor", adv_BT: "Tensor", mask_BT: "Tensor", band: tuple[float, float]
) -> dict[str, list[int]]:
    # The two sides bind apart from each other, so 5 + 5 counts give every cell of the 5 x 5 grid of ranges.
    low_N = ratio_BT[mask_BT & (adv_BT < 0)]
    high_N = ratio_BT[mask_BT & (adv_BT > 0)]
    return {
        "low": [int((low_N < 1 - scale * band[0]).sum()) for scale in BAND_SCALES],
        "high": [int((high_N > 1 + scale * band[1]).sum()) for scale in BAND_SCALES],
    }


def _quantiles(x_N: "Tensor") -> list[float]:
    # By sorting, not Tensor.quantile: that refuses more than 16 million numbers and needs a tensor of levels.
    sorted_N = x_N.sort().values
    last = sorted_N.numel() - 1
    positions = [round(level * last) for level in QUANTILES]
    return _rounded(sorted_N[positions])


def _rounded(x_N: "Tensor") -> list[float]:
    """Seven significant digits: float32's own, and half the bytes."""
    return [float(f"{value:.7g}") for value in x_N.tolist()]


def _ess(ratio_N: "Tensor") -> float:
    total = ratio_N.sum()
    return float(total * total / ((ratio_N * ratio_N).sum() * ratio_N.numel()))
