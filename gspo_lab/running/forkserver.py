"""A warm process from which the workers of one conductor are forked: `python -m
gspo_lab.running.forkserver SOCKET`.

A worker that starts as a command spends most of its start on importing torch and transformers. This
process imports them once. Each worker is a fork of it that runs `python -m gspo_lab.running.worker
FOLDER` with its own process group, log file and exit code. The server computes nothing and has one
thread, so that a fork equals a fresh process.

The standard library's multiprocessing forkserver does the same for functions. But it imports the
caller's main module in each child, which breaks scripts without a guard, and shares the caller's
output and Ctrl-C.

    conductor -> server     (0, engine): import what its workers need
                            (number, folder): start a worker
                            (number, signal): send it that, SIGKILL to its whole group
    server -> conductor     (number, exit code), once it has ended

The server lives as long as the other end of the socket is open. Workers stop by themselves without
their server.
"""

import atexit
import gc
import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NoReturn

from gspo_lab.common.states import Exit
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.running import worker
from gspo_lab.running.launch.base import CONDUCTOR, STOP_SIGNALS

LOOP = "gspo_lab.training.engines.native.loop"
PRELOADED = {"native": LOOP, "trl": LOOP}
"""The module that workers of each engine import anyway, all of which is safe to fork.

Warm starts need what "native" needs.
"""
WEIGHT_NAMES = "transformers.conversion_mapping"
"""transformers' table of how checkpoints name their weights."""


def serve(orders: Connection) -> Path | None:
    """Fork workers as ordered.

    Returns the folder to work on in each worker, and None in the server at its end.
    """
    # Workers that are not waited for yet, so that no other process can have their ids.
    pids: dict[int, int] = {}
    # By a descriptor that is readable once the worker has ended.
    numbers: dict[int, int] = {}
    while True:
        for ready in wait([orders, *numbers]):
            if not isinstance(ready, Connection):
                assert isinstance(ready, int)
                os.close(ready)
                number = numbers.pop(ready)
                code = _exit_code(pids.pop(number))
                with suppress(OSError):
                    orders.send((number, code))
                continue
            try:
                number, order = orders.recv()
            except (EOFError, OSError):  # the conductor has gone
                return None
            if isinstance(order, signal.Signals):
                _signal(pids.get(number), order)
                continue
            if not isinstance(order, Path):
                preload(order)
                continue
            try:
                pid = _start(order)
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


def _start(folder: Path) -> int:
    """Start a folder's worker, which writes to its log from now on; 0 in a forked worker."""
    with RunFolder(folder).log.open("ab") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())
    preload(_engine(folder))
    return fork() if alone() else spawn(folder)


def _signal(pid: int | None, number: signal.Signals) -> None:
    """Send a signal to a worker, SIGKILL to its whole group; None: it has ended."""
    if pid is not None:
        send = os.killpg if number == signal.SIGKILL else os.kill
        send(pid, number)


def _exit_code(pid: int) -> int:
    """The exit code of a worker that has ended; its child processes end with it."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _engine(folder: Path) -> str:
    """The engine of this folder's worker; of a damaged folder none, which its worker tells."""
    with suppress(Exception):
        specification = RunFolder(folder).specification()
        return "native" if specification is None else str(specification["settings"]["engine"])
    return ""


def preload(engine: str) -> None:
    """Import what workers of this engine need.

    What fails here fails there again, and is told there.
    """
    gc.disable()  # a third of the time would be its search through the new modules
    with suppress(Exception):
        if engine in PRELOADED:
            import_module(PRELOADED[engine])
            # made at the first model that a process reads: hundreds of compiled patterns
            import_module(WEIGHT_NAMES).get_checkpoint_conversion_mapping("")
    gc.enable()
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
    code = worker.main(sys.argv[1:])
    if all(thread.daemon for thread in threading.enumerate()[1:]):
        end(code)
    return code  # Python waits for the other threads


def end(code: int) -> NoReturn:
    """End this worker as Python does, but leave its memory to the system: to free what it shares
    with the server, object by object, takes .4 s.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
