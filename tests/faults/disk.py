"""A disk that refuses, or a process that dies, at a chosen operation on a file.

It runs in a child of the suite.

Nothing of the package is changed. Python's audit hook tells each file that is opened for writing,
moved or deleted; `os.fsync` and the writing of Python's own files are wrapped; SQLite tells each of
its statements; and a limit on the size of files reaches what torch, safetensors and SQLite write by
themselves.
"""

import builtins
import errno
import io
import os
import resource
import signal
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KILL = "kill"
TORN = "torn"
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
MOVES = {"os.rename": "rename", "os.remove": "unlink", "os.rmdir": "unlink", "os.mkdir": "mkdir"}


@dataclass(frozen=True)
class Fault:
    """What happens at the operation number `at` (-1: none).

    SIGKILL before it, SIGKILL with half of it written, or the error of this name. A `lasting` error
    also meets later operations of its kind. No file grows beyond `largest` bytes: its writer is
    killed there, or refused.
    """

    how: str = KILL
    at: int = -1
    lasting: bool = False
    largest: int | None = None


class Disk:
    """What happens to files below a folder, counted, and told to the descriptor `log`."""

    def __init__(self, below: Path, fault: Fault, log: int) -> None:
        self.below = str(below)
        self.fault = fault
        self.log = log
        self.count = 0
        self.struck = ""

    def holds(self, path: object) -> bool:
        """Whether the file lies below the folder."""
        return isinstance(path, str | os.PathLike) and os.path.abspath(path).startswith(self.below)  # noqa: PTH100

    def meet(self, kind: str, path: object, begin: Callable[[], Any] = lambda: None) -> None:
        """An operation is about to be made; `begin` makes half of it."""
        mine = self.count == self.fault.at
        self.count += 1
        os.write(self.log, f"{kind} {Path(str(path)).name}\n".encode())
        if not mine and not (self.fault.lasting and self.struck == kind):
            return
        self.struck = kind
        if self.fault.how == TORN:
            begin()
        if self.fault.how in (KILL, TORN):
            os.kill(os.getpid(), signal.SIGKILL)
        code = getattr(errno, self.fault.how)
        raise OSError(code, os.strerror(code), str(path))

    def told(self, event: str, of: tuple[Any, ...]) -> None:
        """The audit hook."""
        if event == "open" and isinstance(of[2], int) and of[2] & WRITING and self.holds(of[0]):
            self.meet("open", of[0])
        elif event in MOVES and (
            of[-1] != -1 or self.holds(of[0])
        ):  # or a name below an open folder
            self.meet(MOVES[event], of[0])

    def install(self) -> None:
        """From now on, for good."""
        disk = self
        fsync = os.fsync
        opened = io.open
        connect = sqlite3.connect
        if self.fault.largest is not None:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.fault.largest, self.fault.largest))
            signal.signal(
                signal.SIGXFSZ, signal.SIG_DFL if self.fault.how == KILL else signal.SIG_IGN
            )

        class File(io.FileIO):
            def write(self, data: Any) -> int:
                disk.meet(
                    "write", self.name, lambda: io.FileIO.write(self, bytes(data)[: len(data) // 2])
                )
                return super().write(data)

        def open_(file: Any, mode: str = "r", buffering: int = -1, *how: Any, **named: Any) -> Any:
            if not set(mode) & set("wax+") or not disk.holds(file):
                return opened(file, mode, buffering, *how, **named)
            raw = File(file, mode.replace("b", "").replace("t", ""))
            if buffering == 0:
                return raw
            stream = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            return stream if "b" in mode else io.TextIOWrapper(stream, *how, **named)

        def fsync_(descriptor: int) -> None:
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            if disk.holds(path):
                disk.meet("fsync", path)
            fsync(descriptor)

        def connect_(database: Any, *how: Any, **named: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(database, *how, **named)
            if disk.holds(database) and not str(database).startswith(("file:", ":")):
                connection.set_trace_callback(
                    lambda statement: disk.meet(f"sqlite {statement.split()[0].lower()}", database)
                )
            return connection

        io.open = open_
        builtins.open = open_
        os.fsync = fsync_  # type: ignore[assignment]
        sqlite3.connect = connect_  # type: ignore[assignment]
        sys.addaudithook(self.told)
