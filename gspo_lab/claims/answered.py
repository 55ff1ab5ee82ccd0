"""The answer to a study's question, which may be what its claims say."""

from gspo_lab.claims.judge import judge
from gspo_lab.findings.answer import Answer, answer_of
from gspo_lab.readings import Source


def answer(of: Source) -> Answer:
    """By the score, by stability, or by the claims that the question names."""
    question = of.declaration.verdict.question
    named = [] if isinstance(question, str) else [result for result in judge(of) if result.claim.id in question]
    return answer_of(of, [result.verdict for result in named])
