"""The answer to a study's question, which may be what its claims say."""

from gspo_lab.claims.judge import judge
from gspo_lab.findings import Findings
from gspo_lab.findings.answer import Answer, Said, answer_of


def answer(found: Findings) -> Answer:
    """By the score, by stability, or by the claims that the question names."""
    asked = found.declaration.verdict.question
    named = [] if isinstance(asked, str) else [one for one in judge(found) if one.claim.id in asked]
    return answer_of(found, [Said(one.claim.id, one.word, one.reason) for one in named])
