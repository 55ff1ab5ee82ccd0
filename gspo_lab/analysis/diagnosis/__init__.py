"""Diagnosis of one training log, without a study: what was recognised, and a line per signal.

    log = read_log(RunSpec(source="verl", path="log.jsonl"))
    for signal in diagnose(log).signals: ...

`log` reads the log through the importers, `setup` finds what the run was made with, and a signal is
a function of `clipping`, `sampling` or `learning` with `@signal` (`signals`). `keys.toml` holds the
names of keys in each program.
"""

from gspo_lab.analysis.diagnosis.diagnose import Diagnosis, diagnose
from gspo_lab.analysis.diagnosis.log import TrainingLog, read_log
from gspo_lab.analysis.diagnosis.setup import Setup
from gspo_lab.analysis.diagnosis.signals import LEVELS, SIGNALS, Finding, Level

__all__ = [
    "LEVELS",
    "SIGNALS",
    "Diagnosis",
    "Finding",
    "Level",
    "Setup",
    "TrainingLog",
    "diagnose",
    "read_log",
]
