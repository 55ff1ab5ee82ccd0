"""The English of verdicts, their reasons and the answer to a study's question.

All other packages work with codes and data (`stats.verdict.Verdict`, `Reason`), and never read these texts.
"""

from gspo_lab.words.answers import answer_sentences, answer_text, best_arms, chip, ground_text, lines, unstable_runs
from gspo_lab.words.answers import to_json as answer_to_json
from gspo_lab.words.decision import became, decided_sentences, flags
from gspo_lab.words.reasons import label, reason_text, sentences, short, tone
from gspo_lab.words.verdicts import because, claim_to_json, headline, sentence

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
]  # fmt: skip
