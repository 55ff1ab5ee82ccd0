"""The study room: from a TOML file to resolved runs. Imports no torch, numpy or pandas."""

from gspo_lab.study.load import load_study
from gspo_lab.study.schema import BenchTable, ClaimTable, Settings, VerdictTable
from gspo_lab.study.study import Arm, Run, Study, against_itself, digest, first_settled, flat, lock_digest

__all__ = [
    "Arm",
    "BenchTable",
    "ClaimTable",
    "Run",
    "Settings",
    "Study",
    "VerdictTable",
    "against_itself",
    "digest",
    "first_settled",
    "flat",
    "load_study",
    "lock_digest",
]
