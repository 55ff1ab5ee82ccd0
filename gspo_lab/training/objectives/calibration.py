"""Clip ranges from a pilot run: which range would have clipped a given share of what it recorded.

Details are `response_detail` of its updates, with tokens, of mini-batches >= 1.
"""

import math
from collections.abc import Iterable

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import Interval, JsonMapping
from gspo_lab.training.objectives.ratios import RATIOS, Level
from gspo_lab.training.objectives.settings import CLIP_KEYS

LEAST_TOKEN_NOISE = 0.02
"""Std of l_t in nats at a learning rate of 1e-5, the lowest of the pilot; larger ones moved tokens
more.
"""
LEAST = 50
"""Fewer values than this on one side give no usable quantile."""


def saturated_share(low: float, high: float, tokens: float) -> float:
    """The share of active tokens that a sequence range clips on mini-batches >= 1, at the least.

    The l_t of a response of `tokens` tokens are taken as independent with LEAST_TOKEN_NOISE each.
    """
    return 0.5 * math.erfc((low + high) / 2 * math.sqrt(tokens / 2) / LEAST_TOKEN_NOISE)


def calibrated_band(details: Iterable[JsonMapping], level: Level, target: float) -> Interval:
    """The range by which `target` of the pilot's active tokens (or responses) would
    have been clipped: for each sign of A the (1 - target) quantile of sign(A) * log r. `details`
    are `response_detail` with tokens, mini- batches >= 1."""
    moves = _moves(details, level)
    high = _quantile(moves[1], 1 - target, "positive")
    low = _quantile(moves[-1], 1 - target, "negative")
    return 1 - math.exp(-low), math.exp(high) - 1


def clipped_share(details: Iterable[JsonMapping], level: Level, band: Interval) -> float:
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
    clipped = 0
    for sign, values in moves.items():
        clipped += sum(move > bounds[sign] for move in values)
    return clipped / entries


def _moves(details: Iterable[JsonMapping], level: Level) -> dict[int, list[float]]:
    """sign(A) * log r by the sign of the advantage; what has none is left out."""
    moves: dict[int, list[float]] = {1: [], -1: []}
    for detail in details:
        for index, advantage in enumerate(detail["advantage"]):
            if advantage != 0:
                sign = 1 if advantage > 0 else -1
                moves[sign] += [
                    sign * move for move in RATIOS[level].clipped_log_ratios(detail, index)
                ]
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
            f"along its sign, and fewer were; lower clip_target or give {CLIP_KEYS}"
        )
    return bound
