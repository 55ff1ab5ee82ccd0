"""Pure functions over arrays: from scores per seed to a verdict, and simulations of its error
rates. No I/O.
"""

from gspo_lab.analysis.stats.levels import holm
from gspo_lab.analysis.stats.paired import PairedT, TwoWay, paired_t, two_way
from gspo_lab.analysis.stats.verdict import (
    Comparison,
    Rule,
    Scores,
    Verdict,
    decide,
    decide_all,
)

__all__ = [
    "Comparison",
    "PairedT",
    "Rule",
    "Scores",
    "TwoWay",
    "Verdict",
    "decide",
    "decide_all",
    "holm",
    "paired_t",
    "two_way",
]
