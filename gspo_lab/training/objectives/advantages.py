"""From rewards to advantages: of responses by their group, of tokens by a critic, with the loss
that trains the critic.

Shapes: P prompts, G responses to each; B responses, T response tokens (padded). The value of token
t is of the state *before* it. Tokens off the loss mask are no steps: what a tool wrote is skipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gspo_lab.training.objectives.ratios import single_precision

if TYPE_CHECKING:
    from torch import Tensor

EPSILON = 1e-6
"""Added to every standard deviation, as verl does; the papers do not say.

Standard deviations divide by n - 1.
"""


def advantages(reward_PG: "Tensor", estimator: str) -> "Tensor":
    """[P, G] advantages from [P, G] rewards. A group whose rewards are all equal has 0, except with
    `batch-mean-std`.

    `group-mean-std`: (r - mean) / (std + 1e-6), arXiv 2402.03300.
    `group-mean`: r - mean, 2503.20783.
    `leave-one-out`: r - mean of the others = G/(G-1) (r - mean), 2402.14740.
    `batch-std`: r - group mean, divided by its standard deviation over the batch's responses, after
    2501.03262's "-baseline" variant. verl takes mean and standard deviation over tokens.
    `batch-mean-std`: (r - mean) / std over all responses of the batch, 2501.03262 without its KL in
    the reward. An equal group keeps its distance to the mean.
    """
    reward_PG = single_precision(reward_PG)
    if estimator == "batch-mean-std":
        equal = bool(reward_PG.amax() == reward_PG.amin())
        return (
            reward_PG * 0 if equal else (reward_PG - reward_PG.mean()) / (reward_PG.std() + EPSILON)
        )
    group_size = reward_PG.shape[1]
    equal_P1 = reward_PG.amax(dim=1, keepdim=True) == reward_PG.amin(dim=1, keepdim=True)
    centred_PG = (reward_PG - reward_PG.mean(dim=1, keepdim=True)).masked_fill(equal_P1, 0.0)
    if estimator == "group-mean":
        return centred_PG
    if estimator == "leave-one-out":
        return centred_PG * (group_size / (group_size - 1))
    if estimator == "batch-std":
        return centred_PG / (centred_PG.std() + EPSILON)
    return centred_PG / (reward_PG.std(dim=1, keepdim=True) + EPSILON)


def decoupled(reward_KPG: "Tensor", weight_K: Sequence[float]) -> "Tensor":
    """[P, G] advantages from K rewards by name, each normalised within its groups: GDPO, arXiv
    2601.05242 eq. 4-7.

    sum over k of w_k (r_k - mean) / (std + 1e-6), divided by the standard deviation of that over
    the batch + 1e-6. Its mean over the batch, which the paper takes off too, is 0: that of every
    group is. A reward's scale changes nothing.
    """
    adv_PG = single_precision(reward_KPG[0]) * 0
    for weight, reward_PG in zip(weight_K, reward_KPG, strict=True):
        adv_PG = adv_PG + weight * advantages(reward_PG, "group-mean-std")
    return adv_PG / (adv_PG.std() + EPSILON)


def overlong_penalty(length_PG: "Tensor", limit: int, buffer: int, most: float) -> "Tensor":
    """[P, G] of what lengths in tokens cost: 0 up to `limit` - `buffer`, from there in a line,
    `most` from `limit` on.

    DAPO's soft overlong punishment, arXiv 2503.14476 eq. 13 with `limit` L_max, `buffer` L_cache
    and `most` 1.
    """
    return (single_precision(length_PG) - (limit - buffer)).clamp(0, buffer) / buffer * most


def turn_advantages(reward_PGK: "Tensor", estimator: str) -> "Tensor":
    """[P, G, K] advantages of turns from what each earned, [P, G, K] in double precision, NaN where
    there was none.

    A turn's return is what it and later turns earned (arXiv 2505.11821, 2511.14846, without a
    discount). `estimator` compares it with the group's returns at the same turn. A turn that only
    one response reached has 0.
    """
    reward_PGK = single_precision(reward_PGK)
    there_PGK = ~reward_PGK.isnan()
    return_PGK = reward_PGK.nan_to_num().flip(-1).cumsum(-1).flip(-1).float()
    adv_PGK = return_PGK * 0
    for prompt, turn in (there_PGK.sum(dim=1) > 1).nonzero().tolist():
        some_G = there_PGK[prompt, :, turn]
        adv_PGK[prompt, some_G, turn] = advantages(
            return_PGK[prompt, some_G, turn][None], estimator
        )[0]
    return adv_PGK


WHITENING_EPSILON = 1e-8
"""Added to the variance that advantages are divided by the root of, as verl does."""


def at_last_token(reward_B: "Tensor", mask_BT: "Tensor") -> "Tensor":
    """[B, T]: each response's reward at the last token of its loss mask, 0 elsewhere and where it
    has none.
    """
    later_BT = mask_BT.flip(1).cumsum(dim=1).flip(1)
    return single_precision(reward_B)[:, None] * (mask_BT & (later_BT == 1))


def gae(
    reward_BT: "Tensor", value_BT: "Tensor", mask_BT: "Tensor", *, gamma: float, gae_lambda: float
) -> "tuple[Tensor, Tensor]":
    """Advantages and returns [B, T], 0 off the mask: generalised advantage estimation, arXiv
    1506.02438 eq. 11-16.

    delta_t = r_t + gamma V_{t+1} - V_t and A_t = delta_t + gamma lambda A_{t+1}. Token t + 1 is the
    mask's next one; V and A are 0 behind its last. The returns, on which values are trained, are
    A_t + V_t.
    """
    reward_BT = single_precision(reward_BT)
    value_BT = single_precision(value_BT)
    adv_BT = reward_BT.new_zeros(reward_BT.shape)
    next_value_B = next_adv_B = reward_BT.new_zeros(len(reward_BT))
    for t in reversed(range(mask_BT.shape[1])):
        step_B = mask_BT[:, t]
        value_B = value_BT[:, t]
        delta_B = reward_BT[:, t] + gamma * next_value_B - value_B
        next_adv_B = (delta_B + gamma * gae_lambda * next_adv_B).where(step_B, next_adv_B)
        next_value_B = value_B.where(step_B, next_value_B)
        adv_BT[:, t] = next_adv_B
    return adv_BT.masked_fill(~mask_BT, 0.0), (adv_BT + value_BT).masked_fill(~mask_BT, 0.0)


def whitened(adv_BT: "Tensor", mask_BT: "Tensor") -> "Tensor":
    """(A - mean) / std over the mask's tokens (divisor n - 1): verl always does, AReaL with
    `adv_norm` "batch".
    """
    adv_BT = single_precision(adv_BT)
    count = mask_BT.sum()
    centred_BT = (adv_BT - (adv_BT * mask_BT).sum() / count.clip(min=1)) * mask_BT
    variance = (centred_BT * centred_BT).sum() / (count - 1).clip(min=1)
    return centred_BT * (variance + WHITENING_EPSILON).rsqrt()


def sequence_advantages(adv_BT: "Tensor", mask_BT: "Tensor", reduction: str) -> "Tensor":
    """One advantage for a response in place of its tokens', at each of them: their `mean` (AReaL
    1.0's code) or their `sum` (AReaL's page on GSPO): what a sequence's one ratio is multiplied
    by."""
    adv_BT = single_precision(adv_BT)
    total_B1 = (adv_BT * mask_BT).sum(dim=1, keepdim=True)
    if reduction == "mean":
        total_B1 = total_B1 / mask_BT.sum(dim=1, keepdim=True).clip(min=1)
    return total_B1 * mask_BT


@dataclass(frozen=True, slots=True)
class ValueLoss:
    """`loss` is a scalar to minimise; `clipped_BT` is True where the clip takes the gradient of a
    value.
    """

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
    """Half the mean over the mini-batch's `tokens` of max((V - R)^2, (V' - R)^2), V' the value
    within `clip` of the old one: PPO's clipped value loss, as verl and AReaL have it.
    """
    value_BT = single_precision(value_BT)
    old_value_BT = single_precision(old_value_BT)
    return_BT = single_precision(return_BT)
    error_BT = (value_BT - return_BT) ** 2
    # Inside the range the very value: a difference that rounding makes would count as clipped.
    near_BT = value_BT.clip(old_value_BT - clip, old_value_BT + clip)
    near_error_BT = (near_BT - return_BT) ** 2
    clipped_BT = mask_BT & (near_error_BT > error_BT).detach()
    return ValueLoss(
        0.5 * (near_error_BT.where(clipped_BT, error_BT) * mask_BT).sum() / max(tokens, 1),
        clipped_BT,
    )


def explained_variance(value_BT: "Tensor", return_BT: "Tensor", mask_BT: "Tensor") -> float | None:
    """1 - var(R - V) / var(R) over the mask's tokens: 1 where values are the returns, 0 where a
    constant would do as well. None where all returns are equal."""
    value_N = value_BT[mask_BT].double()
    return_N = return_BT[mask_BT].double()
    spread = float(return_N.var(correction=0)) if len(return_N) else 0.0
    return 1 - float((return_N - value_N).var(correction=0)) / spread if spread > 0 else None
