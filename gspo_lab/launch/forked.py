"""The conductor's side of the warm process from which local workers are forked (`gspo_lab.forkserver`)."""

import os
import signal
import subprocess
import sys
import weakref
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import ClassVar

from gspo_lab.launch.base import Slot
from gspo_lab.runfolder import WorkFolder
from gspo_lab.states import Exit, State


class Forkserver:
    """Starts the process with the first worker, and another one where it was killed. It ends with this object."""

    def __init__(self) -> None:
        self._server: Server | None = None

    def start(self, folder: Path, slot: Slot) -> "ForkedProcess | None":
        """Have a worker forked; None where the process has just died. All slots must have the same environment."""
        if self._server is None or self._server.gone:
            self._server = Server(slot)
        return self._server.start(folder, slot)


class Server:
    """One such process, in the environment of a slot."""

    def __init__(self, slot: Slot) -> None:
        self._orders, theirs = Pipe()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "gspo_lab.forkserver", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **slot.environment},
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
        self.gone = False
        self._pid = process.pid
        self._asked = 0
        self._codes: dict[int, int] = {}
        weakref.finalize(self, _end, self._orders, process)

    def start(self, folder: Path, slot: Slot) -> "ForkedProcess | None":
        """Order a worker on `folder`, which begins as soon as the server has imported what it needs; None where there
        is nobody to hear the order whole: then none begins."""
        self._asked += 1
        with WorkFolder(folder).log.open("ab") as log:
            heard = self.order(self._asked, folder.absolute(), log.fileno())
        return ForkedProcess(self, self._asked, slot.name) if heard else None

    def order(self, number: int, what: object, log: int | None = None) -> bool:
        """Send an order, and a log's descriptor with it; whether there was somebody to hear it."""
        try:
            self._orders.send((number, what))
            if log is not None:
                send_handle(self._orders, log, self._pid)
        except OSError:
            self.gone = True
        return not self.gone

    def code(self, number: int, *, wait: bool = False) -> int | None:
        """The exit code of a worker, LOST where the server has gone; None while it works."""
        try:
            while (wait and number not in self._codes) or self._orders.poll():
                ended, code = self._orders.recv()
                self._codes[ended] = code
        except (EOFError, OSError):
            self.gone = True
        return self._codes.get(number, Exit.LOST if self.gone else None)


def _end(orders: Connection, process: "subprocess.Popen[bytes]") -> None:
    orders.close()
    process.kill()  # it may be in the middle of importing
    process.wait()


@dataclass(frozen=True)
class ForkedProcess:
    """A worker that the server was asked for, by its number there."""

    server: Server
    number: int
    place: str
    state: ClassVar[State] = State.RUNNING

    def poll(self) -> int | None:
        """Its exit code; None while it works."""
        return self.server.code(self.number)

    def stop(self) -> None:
        """Ask it to finish its step, save and leave."""
        self.server.order(self.number, signal.SIGINT)

    def kill(self) -> None:
        """End it and all that it has started, and wait until it is gone."""
        if self.server.order(self.number, signal.SIGKILL):
            self.server.code(self.number, wait=True)
