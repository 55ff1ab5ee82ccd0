"""How a recorded number is declared: its unit, its meaning, the weight with which its rows are
pooled, and the rule that makes it from a mini-batch's tensors, which `objectives.recorder.Recorder`
applies for every engine.

A rule names the numpy arrays that it reads: a loss's metrics by the fields that they are for, the
others (`tokens`, `active`, `log_ratio`, ...) as `Recorder` does. Only methods of arrays are used.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gspo_lab.common.plain_data import OptionalFloat

Array = Any

QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
"""The nine quantiles of every recorded distribution."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """A function of named arrays; None, so NULL, where an array is missing."""

    function: Callable[..., Any]
    arrays: tuple[str, ...]

    def __call__(self, arrays: Mapping[str, Array]) -> Any:
        """The number of a mini-batch with these arrays."""
        if not arrays.keys() >= set(self.arrays):
            return None
        return self.function(*(arrays[name] for name in self.arrays))

    def for_rule(self, rule: str) -> "Reduction":
        """The same with a ratio rule's own arrays in the place of those named `*_RULE`."""
        return replace(self, arrays=tuple(name.replace("RULE", rule) for name in self.arrays))


def reduction(function: Callable[..., Any]) -> Callable[..., Reduction]:
    """Make a function of arrays one that takes their names and returns the rule."""
    return lambda *arrays: Reduction(function, arrays)


def rounded(values: list[float]) -> list[OptionalFloat]:
    """Seven significant digits, as float32 has, in half the bytes; None for what is not finite."""
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values]


@reduction
def unreduced(number: Any) -> Any:
    """A number of the whole mini-batch, as it is."""
    return number


@reduction
def count(flags: Array) -> int:
    """How many entries are True."""
    return int(flags.sum())


@reduction
def share(flags_BT: Array, over_BT: Array, within_BT: Array = True) -> OptionalFloat:
    """How many tokens of `within` have the flag, divided by how many `over` marks; None: none."""
    total = int(over_BT.sum())
    return int((flags_BT & within_BT).sum()) / total if total else None


@reduction
def share_of_sum(flags_BT: Array, size_BT: Array) -> OptionalFloat:
    """The sum of sizes at tokens with the flag, divided by the sum at all tokens."""
    total = float(size_BT.sum())
    return float(size_BT[flags_BT].sum()) / total if total else None


@reduction
def mean(number_BT: Array, over_BT: Array) -> OptionalFloat:
    """The mean over the tokens that `over` marks."""
    return float(number_BT[over_BT].mean(dtype="float64")) if over_BT.any() else None


@reduction
def per_token(total: float, tokens_BT: Array) -> float:
    """A sum over tokens, divided by their number."""
    return total / int(tokens_BT.sum())


@reduction
def mean_share(flags_BT: Array, tokens_BT: Array) -> float:
    """The mean over responses of each one's share of tokens with the flag."""
    length_B = tokens_BT.sum(axis=1).clip(min=1)
    return float((flags_BT.sum(axis=1) / length_B).mean())


@reduction
def any_share(flags_BT: Array) -> float:
    """The share of responses with the flag at one token at least."""
    return float(flags_BT.any(axis=1).mean())


@reduction
def deviation(number_N: Array) -> float:
    """The standard deviation, divisor n."""
    return float(number_N.std())


@reduction
def largest_size(number_N: Array) -> float:
    """The largest absolute value."""
    return float(abs(number_N).max())


@reduction
def largest(number_BT: Array, over_BT: Array) -> OptionalFloat:
    """The largest number at the tokens that `over` marks."""
    return float(number_BT[over_BT].max()) if over_BT.any() else None


def nine_quantiles(ascending_N: Array) -> list[OptionalFloat]:
    """The nine quantiles of ascending numbers."""
    last = len(ascending_N) - 1
    return rounded([float(ascending_N[round(level * last)]) for level in QUANTILES])


quantiles = reduction(nine_quantiles)


@reduction
def effective_sample_size(ratio_N: Array) -> OptionalFloat:
    """(sum r)^2 / (n sum r^2); None where all squares are below the smallest double."""
    total = float(ratio_N.sum())
    squares = float(ratio_N @ ratio_N)
    return total * total / (squares * len(ratio_N)) if squares else None


@reduction
def chi_square(ratio_N: Array) -> float:
    """mean(r^2) - 1."""
    return float(ratio_N @ ratio_N) / len(ratio_N) - 1


@reduction
def k1(l_N: Array) -> float:
    """The mean of -l."""
    return float(-l_N.mean())


@reduction
def k3(l_N: Array, ratio_N: Array) -> float:
    """The mean of r - 1 - l."""
    return float((ratio_N - 1 - l_N).mean())


def metric(
    meaning: str, unit: str = "-", *, per: str | None = None, rule: Reduction | None = None
) -> Any:
    """A recorded number: its definition and its unit.

    `per` names the column of the same record that counts what the number is a mean over. A mean
    over several rows weighs each row by that column; without one every row counts alike. `rule`
    makes the number from a mini-batch's tensors; None: the engine knows it.
    """
    metadata = {"unit": unit, "meaning": meaning, "per": per, "rule": rule}
    return field(default=None, metadata=metadata)


def key(meaning: str) -> Any:
    """A field that every record has: part of its place, or always known."""
    return field(metadata={"unit": "-", "meaning": meaning, "per": None, "rule": None})
