"""The conduct room: runs a study. It declares it, prepares it, keeps the workers busy and follows their journals."""

from gspo_lab.conduct.run import StudyRunResult, conduct
from gspo_lab.conduct.summary import ArmResult, StudyOutcome, outcome

__all__ = ["ArmResult", "StudyOutcome", "StudyRunResult", "conduct", "outcome"]
