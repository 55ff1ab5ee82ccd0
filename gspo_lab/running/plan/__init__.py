"""The plan room: what can be said of a study before it runs.

Its cost, its memory, what it could find, its mistakes.
"""

from gspo_lab.running.plan.plan import Plan, plan

__all__ = ["Plan", "plan"]
