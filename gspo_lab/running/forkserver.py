"""A warm process from which the workers of one conductor are forked: `python -m
gspo_lab.running.forkserver SOCKET`.

A worker that starts as a command spends most of its start on importing torch and transformers. This
process imports them once. Each worker is a fork of it that runs `python -m gspo_lab.running.worker
FOLDER` with its own process group, log file and exit code. The server computes nothing and has one
thread, so that a fork equals a fresh process.

The standard library's multiprocessing forkserver does the same for functions. But it imports the
caller's main module in each child, which breaks scripts without a guard, and shares the caller's
output and Ctrl-C.

    conductor -> server     (number, folder): start a worker
                            (number, signal): send it that, SIGKILL to its whole group
    server -> conductor     (number, exit code), once it has ended

The server lives as long as the other end of the socket is open. Workers stop by themselves without
their server.
"""

import gc
import os
import signal
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection, wait
from pathlib import Path

from gspo_lab.common.states import Exit
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.running import worker
from gspo_lab.running.launch.base import CONDUCTOR, STOP_SIGNALS

LOOP = "gspo_lab.training.engines.native.loop"
PRELOADED = {"native": LOOP, "trl": LOOP}
"""By engine, what its workers import anyway and all of which is safe to fork; warm starts want what
"native" does.
"""


def serve(orders: Connection) -> Path | None:
    """Fork workers as ordered.

    Returns the folder to work on in each worker, and None in the server at its end.
    """
    pids: dict[
        int, int
    ] = {}  # of workers that are not waited for yet, so that no other process can have their ids
    numbers: dict[int, int] = {}  # by a descriptor that is readable once the worker has ended
    while True:
        for ready in wait([orders, *numbers]):
            if not isinstance(ready, Connection):
                assert isinstance(ready, int)
                os.close(ready)
                number = numbers.pop(ready)
                with suppress(ProcessLookupError):  # what it has started ends with it
                    os.killpg(pids[number], signal.SIGKILL)
                _, status = os.waitpid(pids.pop(number), 0)
                with suppress(OSError):
                    orders.send((number, os.waitstatus_to_exitcode(status)))
                continue
            try:
                number, order = orders.recv()
            except (EOFError, OSError):  # the conductor has gone
                return None
            if isinstance(order, Path):
                try:
                    with RunFolder(order).log.open("ab") as log:
                        for stream in (
                            sys.stdout,
                            sys.stderr,
                        ):  # what this process and its forks say from now on
                            os.dup2(log.fileno(), stream.fileno())
                    preload(order)
                    pid = fork() if alone() else spawn(order)
                except OSError:
                    traceback.print_exc()
                    orders.send((number, Exit.CRASHED))
                    continue
                if pid == 0:
                    orders.close()
                    for descriptor in numbers:
                        os.close(descriptor)
                    return order
                pids[number] = pid
                numbers[os.pidfd_open(pid)] = number
            elif number in pids:
                send = os.killpg if order == signal.SIGKILL else os.kill
                send(pids[number], order)


def preload(folder: Path) -> None:
    """Import what the worker of this folder needs.

    What fails here fails there again, and is told there.
    """
    with suppress(Exception):
        specification = RunFolder(folder).specification()
        engine = "native" if specification is None else specification["settings"]["engine"]
        if engine in PRELOADED:
            import_module(PRELOADED[engine])
    gc.collect()
    # a worker's collector need not walk through what it shares with the server, and so copy its
    # pages
    gc.freeze()


def fork() -> int:
    """0 in the child, which leads a process group and hears requests to stop once its handlers are
    there.
    """
    server = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        if (pid := os.fork()) == 0:
            os.environ[CONDUCTOR] = str(server)
        with suppress(PermissionError, ProcessLookupError):  # the child is quicker, or has ended
            os.setpgid(pid, pid)
        return pid
    finally:
        if os.getpid() == server:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def spawn(folder: Path) -> int:
    """The process id of a worker that starts as an ordinary command."""
    command = [sys.executable, "-m", "gspo_lab.running.worker", str(folder)]
    return os.posix_spawn(
        sys.executable, command, {**os.environ, CONDUCTOR: str(os.getpid())}, setpgroup=0
    )


def alone() -> bool:
    """Whether this process has no thread but its first: what other threads held while they were
    forked stays held.
    """
    return len(list(Path("/proc/self/task").iterdir())) == 1


def main(arguments: list[str]) -> int:
    """The server's life, or a worker's; the exit code."""
    os.set_inheritable(int(arguments[0]), False)
    folder = serve(Connection(int(arguments[0])))
    if folder is None:
        return Exit.FINISHED
    sys.argv = [worker.__file__, str(folder)]
    return worker.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
