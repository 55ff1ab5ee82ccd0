"""Results as plain data, for a report's .json and for scripts."""

from typing import Any

from gspo_lab.claims.claim import Claim, Result
from gspo_lab.claims.parts import Part


def interval(part: Part) -> tuple[float, float] | None:
    """A part's 95 % interval, None where it has none."""
    return None if part.low is None or part.high is None else (part.low, part.high)


def as_data(result: Result) -> dict[str, Any]:
    """One result, JSON-able."""
    reading = result.reading
    return {
        **describe(result.claim),
        "word": result.word,
        "reason": result.reason,
        "declared": result.declared,
        "arms": dict(result.roles),
        "p": result.p,
        "p_adjusted": result.p_adjusted,
        "parts": [] if reading is None else [_part(part) for part in reading.parts],
        "also": [] if reading is None else [_part(part) for part in reading.also],
    }


def describe(claim: Claim) -> dict[str, Any]:
    """One entry of the library, JSON-able."""
    return {
        "id": claim.id,
        "grade": claim.grade,
        "statement": claim.statement,
        "source": claim.source,
        "source_value": claim.value,
        "criterion": claim.criterion,
        "needs": [need.text for need in claim.needs],
        "roles": list(claim.roles),
        "counter_evidence": [{"text": one.text, "source": one.source} for one in claim.counter],
        "unrecorded": claim.unrecorded,
    }


def _part(part: Part) -> dict[str, Any]:
    return {
        "name": part.name,
        "criterion": part.criterion,
        "n": part.n,
        "estimate": part.estimate,
        "low": part.low,
        "high": part.high,
        "p": part.p,
        "side": part.side,
        "detectable": part.detectable,
        "note": part.note,
    }
