"""What the sandbox's tests share: limits, a sandbox behind one kind of walls, and what lies on the host around it."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from gspo_lab.errors import LabError
from gspo_lab.sandbox import Limits, Sandbox
from gspo_lab.sandbox.walls import Kind

KINDS: tuple[Kind, ...] = ("bubblewrap", "landlock")
TIGHT = Limits(seconds=1.0, memory_bytes=256 << 20, output_bytes=1 << 20, processes=16, file_bytes=4 << 20)
OPEN: list[Sandbox] = []
"""The sandboxes of this process; their uids are nobody else's as long as they are open."""


def opened(kind: Kind, slots: int) -> Sandbox:
    try:
        made = Sandbox.open(kinds=(kind,), slots=slots)
    except LabError as error:
        pytest.skip("; ".join(error.details))
    return made


@dataclass(frozen=True)
class Host:
    """What lies on the machine for a program to reach for, and what reached us."""

    folder: Path
    facts: dict[str, object]
    reached: list[str]

    @property
    def stdin(self) -> bytes:
        return json.dumps(self.facts).encode() + b"\n"
