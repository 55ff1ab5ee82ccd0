"""How a recorded number is declared: its unit, its meaning, and the count that weighs it in means.

A field of a record with both is a column of the database under the same name, an entry of the
reference and a caption of the report.
"""

import math
from collections.abc import Callable
from dataclasses import field
from typing import Any

from gspo_lab.common.plain_data import OptionalFloat

QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
"""The nine quantiles of every recorded distribution."""


def rounded(values: list[float]) -> list[OptionalFloat]:
    """Seven significant digits, as float32 has, in half the bytes; None for what is not finite."""
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values]


def nine_quantiles(ascending_N: Any) -> list[OptionalFloat]:
    """The nine quantiles of ascending numbers."""
    last = len(ascending_N) - 1
    return rounded([float(ascending_N[round(level * last)]) for level in QUANTILES])


def metric(
    meaning: str, unit: str = "-", *, per: str | None = None, rule: Callable[..., Any] | None = None
) -> Any:
    """A recorded number: its definition and its unit.

    `per` names the column of the same record that counts what the number is a mean over. A mean
    over several rows weighs each row by that column; without one every row counts alike. `rule`
    makes the number from a mini-batch's arrays (`update.Reduction`); None: the engine knows it.
    """
    metadata = {"unit": unit, "meaning": meaning, "per": per, "rule": rule}
    return field(default=None, metadata=metadata)


def key(meaning: str) -> Any:
    """A field that every record has: part of its place, or always known."""
    return field(metadata={"unit": "-", "meaning": meaning, "per": None, "rule": None})
