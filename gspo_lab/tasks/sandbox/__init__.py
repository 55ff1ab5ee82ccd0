"""Runs untrusted programs without harm to the machine, and without a way to a verdict that they did
not earn.
"""

from gspo_lab.tasks.sandbox.program import ExecutionResult, Limits, Program, SandboxFailed
from gspo_lab.tasks.sandbox.sandbox import Sandbox

__all__ = ["ExecutionResult", "Limits", "Program", "Sandbox", "SandboxFailed"]
