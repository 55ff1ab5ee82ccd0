"""The ratio rules: which log-ratio a token carries. GRPO and GSPO differ in one line of this table,
and nowhere else.

Shapes: B responses, T response tokens (padded), 1 a kept dimension. l_t is log pi(y_t) - log
pi_old(y_t). `Array` is a torch tensor, with its gradient, or a numpy array: loss and records use
the same functions, and so the same ratio.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from gspo_lab.common.plain_data import Interval, JsonMapping

if TYPE_CHECKING:
    from torch import Tensor

Level = Literal["token", "sequence", "sequence-token"]
Array = Any


@dataclass(frozen=True, slots=True)
class Ratio:
    """How an `importance_sampling_level` makes a token's ratio from l_t."""

    rule: str
    """The rule's name in the columns of records (`records.RULES`).

    Levels of one rule differ only in their gradient.
    """
    log_ratio: Callable[[Array, Array], Array]
    """log r, broadcastable to [B, T], from l_t (0 off the mask) and the loss mask."""
    clipped_log_ratios: Callable[[JsonMapping, int], list[float]]
    """The log r by which one response is clipped: a value per token, or one.

    Arguments: a `response_detail` and the response's index in it.
    """
    band: Interval
    """The published clip range: the reference range where no arm of a study follows the rule."""


def token_log_ratio(l_BT: Array, mask_BT: Array) -> Array:
    """l_t itself: arXiv 2402.03300 as restated in 2507.18071 eq. 2."""
    return l_BT


def sequence_mean(x_BT: Array, mask_BT: Array) -> Array:
    """[B, 1], the mean of `x_BT` over each response's tokens; `x_BT` must be 0 off the mask.

    Of l_t it is the logarithm of 2507.18071 eq. 7.
    """
    length_B1 = mask_BT.sum(axis=1, keepdims=True, dtype=x_BT.dtype).clip(min=1)
    return x_BT.sum(axis=1, keepdims=True) / length_B1


def sequence_token_log_ratio(l_BT: Array, mask_BT: Array) -> Array:
    """The sequence's value with the token's gradient: 2507.18071 eq. 14."""
    return sequence_mean(l_BT, mask_BT).detach() + (l_BT - l_BT.detach())


def _token_log_ratios(detail: JsonMapping, index: int) -> list[float]:
    moves: list[float] = detail["log_ratios"][index]
    return moves


def _mean_log_ratio(detail: JsonMapping, index: int) -> list[float]:
    length = detail["length"][index]
    return [detail["sum_log_ratio"][index] / length] if length else []


# The ranges are those of the GSPO paper's two arms (2507.18071 v2, section 5.1).
_GRPO = Ratio("grpo", token_log_ratio, _token_log_ratios, band=(0.2, 0.27))
_GSPO = Ratio("gspo", sequence_mean, _mean_log_ratio, band=(3e-4, 4e-4))

RATIOS: dict[Level, Ratio] = {
    "token": _GRPO,
    "sequence": _GSPO,
    "sequence-token": replace(_GSPO, log_ratio=sequence_token_log_ratio),
}

RULES: dict[str, Ratio] = {}
"""The first level that follows each ratio rule, by the rule's name.

What the rule would clip is counted on every mini-batch.
"""
for _ratio in RATIOS.values():
    RULES.setdefault(_ratio.rule, _ratio)


def single_precision(x: "Tensor") -> "Tensor":
    """The tensor in single precision or better, with its gradient; whole numbers are converted too.
    Half precision cannot tell the ends of GSPO's range from 1. TypeError for complex numbers.
    """
    if x.is_complex():
        raise TypeError(f"a {x.dtype} tensor is no log-prob, reward, value or advantage")
    return x if x.is_floating_point() and x.element_size() >= SINGLE else x.float()


SINGLE = 4
"""Bytes of a number in single precision."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A mini-batch, or some rows of one. `responses` and `tokens` count the whole mini-batch, so
    that the losses of parts add up.

    `mask_BT` is the loss mask: the tokens that the policy chose. Off it advantages and log-probs
    are 0. Advantages may differ by token. `ref_logp_BT` is the starting model's (with a KL term),
    `sampler_logp_BT` the sampler's (with a correction). `selected_BT`: tokens that a loss has
    selected in the whole mini-batch."""

    mask_BT: "Tensor"
    adv_BT: "Tensor"
    old_logp_BT: "Tensor"
    responses: int
    tokens: int
    ref_logp_BT: "Tensor | None" = None
    sampler_logp_BT: "Tensor | None" = None
    selected_BT: "Tensor | None" = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "mask_BT", self.mask_BT.bool())
        for name in ("adv_BT", "old_logp_BT", "ref_logp_BT", "sampler_logp_BT"):
            number_BT = getattr(self, name)
            if number_BT is not None:
                object.__setattr__(self, name, single_precision(number_BT))
