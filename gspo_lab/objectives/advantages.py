"""From rewards to advantages of responses (a critic's: values.py). Shapes: P prompts, G responses to each."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

EPSILON = 1e-6
"""Added to every standard deviation, as verl does; the papers do not say. Standard deviations divide by n - 1."""


def advantages(reward_PG: "Tensor", how: str) -> "Tensor":
    """[P, G] advantages from [P, G] rewards. A group whose rewards are all equal has 0, but for `batch-mean-std`.

    `group-mean-std`: (r - mean) / (std + 1e-6), arXiv 2402.03300; `group-mean`: r - mean, 2503.20783;
    `leave-one-out`: r - mean of the others = G/(G-1) (r - mean), 2402.14740; `batch-std`: r - group mean, divided by
    the standard deviation of that over the batch's responses, after 2501.03262's "-baseline" variant (verl takes the
    standard deviation, and the mean once more, over tokens instead); `batch-mean-std`: (r - mean) / std over all
    responses of the batch, 2501.03262 without its KL in the reward: an equal group keeps its distance to the mean.
    """
    if how == "batch-mean-std":
        equal = bool(reward_PG.amax() == reward_PG.amin())
        return reward_PG * 0 if equal else (reward_PG - reward_PG.mean()) / (reward_PG.std() + EPSILON)
    group_size = reward_PG.shape[1]
    equal_P1 = reward_PG.amax(dim=1, keepdim=True) == reward_PG.amin(dim=1, keepdim=True)
    centred_PG = (reward_PG - reward_PG.mean(dim=1, keepdim=True)).masked_fill(equal_P1, 0.0)
    if how == "group-mean":
        return centred_PG
    if how == "leave-one-out":
        return centred_PG * (group_size / (group_size - 1))
    if how == "batch-std":
        return centred_PG / (centred_PG.std() + EPSILON)
    return centred_PG / (reward_PG.std(dim=1, keepdim=True) + EPSILON)


def overlong_penalty(length_PG: "Tensor", limit: int, buffer: int, most: float) -> "Tensor":
    """[P, G] of what lengths in tokens cost: 0 up to `limit` - `buffer`, from there in a line, `most` from `limit` on.

    DAPO's soft overlong punishment, arXiv 2503.14476 eq. 13 with `limit` L_max, `buffer` L_cache and `most` 1.
    """
    return (length_PG - (limit - buffer)).clamp(0, buffer) / buffer * most


def turn_advantages(reward_PGK: "Tensor", how: str) -> "Tensor":
    """[P, G, K] advantages of turns from what each earned, [P, G, K] in double precision, NaN where there was none.

    A turn's return is what it and those behind it earned. It is held against the returns of the group's other responses
    at the same turn, by `how` as a response's reward is against the group's: at the first turn, which all have, it is
    the response's advantage. A turn that one response alone came to has 0. Turns' own rewards are those of arXiv
    2505.11821, normalised returns as advantages those of 2511.14846, here without a discount; that equal turns are
    compared is the lab's.
    """
    there_PGK = ~reward_PGK.isnan()
    return_PGK = reward_PGK.nan_to_num().flip(-1).cumsum(-1).flip(-1).float()
    adv_PGK = return_PGK * 0
    for prompt, turn in (there_PGK.sum(dim=1) > 1).nonzero().tolist():
        some_G = there_PGK[prompt, :, turn]
        adv_PGK[prompt, some_G, turn] = advantages(return_PGK[prompt, some_G, turn][None], how)[0]
    return adv_PGK
