"""What became of verdicts in later executions of the same study, in English."""

from collections.abc import Mapping

from gspo_lab.findings.executions import VerdictReplication
from gspo_lab.stats.executions import Fate, Together
from gspo_lab.stats.paired import t_quantile
from gspo_lab.words.labels import label

FATES: Mapping[Fate, str] = {"taken back": "contradicted", "not said again": "not confirmed", "held": "confirmed"}
"""The worst one first."""


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
