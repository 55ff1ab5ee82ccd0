"""What can be said of an engine before any compute."""

from pathlib import Path

from gspo_lab.engines import ENGINES
from gspo_lab.registry import check_callable, known, look_up

METHODS = ("train",)


def check_engine(name: str, base: Path | None = None) -> None:
    """LabError where no engine is called `name`, or where what it names from outside cannot be one."""
    known("engine", name, ENGINES)
    if name not in ENGINES:
        check_callable("engine", name, look_up("engine", name, ENGINES, base), (), METHODS)
