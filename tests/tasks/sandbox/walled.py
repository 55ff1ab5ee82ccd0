"""What the sandbox's tests share: limits, and what lies on the host around a sandbox."""

import json
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from gspo_lab.tasks.sandbox import ExecutionResult, Limits, Program, Sandbox

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


HONEST = Program("print(int(input()) + 1)")


def neighbours(
    sandbox: Sandbox, others: Sequence[Future[list[ExecutionResult]]]
) -> list[ExecutionResult]:
    """The outcomes of an honest program.

    It adds 1 to 41 three times a second until the others are done.
    """

    def go_on(index: int, outcome: ExecutionResult) -> bool:
        time.sleep(0.3)
        return not all(other.done() for other in others)

    return sandbox.run(HONEST, [b"41"] * 9999, TIGHT, go_on=go_on)
