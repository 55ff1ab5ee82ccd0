"""What is published beside the claims: evidence against them, statements that no study tests."""

from collections.abc import Mapping
from dataclasses import dataclass

from gspo_lab.common.plain_data import table_beside

_TABLES = table_beside(__file__, "published.toml")
UNTESTED: Mapping[str, str] = _TABLES["untested"]
"""Statements of the literature that gspo-lab cannot test, each with what a test lacks.

Studies may name them.
"""


@dataclass(frozen=True)
class CounterEvidence:
    """Published evidence that speaks against a claim, or limits it."""

    text: str
    source: str


def counter_evidence(claim: str) -> tuple[CounterEvidence, ...]:
    """What is published against a claim of the library."""
    return tuple(
        CounterEvidence(**_TABLES["evidence"][name]) for name in _TABLES["against"].get(claim, ())
    )
