"""Runs programs that nobody has read, without harm to the machine and without a way to a verdict they did not earn."""

from gspo_lab.sandbox.program import (
    Ending,
    ExecutionResult,
    GoOn,
    Job,
    Limits,
    Program,
    SandboxFailed,
    always,
    while_finished,
)
from gspo_lab.sandbox.sandbox import Sandbox

__all__ = [
    "Ending",
    "ExecutionResult",
    "GoOn",
    "Job",
    "Limits",
    "Program",
    "Sandbox",
    "SandboxFailed",
    "always",
    "while_finished",
]
