"""How a recorded number tells its unit and its meaning."""

from dataclasses import field
from typing import Any


def metric(unit: str, meaning: str, default: Any = None) -> Any:
    """A recorded number: its unit and its definition, kept beside the field."""
    return field(default=default, metadata={"unit": unit, "meaning": meaning})


def key(meaning: str) -> Any:
    """A field that every record has: part of its place, or always known."""
    return field(metadata={"unit": "-", "meaning": meaning})
