"""Runs programs that nobody has read, without harm to the machine and without a way to a verdict they did not earn."""

from gspo_lab.sandbox.program import ExecutionResult, Limits, Program, SandboxFailed
from gspo_lab.sandbox.sandbox import Sandbox

__all__ = ["ExecutionResult", "Limits", "Program", "Sandbox", "SandboxFailed"]
