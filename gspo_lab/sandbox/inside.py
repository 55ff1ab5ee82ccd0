"""The first process of a house: forks one child per test, watches it, clears up after it and tells how it ended.

It and `candidate.py` are sent as text (`house.BOOT`) to whatever Python the sandbox can see: standard library only,
nothing newer than Python 3.9. Descriptor 0 holds its orders as JSON (`house.orders`); the descriptor that its command
line names is a socket to the parent:

    parent -> "test" with descriptors [stdin, stdout, stderr] (and [result] for a function), perhaps "stop" later
    here   -> {"ready": version}, then per test {"cause", "status", "cpu", "wall", "asleep", "memory", "clean"}
              or {"failed": why}

A child inherits this process's memory, so nothing that a candidate must not see ever comes here: no expected output, no
other test's input. The child loses the control socket before the candidate's first line, and cannot trace or read this
process (it is not dumpable) nor signal it (it is the first of its process namespace).
"""
# pathlib takes as long to import as all the rest.
# ruff: noqa: PTH116, PTH123, PTH208

from __future__ import annotations

import _socket
import array
import contextlib
import ctypes
import gc
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any, NamedTuple, NoReturn

from gspo_lab.sandbox.candidate import prelude, run

RESULT, CONTROL = 3, 9
TICK_MS = 20
MANY_FILES = 4096
FEW_SOCKETS = 16
"""As many hold little: an event loop has a pair."""
ASLEEP, PATIENCE = 0.9, 1.5
"""The share of its seconds after which a test that slept is late whatever else the machine did, and how many times its
seconds one that is late gets to show that."""
LEEWAY = 10.0
"""How many times `seconds` a test may take by the clock if the machine is too busy to run it."""

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 36, 38

libc = ctypes.CDLL(None, use_errno=True)


class Filter(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


class Process(NamedTuple):
    """A line of /proc/<pid>/stat; `seconds` of CPU with those of its collected children, `resident` in bytes."""

    pid: int
    parent: int
    state: str
    seconds: float
    resident: int


def prctl(*arguments: Any) -> None:
    """The call of that name. OSError where the system refuses."""
    if libc.prctl(*arguments) < 0:
        raise OSError(ctypes.get_errno(), f"prctl: {os.strerror(ctypes.get_errno())}")


def processes() -> dict[int, Process]:
    """Every process that /proc shows."""
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    _, _, line = file.read().rpartition(b")")
            except OSError:  # it has just ended
                continue
            fields = line.split()
            seconds = sum(map(int, fields[11:15])) / tick
            found[int(name)] = Process(
                pid=int(name),
                parent=int(fields[1]),
                state=fields[0].decode(),
                seconds=seconds,
                resident=int(fields[21]) * page,
            )
    return found


def family() -> list[Process]:
    """All processes that descend from this one. It adopts orphans, so none of a test's can leave."""
    everyone, found = processes(), []
    parents = {os.getpid()}
    while parents:
        children = [one for one in everyone.values() if one.parent in parents]
        found += children
        parents = {one.pid for one in children}
    return found


def send(number: int, those: list[Process]) -> None:
    """A signal to each process that is still there."""
    for one in those:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, number)


class Waits:
    """What the kernel tells of every thread of a test, as far as it was ever looked at."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.queued: dict[int, float] = {}
        """By thread for how long it was ready to run and no core was free; 0 where the kernel does not say."""
        self.disk = False
        """Whether one was seen to wait for a disk."""

    def look(self, pid: int) -> float:
        """Look at a process's threads; the longest that any of them was ever queued."""
        longest = 0.0
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as file:
                    told = file.read().split()
                with open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:
                    self.disk |= file.read().rpartition(b") ")[2].startswith(b"D")
                known = self.queued.get(int(thread), 0.0)
                self.queued[int(thread)] = max(known, int(told[1]) / 1e9 if len(told) > 1 else 0.0)
                longest = max(longest, self.queued[int(thread)])
        return longest

    def asleep(self, elapsed: float, those: list[Process]) -> float:
        """For how long all of it waited of its own will, whatever else the machine did; 0 where that is not certain."""
        with open("/proc/loadavg", "rb") as file:
            last = int(file.read().split()[-1])  # the newest thread of this process namespace
        if self.disk or last - self.first + 1 != len(self.queued):
            return 0.0
        return elapsed - sum(self.queued.values()) - sum(one.seconds for one in those)


def bytes_of_socket() -> int:
    """What the kernel may hold for one socket of a pair, which is on no process's account."""
    pair = _socket.socketpair()
    held = pair[0].getsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF)
    for one in pair:
        one.close()
    return 2 * held


def sockets() -> int:
    """How many sockets this network namespace has."""
    with contextlib.suppress(OSError, IndexError), open("/proc/net/sockstat", "rb") as file:
        return int(file.readline().split()[2])
    return 0


class House:
    """What is made once, before the first test."""

    def __init__(self, orders: dict[str, Any]) -> None:
        self.orders = orders
        prelude()
        if orders["numpy"]:
            sys.path.append(orders["numpy"])
        if "numpy" in orders["source"]:  # trusted code, imported once for all tests
            with contextlib.suppress(ImportError):
                __import__("numpy")
        self.control = _socket.socket(fileno=CONTROL)
        self.unspoilt = self.scratch()
        self.socket_bytes = bytes_of_socket() if orders["filter"] else 0  # else the machine's are counted
        self.most, self.asleep = 0, False  # of one test: bytes seen at once, whether it slept its time away
        self.limit()
        self.refuse_calls()
        self.baseline = processes()[os.getpid()].resident  # a child shares it until it writes to it
        gc.collect()
        gc.freeze()

    def scratch(self) -> list[int]:
        """The folders' times of change, which nobody can set, and of access: any file made, any attribute changed and
        any look into them shows."""
        found = [os.stat(path) for path in self.orders["scratch"]]
        return [time for one in found for time in (one.st_ctime_ns, one.st_atime_ns)]

    def serve(self) -> None:
        """Say that the house is ready, then run a program for each call until nobody calls."""
        self.say({"ready": sys.version.split()[0]})
        while True:
            _, passed, _, _ = self.control.recvmsg(16, _socket.CMSG_SPACE(16))
            if not passed:  # the parent has gone, or has no more tests
                return
            descriptors = array.array("i", passed[0][2]).tolist()
            pid = os.fork()
            if not pid:
                self.become_the_program(descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            self.most, self.asleep = 0, False
            try:
                cause, wall = self.watch(pid)
            finally:
                self.kill_all()
            status, cpu = self.reap(pid)
            report = {"cause": cause, "status": status, "cpu": cpu, "wall": wall, "asleep": self.asleep}
            self.say({**report, "memory": self.most, "clean": self.scratch() == self.unspoilt})

    def say(self, report: dict[str, Any]) -> None:
        """Send a report outside."""
        self.control.send(json.dumps(report).encode())

    def watch(self, pid: int) -> tuple[str, float]:
        """Lets the test run until it ends or takes too much: which it was, and its seconds by the clock.

        Time for which no core was free to run it is left out, so that a busy machine makes no program late.
        """
        began, queued, seconds = time.monotonic(), 0.0, self.orders["seconds"]
        waits = Waits(pid)
        handle = os.pidfd_open(pid)
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            poll.register(CONTROL, select.POLLIN)
            while True:
                ready = [descriptor for descriptor, _ in poll.poll(TICK_MS)]
                elapsed = time.monotonic() - began
                queued = max(queued, waits.look(pid))
                if handle in ready:
                    return "exit", elapsed - queued
                if CONTROL in ready:
                    self.control.recv(16)
                    return "stop", elapsed - queued
                those = family()
                for one in those:
                    if one.pid != pid:
                        waits.look(one.pid)
                if elapsed - queued > seconds or elapsed > LEEWAY * seconds:
                    self.asleep = waits.asleep(elapsed, those) > ASLEEP * seconds
                    # A little more time for what only slept to show it: it is tried once and not twice.
                    if self.asleep or elapsed - queued > PATIENCE * seconds or elapsed > LEEWAY * seconds:
                        return "wall", elapsed - queued
                overuse = self.overuse(those)
                if overuse:
                    return overuse, elapsed - queued
        finally:
            os.close(handle)

    def overuse(self, those: list[Process]) -> str | None:
        """The limit that the program is beyond, in a word; None where it is within all."""
        if sum(one.seconds for one in those) > self.orders["seconds"]:
            return "cpu"
        held = sum(max(one.resident - self.baseline, 0) for one in those)
        if self.socket_bytes:
            held += self.socket_bytes * max(0, sockets() - FEW_SOCKETS)
        self.most = max(self.most, held)
        if held > self.orders["memory_bytes"]:
            return "memory"
        for path in self.orders["scratch"]:
            room = os.statvfs(path)
            if room.f_files - room.f_ffree > MANY_FILES:
                return "files"
        return None

    def kill_all(self) -> None:
        """Ends every process of the test, whatever it forked and however it hid."""
        if self.orders["alone"]:  # in this process namespace, or under this uid: one call, without a race
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            return
        while True:  # stopped first: who is stopped forks no more, and its place is not free for another's child
            awake = [one for one in family() if one.state not in "TZX"]
            if not awake:
                break
            send(signal.SIGSTOP, awake)
            time.sleep(0.001)
        send(signal.SIGKILL, family())

    def reap(self, pid: int) -> tuple[int, float]:
        """The exit status of the test's first process, and the CPU seconds of all."""
        status, cpu = 0, 0.0
        while True:
            try:
                who, how, used = os.wait4(-1, 0)
            except ChildProcessError:
                return status, cpu
            cpu += used.ru_utime + used.ru_stime
            if who == pid:
                status = os.waitstatus_to_exitcode(how)

    def become_the_program(self, descriptors: list[int]) -> NoReturn:
        """In the child: the walls go up, all of the house is closed, the candidate's code runs. No way back."""
        status = 1
        try:
            self.confine()
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number, inheritable=number < RESULT)
        except BaseException as error:  # the walls did not go up: nothing runs, and the parent hears of it
            self.say({"failed": repr(error)})
            os._exit(status)
        try:
            os.closerange(len(descriptors), 256)
            status = run(self.orders["source"], self.orders["function"])
        finally:
            os._exit(status)

    def limit(self) -> None:
        """Limits that hold for every process alike. What this one holds already is not on the candidate's account."""
        with open("/proc/self/statm", "rb") as file:
            held = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        for name, most in self.orders["rlimits"].items():
            most += held if name == "AS" else 0
            resource.setrlimit(getattr(resource, "RLIMIT_" + name), (most, most))

    def refuse_calls(self) -> None:
        """From now on, for this process, which needs none of them any more, and for every child."""
        code = bytes.fromhex(self.orders["filter"])
        if code:
            prctl(PR_SET_SECCOMP, 2, ctypes.byref(Filter(len(code) // 8, code)), 0, 0)

    def confine(self) -> None:
        """Put this process, about to be the program, under its limits."""
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (self.orders["cpu"], self.orders["cpu"]))


def main() -> None:
    """Read the orders, then serve."""
    with open(0, "rb", closefd=False) as file:
        orders = json.loads(file.read())
    os.dup2(int(sys.argv[1]), CONTROL)
    os.closerange(RESULT, CONTROL)
    os.closerange(CONTROL + 1, 1 << 12)
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("900")  # if memory runs out, these go before the lab
    if orders["uid"] is not None:
        os.setgroups([])
        os.setresgid(*[orders["uid"]] * 3)
        os.setresuid(*[orders["uid"]] * 3)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a signal without a handler does not reach the first process
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else children would go uncollected
    sys.path[:] = [path for path in sys.path if path]
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    House(orders).serve()
