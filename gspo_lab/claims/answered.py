"""The answer to a study's question, which may be what its claims say."""

from gspo_lab.claims.judge import judge
from gspo_lab.findings import Findings
from gspo_lab.findings.answer import Answer, answer_of


def answer(found: Findings) -> Answer:
    """By the score, by stability, or by the claims that the question names."""
    asked = found.declaration.verdict.question
    named = [] if isinstance(asked, str) else [one for one in judge(found) if one.claim.id in asked]
    return answer_of(found, [one.verdict for one in named])
