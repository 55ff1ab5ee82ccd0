"""The conduct room: runs a study. It declares it, prepares it, keeps the workers busy and follows their journals."""

from gspo_lab.conduct.plan import Plan, plan
from gspo_lab.conduct.run import conduct
from gspo_lab.conduct.summary import ArmResult, StudyOutcome

__all__ = ["ArmResult", "Plan", "StudyOutcome", "conduct", "plan"]
