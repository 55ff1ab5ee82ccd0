"""A launcher by its name."""

from pathlib import Path

from gspo_lab.launch import LAUNCHERS
from gspo_lab.launch.base import Launcher
from gspo_lab.registry import check_callable, check_made, look_up

LOCAL = "local"
METHODS = ("slots", "start")


def make_launcher(name: str, jobs: int | None = None) -> Launcher:
    """The launcher `name` of the table, or an outsider's "module:attribute". LabError where there is no such one."""
    kind = look_up("launcher", name, LAUNCHERS, Path())
    check_callable("launcher", name, kind, ("jobs",), METHODS)
    made: Launcher = kind(jobs)
    check_made("launcher", name, made, METHODS)
    return made
