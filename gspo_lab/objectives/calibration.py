"""A clip range found from data: the range that would have clipped a wished share of what a pilot saw."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.objectives.ratios import RATIOS, Level

LEAST = 50
"""Fewer values than this on one side give no usable quantile."""


def calibrated_band(details: Iterable[Mapping[str, Any]], level: Level, target: float) -> tuple[float, float]:
    """(clip_low, clip_high) such that `target` of the pilot's active tokens (or responses) would have been clipped.

    `details` are `response_detail` records (with token log-ratios) of mini-batches >= 1. For each sign of the
    advantage apart, the bound is the (1 - target) quantile of sign(A) * log r, over what the level clips by, tokens or
    responses: the policy moves log r along with A, so the two sides are not alike and no formula replaces the count.
    """
    moves = _moves(details, level)
    high = _quantile(moves[1], 1 - target, "positive")
    low = _quantile(moves[-1], 1 - target, "negative")
    return 1 - math.exp(-low), math.exp(high) - 1


def clipped_share(details: Iterable[Mapping[str, Any]], level: Level, band: tuple[float, float]) -> float:
    """The share of the active tokens (or responses) that a range clips. LabError where there are none."""
    moves = _moves(details, level)
    bounds = {1: math.log1p(band[1]), -1: -math.log1p(-band[0])}
    seen = sum(map(len, moves.values()))
    if not seen:
        raise LabError(
            "the pilot saw no response with an advantage; use a start that is neither always right nor always wrong"
        )
    return sum(move > bounds[sign] for sign, values in moves.items() for move in values) / seen


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
    found = ordered[min(len(ordered) - 1, math.ceil(level * len(ordered)) - 1)]
    if found <= 0:
        raise LabError(
            f"at least {1 - level:.0%} of the pilot's moves with a {sign} advantage are needed "
            "along its sign, and fewer were; lower clip_target or give clip_low and clip_high"
        )
    return found
