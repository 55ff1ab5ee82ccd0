"""Run a study: declare it, prepare it, start its workers and follow their journals."""

from gspo_lab.running.conduct.run_study import conduct
from gspo_lab.running.conduct.study_outcome import StudyOutcome, outcome

__all__ = ["StudyOutcome", "conduct", "outcome"]
