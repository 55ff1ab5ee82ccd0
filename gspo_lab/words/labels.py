"""A verdict in a few words, always with its subject or beside it."""

from typing import Literal

from gspo_lab.stats.verdict import Verdict, Word

Tone = Literal["decided", "leaning", "worse", "open", "missing"]

SHORT: dict[Word, str] = {
    "better beyond margin": "{better} by more than the margin",
    "practically equivalent": "equivalent within the margin",
    "better, size not resolved against the margin": "{better}, not shown to exceed the margin",
    "as stable": "equally stable",
    "not resolved": "inconclusive",
    "withheld": "no verdict",
}
"""The words that read otherwise than their codes."""

APART: dict[Word, str] = {
    "better beyond margin": "{better} than {second} by more than the margin{about}",
    "better, size not resolved against the margin": "{better} than {second}{about}, not shown to exceed the margin",
    "more stable": "more stable than {second}{about}",
    "less stable": "less stable than {second}{about}",
}
ALIKE: dict[Word, str] = {
    "practically equivalent": "equivalent within the margin",
    "as stable": "equally stable",
}


def better(verdict: Verdict) -> str:
    """The comparative that its direction asks for."""
    return "worse" if verdict.direction < 0 else "better"


def short(verdict: Verdict) -> str:
    """The verdict's word for people, to stand beside its subject."""
    return SHORT.get(verdict.word, verdict.word).format(better=better(verdict))


def tone(verdict: Verdict) -> Tone:
    """How the word looks: never green where it speaks against its subject."""
    if verdict.word == "not testable here":
        return "missing"
    if not verdict.resolved:
        return "open"
    if verdict.direction < 0:
        return "worse"
    return "leaning" if verdict.word == "better, size not resolved against the margin" else "decided"


def label(verdict: Verdict) -> str:
    """Subject, baseline and word, without a verb."""
    subject, baseline = verdict.subject, verdict.baseline
    if baseline is None:
        return f"{subject} {short(verdict)}"
    if verdict.word in APART:
        return f"{subject} {APART[verdict.word].format(better=better(verdict), second=baseline, about='')}"
    if verdict.word in ALIKE:
        return f"{subject} and {baseline} {ALIKE[verdict.word]}"
    return f"{subject} against {baseline}: {short(verdict)}"
