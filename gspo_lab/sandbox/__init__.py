"""Runs programs that nobody has read, without harm to the machine and without a way to a verdict they did not earn."""

from gspo_lab.sandbox.program import Ending, GoOn, Job, Limits, Outcome, Program, SandboxFailed, always, while_finished
from gspo_lab.sandbox.sandbox import Sandbox

__all__ = [
    "Ending",
    "GoOn",
    "Job",
    "Limits",
    "Outcome",
    "Program",
    "Sandbox",
    "SandboxFailed",
    "always",
    "while_finished",
]
