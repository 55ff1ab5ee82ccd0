"""Responses of several turns as a step sees them: each turn's advantage on its tokens, and what is recorded of turns.

Shapes as in experience.py; P prompts, G responses to each, K turns of the response that has most.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gspo_lab.engines.native.experience import padded
from gspo_lab.objectives import turn_advantages
from gspo_lab.samplers.base import Rollout
from gspo_lab.tasks.base import Grade


def turn_credit(rollouts: Sequence[Rollout], grades: Sequence[Grade], reward_PG: Tensor, how: str) -> Tensor:
    """[N, T] advantages, each turn's on the tokens that the model wrote in it, 0 elsewhere.

    Where a grade gives turns no rewards of their own the last one earned the response's (0 where the grader failed).
    """
    turns = [rollout.turns or [] for rollout in rollouts]
    earned = torch.full((len(rollouts), max(map(len, turns))), torch.nan, dtype=torch.float64)
    for row, (grade, reward) in enumerate(zip(grades, reward_PG.flatten().tolist(), strict=True)):
        rewards = grade.turn_rewards or [*[0.0] * (len(turns[row]) - 1), reward]
        earned[row, : len(rewards)] = torch.tensor(rewards, dtype=torch.float64)
    adv_NK = turn_advantages(earned.view(*reward_PG.shape, -1), how).flatten(0, 1).tolist()
    rows = []
    for rollout, each, adv_K in zip(rollouts, turns, adv_NK, strict=True):
        own = iter([adv for turn, adv in zip(each, adv_K, strict=False) for _ in range(turn.tokens or 0)])
        rows.append([next(own) if mine else 0.0 for mine in rollout.loss_mask or [True] * len(rollout.response_ids)])
    return padded(rows, 0.0)


def turn_fields(rollouts: Sequence[Rollout]) -> dict[str, Any]:
    """The columns of a step that tell of turns; none where the task has no more than one."""
    if rollouts[0].turns is None:
        return {}
    tokens = sum(len(rollout.response_ids) for rollout in rollouts)
    replied = sum(rollout.loss_mask.count(False) for rollout in rollouts if rollout.loss_mask is not None)
    return {
        "turns_mean": sum(len(rollout.turns or ()) for rollout in rollouts) / len(rollouts),
        "reply_tokens": replied / tokens,
    }
