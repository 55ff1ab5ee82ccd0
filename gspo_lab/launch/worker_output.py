"""A worker's output: it is bounded, and a full disk does not end the run."""

import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

MOST_BYTES = 32 << 20
"""A longer log is emptied: its last lines say why a worker ended."""


def speak_into(log: Path) -> None:
    """Drop this process's output if it cannot be written, and keep `log` short if the output is appended to it.

    The size that other processes add to it is checked at this process's next write.
    """
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(_Output(number, log), encoding="utf-8", errors="backslashreplace", write_through=True)  # type: ignore[type-var]
        for number in (1, 2)
    )


class _Output(io.RawIOBase):
    def __init__(self, descriptor: int, log: Path) -> None:
        self._descriptor = descriptor
        with suppress(OSError):
            self._bounded = os.path.samestat(os.fstat(descriptor), log.stat())
            return
        self._bounded = False

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with suppress(OSError):
            if self._bounded and os.fstat(self._descriptor).st_size + len(data) > MOST_BYTES:
                os.ftruncate(self._descriptor, 0)
                os.write(self._descriptor, b"(what was said before is left out: the log had become too long)\n")
            os.write(self._descriptor, data[:MOST_BYTES])
        return len(data)
