"""Random numbers that depend on where they are used and on nothing else: coupled sampling.

A response's key, the position and the vocabulary index are hashed into a uniform number, so that a response's noise is
the same in every batch, beside whatever other responses, in every arm of a seed.

No entry can be left out by its probability: the generator's smallest draw is about 2^-53, so that only what is e^36
times less likely than the winner never wins. What a large vocabulary's numbers cost is memory traffic, and that is
spared: they are made in pieces that stay in a core's cache. Shapes: B responses, V vocabulary entries.
"""

import torch
from torch import Tensor

# The constants of splitmix64 (Steele, Lea, Flood 2014) as signed 64-bit integers; int64 products wrap as they should.
_GOLDEN = -7046029254386353131
_MIX_A = -4658895280553007687
_MIX_B = -7723592293110705685

AT_ONCE = {"cpu": 2**17, "gpu": 2**24}
"""Random numbers made at once: on a CPU what its caches hold, with the steps between; "gpu" is every other device."""


def _mix(x: Tensor) -> Tensor:
    """splitmix64's finaliser, in place."""
    x ^= _shift(x, 30)
    x *= _MIX_A
    x ^= _shift(x, 27)
    x *= _MIX_B
    x ^= _shift(x, 31)
    return x


def _shift(x: Tensor, bits: int) -> Tensor:
    """A logical right shift; `>>` alone would copy the sign bit."""
    shifted = x >> bits
    shifted &= (1 << (64 - bits)) - 1
    return shifted


def exponentials(key_B: Tensor, position_B: Tensor, vocabulary_V: Tensor) -> Tensor:
    """[B, V] float64 draws from Exp(1), one per response, position and vocabulary entry (int64 inputs).

    The argmax of p / draw is a sample from p: the Gumbel-max trick with one logarithm less.
    """
    row_B = _mix(key_B + _mix(position_B * _GOLDEN))
    bits_BV = _shift(_mix(row_B[:, None] + vocabulary_V * _GOLDEN), 11)
    return bits_BV.double().add_(0.5).mul_(2.0**-53).log_().neg_()


def winners(p_BV: Tensor, key_B: Tensor, position_B: Tensor) -> Tensor:
    """[B] entries sampled from the probabilities: the argmax of p / `exponentials`, piece by piece; 0 if p is NaN."""
    B, V = p_BV.shape
    at_once = AT_ONCE["cpu" if p_BV.device.type == "cpu" else "gpu"]
    width = min(V, at_once)
    rows = max(1, at_once // width)
    vocabulary_V = torch.arange(V, device=p_BV.device)
    best_B, winner_B = torch.full_like(key_B, -torch.inf, dtype=torch.float64), torch.zeros_like(key_B)
    for top in range(0, B, rows):
        some = slice(top, top + rows)
        for left in range(0, V, width):
            noise_BV = exponentials(key_B[some], position_B[some], vocabulary_V[left : left + width])
            score_B, place_B = (p_BV[some, left : left + width] / noise_BV).max(dim=1)
            ahead_B = score_B > best_B[some]
            best_B[some] = score_B.where(ahead_B, best_B[some])
            winner_B[some] = (place_B + left).where(ahead_B, winner_B[some])
    return winner_B
