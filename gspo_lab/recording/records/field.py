"""How a recorded number tells its unit, its meaning, and the weight with which its rows are
pooled.
"""

from dataclasses import field
from typing import Any


def metric(unit: str, meaning: str, default: Any = None, per: str | None = None) -> Any:
    """A recorded number: its unit, its definition and `per`, the column of the same record that
    counts what it is a mean over. A mean over several rows weighs each row by that column; without
    one every row counts alike.
    """
    return field(default=default, metadata={"unit": unit, "meaning": meaning, "per": per})


def key(meaning: str) -> Any:
    """A field that every record has: part of its place, or always known."""
    return field(metadata={"unit": "-", "meaning": meaning, "per": None})
