"""The numbers recorded of every mini-batch's ratios: what was clipped, what the other rule would have clipped, how far
the policy moved. Definitions: `gspo_lab/records.py` and docs/metrics.md. Shapes as in objective.py.

In numpy, on one copy in main memory: sixty small numbers cost a fifth of what they cost as tensor operations, and a GPU
is waited for once.
"""

import math
from typing import TYPE_CHECKING, Any

from gspo_lab.objectives.presets import RULES, ObjectiveSettings
from gspo_lab.records import BAND_SCALES, QUANTILES

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    Floats = npt.NDArray[np.float64]
    Flags = npt.NDArray[np.bool_]

Bands = dict[str, tuple[float, float]]


def ratio_measures(
    log_ratio_BT: "Tensor", mask_BT: "Tensor", adv_BT: "Tensor", settings: ObjectiveSettings, bands: Bands
) -> dict[str, Any]:
    """The fields of an UpdateRecord that follow from l_t, the mask and the advantages of one whole mini-batch.

    `log_ratio_BT` is l_t, 0 off the mask; `bands` are the reference ranges of the two rules.
    """
    import numpy as np

    mask = mask_BT.cpu().numpy()
    adv = adv_BT.cpu().numpy()
    # In the objective's own precision, so that what binds there binds here, but for the last bit at the very edge.
    l_BT = log_ratio_BT.cpu().numpy()
    length_B = mask.sum(axis=1)
    mean_B = l_BT.sum(axis=1) / np.maximum(length_B, 1).astype(l_BT.dtype)
    with np.errstate(over="ignore"):
        ratio = {"grpo": np.exp(l_BT), "gspo": np.broadcast_to(np.exp(mean_B)[:, None], l_BT.shape)}
    positive, negative = mask & (adv > 0), mask & (adv < 0)
    tokens, active = int(length_B.sum()), int(positive.sum() + negative.sum())
    own = ratio[RULES[settings.importance_sampling_level]]

    clipped_high = positive & (own > 1 + settings.clip_high)
    clipped_low = negative & (own < 1 - settings.clip_low)
    high, low = int(clipped_high.sum()), int(clipped_low.sum())
    clipped_B = (clipped_high | clipped_low).sum(axis=1)
    dual = 0 if settings.dual_clip is None else int((negative & (own > settings.dual_clip)).sum())

    l_N = np.sort(l_BT[mask].astype(np.float64))
    log_s_B = np.sort(mean_B[length_B > 0].astype(np.float64))
    with np.errstate(over="ignore", invalid="ignore"):
        w_N, s_B = np.exp(l_N), np.exp(log_s_B)
        spread = {
            "ratio_max_negative": float(ratio["grpo"][negative].max()) if negative.any() else None,
            "ess_tokens": _ess(w_N),
            "ess_responses": _ess(s_B),
            "chi2_tokens": float(w_N @ w_N) / len(w_N) - 1,
            "chi2_responses": float(s_B @ s_B) / len(s_B) - 1,
            "stale_k1": float(-l_N.mean()),
            "stale_k3": float((w_N - 1 - l_N).mean()),
        }
    counts = {rule: _band_counts(ratio[rule][negative], ratio[rule][positive], band) for rule, band in bands.items()}
    one = BAND_SCALES.index(1.0)
    would = {rule: (count["low"][one] + count["high"][one]) / tokens for rule, count in counts.items()}
    return {
        "responses": len(length_B),
        "response_tokens": tokens,
        "active_tokens": active,
        "clipped_tokens": high + low,
        "clip_fraction_tokens": (high + low) / tokens,
        "clip_fraction_tokens_high": high / tokens,
        "clip_fraction_tokens_low": low / tokens,
        "clip_fraction_active_tokens": (high + low) / active if active else None,
        "clip_fraction_responses": float((clipped_B / np.maximum(length_B, 1)).mean()),
        "clip_any_responses": float((clipped_B > 0).mean()),
        "would_clip_fraction_tokens_grpo": would["grpo"],
        "would_clip_fraction_tokens_gspo": would["gspo"],
        "dual_clip_fraction_tokens": dual / tokens if settings.dual_clip is not None else None,
        "effective_fraction_tokens": (active - high - low - dual) / tokens,
        "log_ratio_std_tokens": float(l_N.std()),
        "log_ratio_std_responses": float(log_s_B.std()),
        "log_ratio_max_abs": float(np.abs(l_N).max()),
        "log_ratio_quantiles_tokens": _quantiles(l_N),
        "log_ratio_quantiles_responses": _quantiles(log_s_B),
        **spread,
        "band_counts": counts,
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
        "advantage": _rounded(adv_BT.masked_fill(~mask_BT, 0.0)[:, 0].tolist()),
        "sum_log_ratio": _rounded(log_ratio_BT.sum(dim=1).tolist()),
        "sum_square_log_ratio": _rounded((log_ratio_BT * log_ratio_BT).sum(dim=1).tolist()),
        "max_abs_log_ratio": _rounded(log_ratio_BT.abs().amax(dim=1).tolist()),
        "clipped_tokens": clipped_BT.sum(dim=1).tolist(),
    }
    if tokens:
        out["log_ratios"] = [_rounded(row[mask].tolist()) for row, mask in zip(log_ratio_BT, mask_BT, strict=True)]
    return out


def _band_counts(low_N: "Floats", high_N: "Floats", band: tuple[float, float]) -> dict[str, list[int]]:
    # The two sides bind apart from each other, so 5 + 5 counts give every cell of the 5 x 5 grid of ranges.
    import numpy as np

    below = np.array([1 - scale * band[0] for scale in BAND_SCALES], dtype=low_N.dtype)
    above = np.array([1 + scale * band[1] for scale in BAND_SCALES], dtype=high_N.dtype)
    return {
        "low": np.searchsorted(np.sort(low_N), below, side="left").tolist(),
        "high": (len(high_N) - np.searchsorted(np.sort(high_N), above, side="right")).tolist(),
    }


def _quantiles(sorted_N: "Floats") -> list[float | None]:
    last = len(sorted_N) - 1
    return _rounded([float(sorted_N[round(level * last)]) for level in QUANTILES])


def _rounded(values: list[float]) -> list[float | None]:
    """Seven significant digits, float32's own, and half the bytes; None for what is not finite."""
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values]


def _ess(ratio_N: "Floats") -> float:
    total = float(ratio_N.sum())
    return total * total / (float(ratio_N @ ratio_N) * len(ratio_N))
