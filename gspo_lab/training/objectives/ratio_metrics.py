"""The numbers recorded of every mini-batch's ratios: what was clipped, what each rule would have
clipped, how far the policy moved. Definitions: `gspo_lab/recording/records/` and
docs/reference/metrics.md. Shapes as in objective.py.

In numpy, on one copy in main memory: sixty small numbers cost a fifth of what they cost as tensor
operations, and a GPU is waited for once.
"""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gspo_lab.common.errors import LabError
from gspo_lab.recording.records import BAND_SCALES, QUANTILES
from gspo_lab.training.objectives.ratios import RATIOS, RULES, Level, binds, sequence_mean
from gspo_lab.training.objectives.settings import Common

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    Floats = npt.NDArray[np.float64]
    Flags = npt.NDArray[np.bool_]

Bands = dict[str, tuple[float, float]]


def ratio_measures(
    log_ratio_BT: "Tensor",
    mask_BT: "Tensor",
    adv_BT: "Tensor",
    evaluated_B: "Tensor",
    settings: Common,
    bands: Bands,
    *,
    clipped_BT: "Tensor",
    gate_BT: "Tensor | None" = None,
    dual_clipped_BT: "Tensor | None" = None,
    other_log_ratio_BT: "Tensor | None" = None,
    weight_BT: "Tensor | None" = None,
) -> dict[str, Any]:
    """The fields of an UpdateRecord that follow from l_t (0 off the mask), the mask and the
    advantages of a whole mini- batch.

    `evaluated_B`: the responses whose l_t is known; `bands`: the rules' reference ranges;
    `clipped_BT`, `gate_BT`, `dual_clipped_BT`: what `surrogate` returned (with a gate there are no
    clip fractions); `other_log_ratio_BT`: l_t with the other program's old log-probs; `weight_BT`:
    a mismatch correction's. What nothing was evaluated for is None."""
    import numpy as np

    mask = mask_BT.cpu().numpy()
    adv = adv_BT.cpu().numpy()
    evaluated = evaluated_B.cpu().numpy()
    # In the objective's own precision, so that what binds there binds here, but for the last bit at
    # the very edge.
    l_BT = log_ratio_BT.cpu().numpy()
    length_B = mask.sum(axis=1)
    ratio = _ratios(l_BT, mask)
    w_BT = ratio[RATIOS["token"].rule]
    positive = mask & (adv > 0)
    negative = mask & (adv < 0)
    active_BT = positive | negative
    tokens = int(length_B.sum())
    active = int(active_BT.sum())

    clipped = clipped_BT.cpu().numpy()
    high = int((clipped & positive).sum())
    low = int((clipped & negative).sum())
    clipped_B = clipped.sum(axis=1)
    dual_BT = None if dual_clipped_BT is None else dual_clipped_BT.cpu().numpy()
    lost_BT = clipped if dual_BT is None else clipped | dual_BT

    l_N = np.sort(l_BT[mask & evaluated[:, None]].astype(np.float64))
    mean_B = sequence_mean(l_BT, mask)[:, 0]
    log_s_B = np.sort(mean_B[(length_B > 0) & evaluated].astype(np.float64))
    counts = {
        rule: _band_counts(ratio[rule][active_BT], adv[active_BT], band)
        for rule, band in bands.items()
    }
    unscaled = BAND_SCALES.index(1.0)
    rule = RATIOS[settings.importance_sampling_level].rule
    if settings.policy_loss == "clip" and bands.get(rule) == (
        settings.clip_low,
        settings.clip_high,
    ):
        # What bound, bound: torch's exp and numpy's may part in the last bit of a ratio at the very
        # edge.
        counts[rule]["low"][unscaled] = low
        counts[rule]["high"][unscaled] = high
    would = {
        f"would_clip_fraction_tokens_{rule}": (
            (count["low"][unscaled] + count["high"][unscaled]) / tokens
        )
        for rule, count in counts.items()
    }
    return {
        "responses": len(length_B),
        "evaluated_responses": int(evaluated.sum()),
        "response_tokens": tokens,
        "active_tokens": active,
        **(_clipped(high, low, clipped_B, length_B, positive, negative) if gate_BT is None else {}),
        "gate_mean": None if gate_BT is None else _mean_at(gate_BT.cpu().numpy(), active_BT),
        **would,
        "dual_clip_fraction_tokens": None if dual_BT is None else int(dual_BT.sum()) / tokens,
        "effective_fraction_tokens": int((active_BT & ~lost_BT).sum()) / tokens,
        **(
            {}
            if weight_BT is None
            else _corrected(weight_BT.cpu().numpy(), active_BT, lost_BT, tokens)
        ),
        **(
            {}
            if other_log_ratio_BT is None
            else _flipped(ratio, other_log_ratio_BT.cpu().numpy(), mask, adv, bands)
        ),
        "ratio_max_negative": float(w_BT[negative].max()) if negative.any() else None,
        **(_spread(l_N, log_s_B) if len(l_N) else {}),
        "band_counts": counts,
    }


def _ratios(l_BT: "Floats", mask_BT: "Flags") -> "dict[str, Floats]":
    """Every rule's ratio at every token."""
    import numpy as np

    with np.errstate(over="ignore"):
        return {
            rule: np.broadcast_to(np.exp(ratio.log_ratio(l_BT, mask_BT)), l_BT.shape)
            for rule, ratio in RULES.items()
        }


def _clipped(
    high: int, low: int, clipped_B: "Flags", length_B: "Flags", positive: "Flags", negative: "Flags"
) -> dict[str, Any]:
    """What a loss that clips took: `high` tokens with A > 0 and `low` with A < 0."""
    import numpy as np

    tokens = int(length_B.sum())
    rising = int(positive.sum())
    falling = int(negative.sum())
    return {
        "clipped_tokens": high + low,
        "clip_fraction_tokens": (high + low) / tokens,
        "clip_fraction_tokens_high": high / tokens,
        "clip_fraction_tokens_low": low / tokens,
        "clip_fraction_active_tokens": (
            (high + low) / (rising + falling) if rising + falling else None
        ),
        "clip_fraction_positive_tokens": high / rising if rising else None,
        "clip_fraction_negative_tokens": low / falling if falling else None,
        "clip_fraction_responses": float((clipped_B / np.maximum(length_B, 1)).mean()),
        "clip_any_responses": float((clipped_B > 0).mean()),
    }


def _mean_at(x_BT: "Floats", at_BT: "Flags") -> float | None:
    return float(x_BT[at_BT].mean(dtype="float64")) if at_BT.any() else None


def _corrected(
    weight_BT: "Floats", active_BT: "Flags", lost_BT: "Flags", tokens: int
) -> dict[str, Any]:
    """What a mismatch correction made of the active tokens."""
    masked_BT = active_BT & (weight_BT == 0)
    return {
        "correction_weight_mean": _mean_at(weight_BT, active_BT),
        "correction_masked_tokens": (
            int(masked_BT.sum()) / int(active_BT.sum()) if active_BT.any() else None
        ),
        "effective_fraction_tokens": int((active_BT & ~lost_BT & ~masked_BT).sum()) / tokens,
    }


def _flipped(
    ratio: "dict[str, Floats]", other_l_BT: "Floats", mask: "Flags", adv: "Floats", bands: Bands
) -> dict[str, float]:
    """Per rule the tokens that bind with one program's old log-probs and not with the other's."""
    other_ratio = _ratios(other_l_BT, mask)
    out = {}
    for rule, band in bands.items():
        (low_BT, high_BT) = binds(ratio[rule], adv, mask, *band)
        (other_low_BT, other_high_BT) = binds(other_ratio[rule], adv, mask, *band)
        flipped_BT = (low_BT | high_BT) != (other_low_BT | other_high_BT)
        out[f"flip_fraction_tokens_{rule}"] = int(flipped_BT.sum()) / int(mask.sum())
    return out


def response_detail(
    log_ratio_BT: "Tensor",
    mask_BT: "Tensor",
    adv_BT: "Tensor",
    clipped_BT: "Tensor",
    *,
    tokens: bool = False,
) -> dict[str, list[Any]]:
    """Each response's own numbers, for statistics that need more than means; with `tokens` also
    every l_t.

    Where advantages differ within a response, its `advantage` is their mean.
    """
    out: dict[str, list[Any]] = {
        "length": mask_BT.sum(dim=1).tolist(),
        # In double precision the mean of equal numbers is that number.
        "advantage": _rounded(
            sequence_mean(adv_BT.double().masked_fill(~mask_BT, 0.0), mask_BT)[:, 0].tolist()
        ),
        "sum_log_ratio": _rounded(log_ratio_BT.sum(dim=1).tolist()),
        "sum_square_log_ratio": _rounded((log_ratio_BT * log_ratio_BT).sum(dim=1).tolist()),
        "max_abs_log_ratio": _rounded(log_ratio_BT.abs().amax(dim=1).tolist()),
        "clipped_tokens": clipped_BT.sum(dim=1).tolist(),
    }
    if tokens:
        out["log_ratios"] = [
            _rounded(row[mask].tolist()) for row, mask in zip(log_ratio_BT, mask_BT, strict=True)
        ]
    return out


def _spread(l_N: "Floats", log_s_B: "Floats") -> dict[str, Any]:
    """How far tokens and responses moved, from their sorted log-ratios."""
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        w_N = np.exp(l_N)
        s_B = np.exp(log_s_B)
        return {
            "log_ratio_std_tokens": float(l_N.std()),
            "log_ratio_std_responses": float(log_s_B.std()),
            "log_ratio_max_abs": float(np.abs(l_N).max()),
            "log_ratio_quantiles_tokens": _quantiles(l_N),
            "log_ratio_quantiles_responses": _quantiles(log_s_B),
            "ess_tokens": _ess(w_N),
            "ess_responses": _ess(s_B),
            "chi2_tokens": float(w_N @ w_N) / len(w_N) - 1,
            "chi2_responses": float(s_B @ s_B) / len(s_B) - 1,
            "stale_k1": float(-l_N.mean()),
            "stale_k3": float((w_N - 1 - l_N).mean()),
        }


def _band_counts(
    ratio_N: "Floats", adv_N: "Floats", band: tuple[float, float]
) -> dict[str, list[int]]:
    """Per side the active tokens that bind at each scale of the range: 5 + 5 counts give all 5 x 5
    ranges.
    """
    sides = [binds(ratio_N, adv_N, True, scale * band[0], scale * band[1]) for scale in BAND_SCALES]
    return {
        "low": [int(low_N.sum()) for low_N, _ in sides],
        "high": [int(high_N.sum()) for _, high_N in sides],
    }


def _quantiles(sorted_N: "Floats") -> list[float | None]:
    last = len(sorted_N) - 1
    return _rounded([float(sorted_N[round(level * last)]) for level in QUANTILES])


def _rounded(values: list[float]) -> list[float | None]:
    """Seven significant digits, float32's own, and half the bytes; None for what is not finite."""
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values]


def _ess(ratio_N: "Floats") -> float | None:
    """None where all squares are below the smallest double: 0 / 0."""
    total = float(ratio_N.sum())
    squares = float(ratio_N @ ratio_N)
    return total * total / (squares * len(ratio_N)) if squares else None


LEAST = 50
"""Fewer values than this on one side give no usable quantile."""


def calibrated_band(
    details: Iterable[Mapping[str, Any]], level: Level, target: float
) -> tuple[float, float]:
    """(clip_low, clip_high) by which `target` of the pilot's active tokens (or responses) would
    have been clipped: for each sign of A the (1 - target) quantile of sign(A) * log r. `details`
    are `response_detail` with tokens, mini- batches >= 1."""
    moves = _moves(details, level)
    high = _quantile(moves[1], 1 - target, "positive")
    low = _quantile(moves[-1], 1 - target, "negative")
    return 1 - math.exp(-low), math.exp(high) - 1


def clipped_share(
    details: Iterable[Mapping[str, Any]], level: Level, band: tuple[float, float]
) -> float:
    """The share of the active tokens (or responses) that a range clips.

    LabError where there are none.
    """
    moves = _moves(details, level)
    bounds = {1: math.log1p(band[1]), -1: -math.log1p(-band[0])}
    entries = sum(map(len, moves.values()))
    if not entries:
        raise LabError(
            "the pilot saw no response with an advantage; use a start that is neither always right"
            " nor always wrong"
        )
    return sum(move > bounds[sign] for sign, values in moves.items() for move in values) / entries


def _moves(details: Iterable[Mapping[str, Any]], level: Level) -> dict[int, list[float]]:
    """sign(A) * log r by the sign of the advantage; what has none is left out."""
    moves: dict[int, list[float]] = {1: [], -1: []}
    for detail in details:
        for index, advantage in enumerate(detail["advantage"]):
            if advantage != 0:
                sign = 1 if advantage > 0 else -1
                moves[sign] += [sign * move for move in RATIOS[level].moves(detail, index)]
    return moves


def _quantile(values: list[float], level: float, sign: str) -> float:
    if len(values) < LEAST:
        raise LabError(
            f"the pilot saw {len(values)} values with a {sign} advantage, {LEAST} are needed; use "
            "more prompts per step or a warm start that is neither always right nor always wrong"
        )
    ordered = sorted(values)
    bound = ordered[min(len(ordered) - 1, math.ceil(level * len(ordered)) - 1)]
    if bound <= 0:
        raise LabError(
            f"at least {1 - level:.0%} of the pilot's moves with a {sign} advantage are needed "
            "along its sign, and fewer were; lower clip_target or give clip_low and clip_high"
        )
    return bound
