"""The English of verdicts, their reasons and the answer to a study's question.

All other packages work with codes and data (`stats.verdict.Verdict`, `Reason`), and never read
these texts.
"""

from gspo_lab.report.words.reasons import label, reason_text, sentences, short, tone
from gspo_lab.report.words.verdicts import (
    answer_sentences,
    answer_text,
    answer_to_json,
    became,
    because,
    best_arms,
    chip,
    claim_to_json,
    decided_sentences,
    flags,
    ground_text,
    headline,
    lines,
    sentence,
    unstable_runs,
)

__all__ = [
    "answer_sentences",
    "answer_text",
    "answer_to_json",
    "became",
    "because",
    "best_arms",
    "chip",
    "claim_to_json",
    "decided_sentences",
    "flags",
    "ground_text",
    "headline",
    "label",
    "lines",
    "reason_text",
    "sentence",
    "sentences",
    "short",
    "tone",
    "unstable_runs",
]
