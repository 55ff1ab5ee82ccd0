"""Verdicts, claims and answers for the report: what its .json and its notes say of them."""

from typing import Any, Literal

from gspo_lab.analysis.claims import Estimate, Result
from gspo_lab.analysis.findings.answer import StudyAnswer
from gspo_lab.analysis.findings.decision import Decision, Ungraded
from gspo_lab.analysis.findings.executions import VerdictReplication
from gspo_lab.analysis.stats.random_effects import CombinedEstimate
from gspo_lab.analysis.stats.verdict import NOT_SHOWN_BEYOND, Verdict
from gspo_lab.common.reason import sentences
from gspo_lab.common.text import MINUS, capital, signed

Tone = Literal["decided", "leaning", "worse", "open", "missing"]


def tone(verdict: Verdict) -> Tone:
    """How the word looks: never green where it speaks against its subject."""
    if verdict.word == "not testable here":
        return "missing"
    if not verdict.resolved:
        return "open"
    if verdict.direction < 0:
        return "worse"
    return "leaning" if verdict.word in NOT_SHOWN_BEYOND else "decided"


SHOWN = ("name", "criterion", "n", "estimate", "low", "high", "p", "side", "word", "detectable")
"""The fields of an estimate that plain data hold."""


def claim_to_json(result: Result) -> dict[str, Any]:
    """For a report's .json and for scripts."""

    def number(part: Estimate) -> dict[str, Any]:
        note = part.reason and part.reason.text
        return {**{name: getattr(part, name) for name in SHOWN}, "note": note}

    return {
        **result.claim.as_data(),
        "word": result.word,
        "reason": result.verdict.because,
        "codes": [reason.code for reason in result.reasons],
        "declared": result.declared,
        "arms": dict(result.roles),
        "unstable_runs": {arm: {"runs": k, "of": n} for arm, (k, n) in result.unstable.items()},
        "p": result.p,
        "p_adjusted": result.p_adjusted,
        "parts": list(map(number, result.parts)),
        "also": list(map(number, result.supplementary)),
    }


def answer_to_json(answer: StudyAnswer) -> dict[str, str]:
    """Plain data, as the report's JSON has it."""
    return {
        "word": answer.word,
        "colour": answer.colour,
        "label": answer.label,
        "said": answer.text,
        "rests_on": answer.ground,
        "next": answer.command,
    }


def flags(decided: Decision) -> list[str]:
    """What a reader of the verdicts must know of single runs and of looks.

    All of these runs are counted.
    """
    ended = [(f"{run.arm} seed {run.seed}", run) for run in decided.ended]
    dead = [f"{name} ({run.nonfinite})" for name, run in ended if run.nonfinite]
    runs = {
        "Collapsed and still counted": [name for name, run in ended if run.collapsed],
        "Updates that were not finite, skipped or of a dead model": dead,
        "Evaluations that could not be graded repeat the one before": [
            name for name, run in ended if run.carried
        ],
    }
    tuning = decided.matched.tuning
    looked = f"Resolved at the declared look after {len(decided.seeds)} of {decided.planned} seeds."
    return [
        *(
            f"{capital(note)}."
            for note in (*decided.matched.on_trust, decided.matched.grade)
            if note
        ),
        *([] if tuning is None else [f"{capital(tuning.detail)}."]),
        *(f"{title}: {', '.join(names)}." for title, names in runs.items() if names),
        *(ungraded(answers) for answers in decided.ungraded.values()),
        *([looked] if decided.stopped else []),
        *sentences(decided.described),
    ]


def ungraded(lacking: Ungraded) -> str:
    """The second reading of answers that were not graded."""
    verdict = lacking.verdict
    apart = f"{verdict.subject} {MINUS} {verdict.baseline}"
    number = "" if verdict.estimate is None else f" {apart} is {signed(verdict.estimate)}:"
    return f"Answers not graded: {lacking.counts}. Counted as incorrect,{number} {verdict.label}."


def became(word: VerdictReplication) -> str:
    """A verdict of one execution, and what a later one makes of it."""
    by = "in" if word.fate == "confirmed" else "by"
    return f"{word.by}: {word.verdict.label}; {word.fate} {by} {word.later}."


def precision_note(both: CombinedEstimate) -> str:
    """What so many executions can show."""
    if both.k == 1:
        return "The executions share their seeds: each seed counts once, by its mean over them."
    if both.k > 2:
        return f"{both.k} executions on seeds of their own."
    return (
        "Two executions on seeds of their own: the combined interval is wide, because one"
        " difference says almost nothing about how executions vary. They can contradict each other,"
        " and hardly confirm."
    )
