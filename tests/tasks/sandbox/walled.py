"""What the sandbox's tests share: limits, and what lies on the host around a sandbox."""

import json
from dataclasses import dataclass
from pathlib import Path

from gspo_lab.tasks.sandbox import Limits, Sandbox

TIGHT = Limits(
    seconds=1.0, memory_bytes=256 << 20, output_bytes=1 << 20, processes=16, file_bytes=4 << 20
)
OPEN: list[Sandbox] = []
"""The sandboxes of this process; their uids are nobody else's as long as they are open."""


@dataclass(frozen=True)
class Host:
    """What lies on the machine for a program to reach for, and what reached us."""

    folder: Path
    facts: dict[str, object]
    reached: list[str]

    def stdin(self, attack: str) -> bytes:
        return json.dumps({**self.facts, "attack": attack}).encode() + b"\n"
