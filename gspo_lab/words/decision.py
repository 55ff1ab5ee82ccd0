"""The decision on a study in English: what it says of each arm, what a reader must know of single runs, and what became
of its verdicts in later executions."""

from collections.abc import Mapping

from gspo_lab.findings.decision import Decision
from gspo_lab.findings.executions import VerdictReplication
from gspo_lab.findings.outcomes import RunOutcome
from gspo_lab.findings.ungraded import Ungraded
from gspo_lab.stats.executions import Fate, Together
from gspo_lab.stats.paired import t_quantile
from gspo_lab.words.labels import label
from gspo_lab.words.reasons import sentences
from gspo_lab.words.sweeps import swept
from gspo_lab.words.text import MINUS, capital, signed
from gspo_lab.words.verdicts import sentence

FATES: Mapping[Fate, str] = {"taken back": "contradicted", "not said again": "not confirmed", "held": "confirmed"}
"""The worst one first."""


def decided_sentences(decided: Decision) -> list[str]:
    """One per verdict; where no score can decide, what stands in their place."""
    if decided.verdicts:
        return [sentence(verdict) for verdict in decided.verdicts.values()]
    return sentences([decided.reason]) if decided.reason else [f"{line}." for line in swept(decided)]


def flags(decided: Decision) -> list[str]:
    """What a reader of the verdicts must know of single runs and of looks. All of these runs are counted."""
    runs = {
        "Collapsed and still counted": [_name(one) for one in decided.ended if one.collapsed],
        "Updates that were not finite, skipped or of a dead model": [
            f"{_name(one)} ({one.nonfinite})" for one in decided.ended if one.nonfinite
        ],
        "Evaluations that could not be graded repeat the one before": [
            _name(one) for one in decided.ended if one.carried
        ],
    }
    tuning = decided.matched.tuning
    looked = f"Resolved at the declared look after {len(decided.seeds)} of {decided.planned} seeds."
    return [
        *(f"{capital(one)}." for one in (*decided.matched.on_trust, decided.matched.grade) if one),
        *([] if tuning is None else [f"{capital(tuning.detail)}."]),
        *(f"{what}: {', '.join(names)}." for what, names in runs.items() if names),
        *(ungraded(one) for one in decided.ungraded.values()),
        *([looked] if decided.stopped else []),
        *sentences(decided.described),
    ]


def ungraded(lacking: Ungraded) -> str:
    """The second reading of answers that were not graded."""
    verdict = lacking.verdict
    apart = f"{verdict.subject} {MINUS} {verdict.baseline}"
    number = "" if verdict.estimate is None else f" {apart} is {signed(verdict.estimate)}:"
    return f"Answers not graded: {lacking.counts}. Counted as incorrect,{number} {label(verdict)}."


def _name(run: RunOutcome) -> str:
    return f"{run.arm} seed {run.seed}"


def became(word: VerdictReplication) -> str:
    """A verdict of one execution, and what a later one makes of it."""
    by = "in" if word.fate == "held" else "by"
    return f"{word.by}: {label(word.said)}; {FATES[word.fate]} {by} {word.later}."


def carries(both: Together) -> str:
    """What so many executions can show."""
    if both.k == 1:
        return "The executions share their seeds: each seed counts once, by its mean over them."
    times = f"{t_quantile(both.df, 1 - both.alpha / 2):.1f} standard errors to either side"
    if both.k > 2:
        return f"{both.k} executions on seeds of their own: the interval reaches {times}."
    return (
        f"Two executions on seeds of their own: the interval reaches {times}, because one difference says almost "
        "nothing about how executions vary. They can contradict each other, and hardly confirm."
    )
