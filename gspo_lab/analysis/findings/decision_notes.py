"""What a reader of verdicts must know beside them."""

from gspo_lab.analysis.findings.decision import Decision, Ungraded
from gspo_lab.common.reason import sentences
from gspo_lab.common.text import MINUS, capital, signed


def flags(decided: Decision) -> list[str]:
    """What a reader of the verdicts must know of single runs, which all count, and of looks."""
    matched = decided.matched
    notes = [
        *matched.on_trust,
        matched.grade,
        "" if matched.tuning is None else matched.tuning.detail,
    ]
    lines = [f"{capital(note)}." for note in notes if note]
    collapsed = []
    dead = []
    carried = []
    for run in decided.ended:
        name = f"{run.arm} seed {run.seed}"
        if run.collapsed:
            collapsed.append(name)
        if run.nonfinite:
            dead.append(f"{name} ({run.nonfinite})")
        if run.carried:
            carried.append(name)
    titles = {
        "Collapsed and still counted": collapsed,
        "Updates that were not finite, skipped or of a dead model": dead,
        "Evaluations that could not be graded repeat the one before": carried,
    }
    lines += [f"{title}: {', '.join(names)}." for title, names in titles.items() if names]
    lines += map(ungraded, decided.ungraded.values())
    if decided.stopped:
        seeds = len(decided.seeds)
        lines.append(f"Resolved at the declared look after {seeds} of {decided.planned} seeds.")
    return [*lines, *sentences(decided.described)]


def ungraded(answers: Ungraded) -> str:
    """The second reading of answers that were not graded."""
    verdict = answers.verdict
    number = ""
    if verdict.estimate is not None:
        number = f" {verdict.subject} {MINUS} {verdict.baseline} is {signed(verdict.estimate)}:"
    return f"Answers not graded: {answers.counts}. Counted as incorrect,{number} {verdict.label}."
