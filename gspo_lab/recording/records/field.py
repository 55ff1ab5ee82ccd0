"""How a recorded number tells its unit, its meaning, the weight with which its rows are pooled, and
the rule by which it is made.
"""

from dataclasses import field
from typing import Any

from gspo_lab.recording.records.reduction import Reduction


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
