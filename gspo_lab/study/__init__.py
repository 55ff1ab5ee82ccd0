"""Studies: from a TOML file to resolved runs, without importing torch, numpy or pandas."""

from gspo_lab.study.declaration import Arm, ArmsByName, Declaration, Edit, Sweep, digest
from gspo_lab.study.dotted_keys import flat
from gspo_lab.study.import_origin import Origin
from gspo_lab.study.load import load_study
from gspo_lab.study.schema import BenchTable, Settings
from gspo_lab.study.study import Run, Study, aa_study
from gspo_lab.study.verdict_tables import ClaimTable, VerdictTable

__all__ = [
    "Arm",
    "ArmsByName",
    "BenchTable",
    "ClaimTable",
    "Declaration",
    "Edit",
    "Origin",
    "Run",
    "Settings",
    "Study",
    "Sweep",
    "VerdictTable",
    "aa_study",
    "digest",
    "flat",
    "load_study",
]
