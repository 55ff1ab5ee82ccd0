"""Random numbers that depend on where they are used and on nothing else: coupled sampling.

A response's key, the position and the vocabulary index are hashed into a uniform number, so that a response's noise is
the same in every batch, beside whatever other responses, in every arm of a seed.
"""

from torch import Tensor

# The constants of splitmix64 (Steele, Lea, Flood 2014) as signed 64-bit integers; int64 products wrap as they should.
_GOLDEN = -7046029254386353131
_MIX_A = -4658895280553007687
_MIX_B = -7723592293110705685


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _MIX_A
    x = (x ^ _shift(x, 27)) * _MIX_B
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """A logical right shift; `>>` alone would copy the sign bit."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def exponentials(key_B: Tensor, position_B: Tensor, vocabulary_V: Tensor) -> Tensor:
    """[B, V] float64 draws from Exp(1), one per response, position and vocabulary entry (int64 inputs).

    The argmax of p / draw is a sample from p: the Gumbel-max trick with one logarithm less.
    """
    row_B = _mix(key_B + _mix(position_B * _GOLDEN))
    bits_BV = _shift(_mix(row_B[:, None] + vocabulary_V[None, :] * _GOLDEN), 11)
    uniform_BV = (bits_BV.double() + 0.5) * 2.0**-53
    return -uniform_BV.log_()
