"""The checks of a whole record that a report leaves to `gspo-lab certify`: they cost as much as reading all again."""

from gspo_lab.matching.pairing import NOT_VERIFIED, Check

JOURNALS, REGRADED, SIGNATURE = "journals", "regraded", "signature"
UNVERIFIED = tuple(
    Check(name, NOT_VERIFIED, "not verified here; gspo-lab certify does") for name in (JOURNALS, REGRADED, SIGNATURE)
)
