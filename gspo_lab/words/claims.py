"""A claim's result as plain data, its reasons in English beside their codes."""

from typing import Any

from gspo_lab.claims import Estimate, Result
from gspo_lab.words.reasons import say
from gspo_lab.words.verdicts import because

SHOWN = ("name", "criterion", "n", "estimate", "low", "high", "p", "side", "word", "detectable")
"""The fields of an estimate that plain data hold."""


def claim_to_json(result: Result) -> dict[str, Any]:
    """For a report's .json and for scripts."""
    return {
        **result.claim.as_data(),
        "word": result.word,
        "reason": because(result.verdict) or "",
        "codes": [reason.code for reason in result.reasons],
        "declared": result.declared,
        "arms": dict(result.roles),
        "unstable_runs": {arm: {"runs": k, "of": n} for arm, (k, n) in result.unstable.items()},
        "p": result.p,
        "p_adjusted": result.p_adjusted,
        "parts": [_number(part) for part in result.parts],
        "also": [_number(part) for part in result.also],
    }


def _number(part: Estimate) -> dict[str, Any]:
    note = None if part.reason is None else say(part.reason)
    return {**{name: getattr(part, name) for name in SHOWN}, "note": note}
