"""What a launcher is: it knows the places where a worker can run, and starts one for a folder.

The command is always the same, `python -m gspo_lab.worker FOLDER`; who starts it makes no difference to what it does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Slot:
    """A place for one worker at a time: its name for people and what the worker's environment needs there."""

    name: str
    environment: Mapping[str, str]


class Process(Protocol):
    """A started worker. Its exit code: 0 finished, 3 stopped on request, 2 LabError, anything else a crash."""

    def poll(self) -> int | None:
        """The exit code, or None while it runs; -N where signal N ended it."""
        ...

    def stop(self) -> None:
        """Ask it to finish its step, save and leave."""
        ...

    def kill(self) -> None:
        """End it and whatever it started, now."""
        ...


class Launcher(Protocol):
    def slots(self, device: str) -> list[Slot]:
        """The places there are for workers on `device` (auto, cpu or cuda). Raises LabError where there are none."""
        ...

    def start(self, folder: Path, slot: Slot) -> Process:
        """Start a worker on `folder`, its output appended to `folder/log.txt`."""
        ...
