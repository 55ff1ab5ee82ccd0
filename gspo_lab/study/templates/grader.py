"""The reward: what an answer to a problem of problems.jsonl earns."""


def grade(problem, answer):
    """1 for the right number, a tenth for another one, else 0. A reward of 1 is correct."""
    words = answer.split()
    if not words:
        return 0.0
    if words[0] == problem.reference:
        return 1.0
    return 0.1 if words[0].isdigit() else 0.0
