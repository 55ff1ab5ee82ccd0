"""A critic's mathematics: values and rewards to advantages by token, and the loss that the values are trained on.

Shapes: B responses, T response tokens (padded). The value of token t is of the state *before* it. Tokens off the loss
mask are no steps: what a tool wrote is skipped, and the step after it follows the one before it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

WHITENING_EPSILON = 1e-8
"""Added to the variance that advantages are divided by the root of, as verl does."""


def at_last_token(reward_B: "Tensor", mask_BT: "Tensor") -> "Tensor":
    """[B, T]: each response's reward at the last token of its loss mask, 0 elsewhere and where it has none."""
    later_BT = mask_BT.flip(1).cumsum(dim=1).flip(1)
    return reward_B[:, None] * (mask_BT & (later_BT == 1))


def gae(
    reward_BT: "Tensor", value_BT: "Tensor", mask_BT: "Tensor", *, gamma: float, gae_lambda: float
) -> "tuple[Tensor, Tensor]":
    """Advantages and returns [B, T], 0 off the mask: generalised advantage estimation, arXiv 1506.02438 eq. 11-16.

    delta_t = r_t + gamma V_{t+1} - V_t, A_t = delta_t + gamma lambda A_{t+1}, where t + 1 is the mask's next token and
    both are 0 behind its last; the return that values are trained on is A_t + V_t.
    """
    adv_BT = reward_BT.new_zeros(reward_BT.shape)
    next_value_B = next_adv_B = reward_BT.new_zeros(len(reward_BT))
    for t in reversed(range(mask_BT.shape[1])):
        step_B, value_B = mask_BT[:, t], value_BT[:, t]
        delta_B = reward_BT[:, t] + gamma * next_value_B - value_B
        next_adv_B = (delta_B + gamma * gae_lambda * next_adv_B).where(step_B, next_adv_B)
        next_value_B = value_B.where(step_B, next_value_B)
        adv_BT[:, t] = next_adv_B
    return adv_BT.masked_fill(~mask_BT, 0.0), (adv_BT + value_BT).masked_fill(~mask_BT, 0.0)


def whitened(adv_BT: "Tensor", mask_BT: "Tensor") -> "Tensor":
    """(A - mean) / std over the mask's tokens (divisor n - 1): verl always does, AReaL with `adv_norm` "batch"."""
    count = mask_BT.sum()
    centred_BT = (adv_BT - (adv_BT * mask_BT).sum() / count.clip(min=1)) * mask_BT
    variance = (centred_BT * centred_BT).sum() / (count - 1).clip(min=1)
    return centred_BT * (variance + WHITENING_EPSILON).rsqrt()


def of_sequence(adv_BT: "Tensor", mask_BT: "Tensor", how: str) -> "Tensor":
    """One advantage for a response in place of its tokens', at each of them: their `mean` (AReaL 1.0's code) or their
    `sum` (AReaL's page on GSPO): what a sequence's one ratio is multiplied by."""
    total_B1 = (adv_BT * mask_BT).sum(dim=1, keepdim=True)
    if how == "mean":
        total_B1 = total_B1 / mask_BT.sum(dim=1, keepdim=True).clip(min=1)
    return total_B1 * mask_BT


@dataclass(frozen=True, slots=True)
class ValueLoss:
    """`loss` is a scalar to minimise; `clipped_BT` is True where the clip takes the gradient of a value."""

    loss: "Tensor"
    clipped_BT: "Tensor"


def value_loss(
    value_BT: "Tensor",
    old_value_BT: "Tensor",
    return_BT: "Tensor",
    mask_BT: "Tensor",
    *,
    tokens: int,
    clip: float,
) -> ValueLoss:
    """Half the mean over the mini-batch's `tokens` of max((V - R)^2, (V' - R)^2), V' the value within `clip` of the old
    one: PPO's clipped value loss, as verl and AReaL have it.
    """
    error_BT = (value_BT - return_BT) ** 2
    # Inside the range the very value: a difference that rounding makes would count as clipped.
    near_BT = value_BT.clip(old_value_BT - clip, old_value_BT + clip)
    near_error_BT = (near_BT - return_BT) ** 2
    clipped_BT = mask_BT & (near_error_BT > error_BT).detach()
    return ValueLoss(0.5 * (near_error_BT.where(clipped_BT, error_BT) * mask_BT).sum() / max(tokens, 1), clipped_BT)


def explained_variance(value_BT: "Tensor", return_BT: "Tensor", mask_BT: "Tensor") -> float | None:
    """1 - var(R - V) / var(R) over the mask's tokens: 1 where values are the returns, 0 where a constant would do as
    well. None where all returns are equal."""
    value_N, return_N = value_BT[mask_BT].double(), return_BT[mask_BT].double()
    spread = float(return_N.var(correction=0)) if len(return_N) else 0.0
    return 1 - float((return_N - value_N).var(correction=0)) / spread if spread > 0 else None
