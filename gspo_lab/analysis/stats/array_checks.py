"""Checks of the arrays that statistics take: finite floats with a known number of axes."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gspo_lab.common.errors import LabError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]


def finite(values: ArrayLike, name: str, axes: int = 1) -> Floats:
    """`values` as float64 with `axes` axes; LabError where a number is missing or infinite: no
    statistic skips it.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != axes:
        raise LabError(
            f"{name}: {array.ndim} axes where {axes} are needed, shape {array.shape}; reshape it"
        )
    if not np.isfinite(array).all():
        raise LabError(
            f"{name}: {int((~np.isfinite(array)).sum())} values are missing or infinite; carry or"
            " impute them"
        )
    return array


def whole_numbers(values: ArrayLike, name: str) -> Integers:
    """`values` as a flat array of counts >= 0; LabError for fractions and negative numbers."""
    array = finite(np.atleast_1d(np.asarray(values)), name)
    if (array < 0).any() or (array != np.floor(array)).any():
        raise LabError(
            f"{name}: counts are whole numbers from 0 on; found {array.min()} to {array.max()}"
        )
    return array.astype(np.int64)


def same_length(a: Any, b: Any, name: str) -> None:
    """LabError unless both have as many values."""
    if len(a) != len(b):
        raise LabError(f"{name}: {len(a)} and {len(b)} values; give as many of each, pair by pair")


def share(value: float, name: str) -> float:
    """`value` if it lies strictly between 0 and 1."""
    if not 0 < value < 1:
        raise LabError(f"{name} is {value}; it lies between 0 and 1")
    return value
