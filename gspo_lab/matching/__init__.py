"""Whether runs are matched, proven from what they recorded; and where two runs part. Reads Evidence, writes nothing
but a study's accepted.json."""

from gspo_lab.matching.certificate import Certificate, Pair, accept_mismatch, certificate, reason_in_words
from gspo_lab.matching.pairing import Check, State
from gspo_lab.matching.why import Difference, why

__all__ = [
    "Certificate",
    "Check",
    "Difference",
    "Pair",
    "State",
    "accept_mismatch",
    "certificate",
    "reason_in_words",
    "why",
]
