"""Verdicts, claims and answers for the report's .json and notes."""

from gspo_lab.report.words.verdicts import (
    answer_to_json,
    became,
    claim_to_json,
    flags,
    precision_note,
    tone,
    ungraded,
)

__all__ = [
    "answer_to_json",
    "became",
    "claim_to_json",
    "flags",
    "precision_note",
    "tone",
    "ungraded",
]
