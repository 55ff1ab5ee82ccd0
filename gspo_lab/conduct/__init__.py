"""Run a study: declare it, prepare it, start its workers and follow their journals."""

from gspo_lab.conduct.run import StudyRunResult, conduct
from gspo_lab.conduct.summary import ArmResult, StudyOutcome, outcome

__all__ = ["ArmResult", "StudyOutcome", "StudyRunResult", "conduct", "outcome"]
