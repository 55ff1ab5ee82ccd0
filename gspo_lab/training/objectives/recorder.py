"""From a mini-batch's tensors to its `UpdateRecord`, for every engine. The rules stand at the
record's fields (`gspo_lab/recording/records/update.py`). Shapes as in objective.py.

In numpy, on one copy in main memory: sixty small numbers cost a fifth of what they cost as tensor
operations, and a GPU is waited for once.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gspo_lab.common.plain_data import Interval, JsonObject
from gspo_lab.recording.records.metric import rounded
from gspo_lab.recording.records.update import (
    BAND_SCALES,
    CLIP_FRACTION,
    REDUCTIONS,
    UpdateRecord,
)
from gspo_lab.training.objectives.losses import Common, Metrics, traits
from gspo_lab.training.objectives.losses.clipping import binds
from gspo_lab.training.objectives.losses.loss import LARGEST_LOG_RATIO
from gspo_lab.training.objectives.ratios import (
    RATIOS,
    RULES,
    Array,
    sequence_mean,
    single_precision,
)

if TYPE_CHECKING:
    from torch import Tensor

Bands = Mapping[str, Interval]
"""The reference range of each ratio rule."""

LARGEST_RATIO = math.exp(LARGEST_LOG_RATIO)

LOST = {CLIP_FRACTION, "dual_clip_fraction_tokens", "correction_masked_tokens"}
"""What marks tokens that have lost their gradient."""


@dataclass(frozen=True, slots=True)
class Recorder:
    """Makes the records of one run's updates. Every `detail_every` steps they hold every response's
    own numbers, with `token_detail` also every token's.
    """

    objective: Common
    bands: Bands
    detail_every: int = 1
    token_detail: bool = False

    def detailed(self, step: int) -> bool:
        """Whether the records of a step hold more than means."""
        return step % self.detail_every == 0

    def update(
        self,
        *,
        step: int,
        minibatch: int,
        log_ratio_BT: "Tensor",
        mask_BT: "Tensor",
        adv_BT: "Tensor",
        metrics: Metrics,
        evaluated_B: "Tensor | None" = None,
        other_log_ratio_BT: "Tensor | None" = None,
        **columns: Any,
    ) -> UpdateRecord:
        """The record of an update on a whole mini-batch.

        `log_ratio_BT`: l_t, 0 off the mask. `metrics`: what `surrogate` returned, of all parts.
        `evaluated_B`: the responses whose l_t is known; None: all. `other_log_ratio_BT`: l_t with
        the other program's old log-probs. `columns`: fields that the engine knows.
        """
        import numpy as np

        detail: JsonObject = {}
        log_ratio_BT = single_precision(log_ratio_BT)
        adv_BT = single_precision(adv_BT)
        if evaluated_B is None:
            evaluated_B = mask_BT.new_ones(len(mask_BT))
        with np.errstate(over="ignore", invalid="ignore"):
            arrays = self.arrays(
                log_ratio_BT, mask_BT, adv_BT, metrics, evaluated_B, other_log_ratio_BT
            )
            numbers = {name: reduction(arrays) for name, reduction in REDUCTIONS.items()}
        if self.detailed(step):
            clipped_BT = metrics.get(CLIP_FRACTION, mask_BT & False)
            tensors = (log_ratio_BT, mask_BT, adv_BT, clipped_BT)
            detail["response_detail"] = response_detail(
                *(tensor[evaluated_B] for tensor in tensors), tokens=self.token_detail
            )
        return UpdateRecord(step=step, minibatch=minibatch, **numbers, **detail, **columns)

    def arrays(
        self,
        log_ratio_BT: "Tensor",
        mask_BT: "Tensor",
        adv_BT: "Tensor",
        metrics: Metrics,
        evaluated_B: "Tensor",
        other_log_ratio_BT: "Tensor | None" = None,
    ) -> JsonObject:
        """All that the rules of fields read, by name. In the objective's own precision, so that
        what binds there binds here, but for the last bit at the very edge."""
        mask = _array(mask_BT)
        adv = _array(adv_BT)
        evaluated = _array(evaluated_B)
        l_BT = _array(log_ratio_BT)
        positive = mask & (adv > 0)
        negative = mask & (adv < 0)
        active = positive | negative
        arrays: JsonObject = {
            "responses": len(mask),
            "evaluated": evaluated,
            "tokens": mask,
            "adv": adv,
            "positive": positive,
            "negative": negative,
            "active": active,
        }
        effective = active
        for name, number in metrics.items():
            arrays[name] = number if isinstance(number, float) else _array(number)
        for name in LOST & metrics.keys():
            arrays[name] = arrays[name] & active
            effective = effective & ~arrays[name]
        arrays["effective"] = effective
        ratios = _ratios(l_BT, mask)
        arrays["ratio_BT"] = ratios[RATIOS["token"].rule]
        arrays |= _log_ratios(l_BT, mask, evaluated)
        arrays |= self._would_clip(arrays, ratios)
        if other_log_ratio_BT is not None:
            arrays |= self._flips(arrays, _array(other_log_ratio_BT))
        return arrays

    def _would_clip(self, arrays: Mapping[str, Array], ratios: Mapping[str, Array]) -> JsonObject:
        """What each rule would clip with its reference range, and with parts of it; and the size
        of each token's gradient by the logits, r |A| |e_y - p|.
        """
        objective = self.objective
        own_rule = RATIOS[objective.importance_sampling_level].rule
        active = arrays["active"]
        counts: dict[str, dict[str, list[int]]] = {}
        out: JsonObject = {"band_counts": counts}
        for rule, band in self.bands.items():
            low, high = binds(ratios[rule], arrays["adv"], arrays["tokens"], *band)
            clipped = low | high
            counts[rule] = _band_counts(ratios[rule][active], arrays["adv"][active], band)
            if (
                objective.policy_loss == "clip"
                and rule == own_rule
                and band == objective.clip_range
            ):
                # What bound, bound: torch's exp and numpy's may part in the last bit of a ratio at
                # the very edge.
                clipped = arrays[CLIP_FRACTION]
                unscaled = BAND_SCALES.index(1.0)
                counts[rule]["low"][unscaled] = int((clipped & arrays["negative"]).sum())
                counts[rule]["high"][unscaled] = int((clipped & arrays["positive"]).sum())
            out[f"would_clip_{rule}"] = clipped
            out[f"binds_{rule}"] = low | high
            if "logit_gradient" in arrays:
                size_BT = ratios[rule].clip(max=LARGEST_RATIO) * abs(arrays["adv"])
                out[f"gradient_{rule}"] = size_BT.astype("float64") * arrays["logit_gradient"]
        if traits(objective.policy_loss).ratio != "own" and f"gradient_{own_rule}" in out:
            out["gradient"] = out[f"gradient_{own_rule}"]
        return out

    def _flips(self, arrays: Mapping[str, Array], other_l_BT: Array) -> dict[str, Array]:
        """Per rule the tokens that bind with one program's old log-probs and not with the
        other's.
        """
        out = {}
        ratios = _ratios(other_l_BT, arrays["tokens"])
        for rule, band in self.bands.items():
            low, high = binds(ratios[rule], arrays["adv"], arrays["tokens"], *band)
            out[f"flip_{rule}"] = arrays[f"binds_{rule}"] != (low | high)
        return out


def _array(tensor: "Tensor") -> Array:
    """A flag as it is, a number in single precision at least."""
    plain = tensor if str(tensor.dtype) == "torch.bool" else single_precision(tensor)
    return plain.cpu().numpy()


def _ratios(l_BT: Array, mask_BT: Array) -> dict[str, Array]:
    """Every rule's ratio at every token."""
    import numpy as np

    return {
        rule: np.broadcast_to(np.exp(ratio.log_ratio(l_BT, mask_BT)), l_BT.shape)
        for rule, ratio in RULES.items()
    }


def _log_ratios(l_BT: Array, mask_BT: Array, evaluated_B: Array) -> dict[str, Array]:
    """l_t of tokens and log s of responses, each ascending and in double precision, with their
    exponentials; nothing where no response was evaluated.
    """
    import numpy as np

    l_N = np.sort(l_BT[mask_BT & evaluated_B[:, None]].astype(np.float64))
    if not len(l_N):
        return {}
    mean_B = sequence_mean(l_BT, mask_BT)[:, 0]
    log_s_B = np.sort(mean_B[mask_BT.any(axis=1) & evaluated_B].astype(np.float64))
    return {
        "log_ratio": l_N,
        "ratio": np.exp(l_N),
        "log_ratio_responses": log_s_B,
        "ratio_responses": np.exp(log_s_B),
    }


def _band_counts(ratio_N: Array, adv_N: Array, band: Interval) -> dict[str, list[int]]:
    """Per side the active tokens that bind at each scale of the range: 5 + 5 counts give all 5 x 5
    ranges.
    """
    counts: dict[str, list[int]] = {"low": [], "high": []}
    for scale in BAND_SCALES:
        low_N, high_N = binds(ratio_N, adv_N, True, scale * band[0], scale * band[1])
        counts["low"].append(int(low_N.sum()))
        counts["high"].append(int(high_N.sum()))
    return counts


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
    log_ratio_BT = single_precision(log_ratio_BT)
    # In double precision the mean of equal numbers is that number.
    adv_B1 = sequence_mean(adv_BT.double().masked_fill(~mask_BT, 0.0), mask_BT)
    out: dict[str, list[Any]] = {
        "length": mask_BT.sum(dim=1).tolist(),
        "advantage": rounded(adv_B1[:, 0].tolist()),
        "sum_log_ratio": rounded(log_ratio_BT.sum(dim=1).tolist()),
        "sum_square_log_ratio": rounded((log_ratio_BT * log_ratio_BT).sum(dim=1).tolist()),
        "max_abs_log_ratio": rounded(log_ratio_BT.abs().amax(dim=1).tolist()),
        "clipped_tokens": clipped_BT.sum(dim=1).tolist(),
    }
    if tokens:
        responses = zip(log_ratio_BT, mask_BT, strict=True)
        out["log_ratios"] = [rounded(l_T[mask_T].tolist()) for l_T, mask_T in responses]
    return out
