"""Check from recorded data whether runs are matched, and find where two runs first differ."""

from gspo_lab.analysis.matching.certificate import (
    Certificate,
    Pair,
    accept_mismatch,
    certificate,
    reason_in_words,
)
from gspo_lab.analysis.matching.first_difference import Difference, first_difference
from gspo_lab.analysis.matching.run_pair import Check, Match

__all__ = [
    "Certificate",
    "Check",
    "Difference",
    "Match",
    "Pair",
    "accept_mismatch",
    "certificate",
    "first_difference",
    "reason_in_words",
]
