"""The study room: from a TOML file to resolved runs. Imports no torch, numpy or pandas."""

from gspo_lab.study.dotted import flat
from gspo_lab.study.load import load_study
from gspo_lab.study.schema import BenchTable, ClaimTable, Settings, VerdictTable
from gspo_lab.study.study import (
    Arm,
    Run,
    Study,
    against_itself,
    baseline_of,
    digest,
    first_settled,
    lock_digest,
    primary_of,
    settled_since,
)

__all__ = [
    "Arm",
    "BenchTable",
    "ClaimTable",
    "Run",
    "Settings",
    "Study",
    "VerdictTable",
    "against_itself",
    "baseline_of",
    "digest",
    "first_settled",
    "flat",
    "load_study",
    "lock_digest",
    "primary_of",
    "settled_since",
]
