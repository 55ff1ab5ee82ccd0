"""The first process of a sandbox: forks one child per test, watches it, clears up after it and
tells how it ended.

It and `candidate.py` are sent as text (`isolated_process.BOOT`) to whatever Python the sandbox can
see. So they use the standard library only, and nothing newer than Python 3.9. Descriptor 0 holds
the orders as JSON (`isolated_process.supervisor_config`). The descriptor that the command line
names is a socket to the parent:

    parent -> "test" with descriptors [stdin, stdout, stderr] (and [result] for a function),
              perhaps "stop" later
    here   -> {"ready": version}, then per test {"memory"} whenever it has grown by a fifth,
              and at the end {"cause", "status", "cpu", "wall", "asleep", "memory", "clean"}
              or {"failed": why}

A child inherits this process's memory, so nothing that a candidate must not see ever comes here: no
expected output, no other test's input. The child loses the control socket before the candidate's
first line, and cannot trace or read this process (it is not dumpable) nor signal it (it is the
first of its process namespace).
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

from gspo_lab.tasks.sandbox.candidate import prelude, run, share_memory_by_files

RESULT = 3
CONTROL = 9
PAGE = os.sysconf("SC_PAGE_SIZE")
MAPPING_BYTES = 256
MOST_MAPPINGS = 65_530
"""What the kernel holds for one mapping of memory, and how many mappings it lets a process have."""
TICK_MS = 20
MANY_FILES = 4096
FEW_SOCKETS = 16
"""As many hold little: an event loop has a pair."""
MUCH_MEMORY = 16 << 20
"""From so many bytes on the parent is told how much a test holds, in case the kernel ends this
process for it.
"""
EARLY = 0.05
"""The share of a test's seconds before which its waits are not looked at."""
ASLEEP = 0.9
PATIENCE = 1.5
"""The share of its seconds after which a test that slept is late whatever else the machine did, and
how many times its seconds one that is late gets to show that."""
LEEWAY = 10.0
"""How many times `seconds` a test may take by the clock if the machine is too busy to run it."""

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

libc = ctypes.CDLL(None, use_errno=True)


class Filter(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


class ProcStat(NamedTuple):
    """A line of /proc/<pid>/stat; `seconds` of CPU with those of its collected children."""

    pid: int
    parent: int
    state: str
    seconds: float


def prctl(*arguments: Any) -> None:
    """The call of that name. OSError where the system refuses."""
    if libc.prctl(*arguments) < 0:
        raise OSError(ctypes.get_errno(), f"prctl: {os.strerror(ctypes.get_errno())}")


def processes() -> dict[int, ProcStat]:
    """Every process that /proc shows."""
    tick = os.sysconf("SC_CLK_TCK")
    running = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    _, _, line = file.read().rpartition(b")")
            except OSError:  # it has just ended
                continue
            fields = line.split()
            seconds = sum(map(int, fields[11:15])) / tick
            running[int(name)] = ProcStat(int(name), int(fields[1]), fields[0].decode(), seconds)
    return running


def bytes_of(pid: int, kinds: tuple[bytes, ...]) -> tuple[int, int]:
    """What a process holds of these kinds of memory, by the names of /proc/<pid>/status, and what
    the kernel may hold for its mappings; 0 if it has ended.

    Mappings are in no count that can be read here: as many are assumed as its address space has
    room for.
    """
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        status = file.read()
        memory = 0
        for kind in kinds:
            memory += field_bytes(status, kind)
        mappings = min(field_bytes(status, b"VmSize") // PAGE, MOST_MAPPINGS)
        return memory, mappings * MAPPING_BYTES
    return 0, 0


def field_bytes(status: bytes, name: bytes) -> int:
    """A size of /proc/<pid>/status in bytes; 0 where it does not stand there."""
    place = status.find(b"\n" + name + b":")
    return int(status[place:].split(None, 2)[1]) << 10 if place >= 0 else 0


def descendants() -> list[ProcStat]:
    """All processes that descend from this one.

    It adopts orphans, so none of a test's can leave.
    """
    everyone = processes()
    descendants = []
    parents = {os.getpid()}
    while parents:
        children = [process for process in everyone.values() if process.parent in parents]
        descendants += children
        parents = {process.pid for process in children}
    return descendants


def send(number: int, those: list[ProcStat]) -> None:
    """A signal to each process that is still there."""
    for process in those:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


class Waits:
    """For how long the threads of a test waited for a core, and for how long all of them surely
    slept.
    """

    def __init__(self, first_thread: int) -> None:
        self.first = first_thread
        self.queued: dict[int, float] = {}
        """Seconds by thread for which it was ready to run and no core was free; 0 where the kernel
        does not say.
        """
        self.present: set[int] = set()
        """The threads that the last complete look saw."""
        self.unseen = 0
        """How many threads have begun that no look ever saw."""
        self.looked = 0.0
        self.unsure = 0.0
        """When the last complete look was, and the seconds between looks in which a thread may have
        waited unseen.
        """

    def longest(self) -> float:
        """The longest that any thread was ever queued."""
        return max(self.queued.values(), default=0.0)

    def look(self, pid: int) -> tuple[set[int], set[str]]:
        """The threads of a process and their states; what each of them waited is taken down."""
        threads = set()
        states = set()
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{name}/schedstat", "rb") as file:
                    times = file.read().split()
                with open(f"/proc/{pid}/task/{name}/stat", "rb") as file:
                    states.add(chr(file.read().rpartition(b") ")[2][0]))
                threads.add(int(name))
                waited = int(times[1]) / 1e9 if len(times) > 1 else 0.0
                self.queued[int(name)] = max(self.queued.get(int(name), 0.0), waited)
        return threads, states

    def look_at_all(self, those: list[ProcStat], elapsed: float) -> None:
        """Look at every process of the test. The time since the last such look is unsure where a
        thread began or ended in between, is at work, or waits for a disk. Whoever waits for a child
        in vfork shows as if for a disk.
        """
        present = set()
        busy = False
        parents = {process.parent for process in those}
        for process in those:
            threads, states = self.look(process.pid)
            present |= threads
            busy |= "R" in states or ("D" in states and process.pid not in parents)
        with open("/proc/loadavg", "rb") as file:
            newest = int(file.read().split()[-1])  # the newest thread of this process namespace
        unseen = newest - self.first + 1 - len(self.queued)
        if busy or unseen != self.unseen or not self.present <= present:
            self.unsure += elapsed - self.looked
        self.present = present
        self.unseen = unseen
        self.looked = elapsed

    def asleep(self, those: list[ProcStat]) -> float:
        """For how many seconds, up to the last look, all of the test surely slept, whatever else
        the machine did.
        """
        return (
            self.looked
            - self.unsure
            - sum(self.queued.values())
            - sum(process.seconds for process in those)
        )


def bytes_of_socket() -> int:
    """What the kernel may hold for one socket of a pair, which is on no process's account."""
    pair = _socket.socketpair()
    buffer_bytes = pair[0].getsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF)
    for end in pair:
        end.close()
    return 2 * buffer_bytes


def sockets() -> int:
    """How many sockets this network namespace has."""
    with contextlib.suppress(OSError, IndexError), open("/proc/net/sockstat", "rb") as file:
        return int(file.readline().split()[2])
    return 0


class Supervisor:
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
        self.socket_bytes = (
            bytes_of_socket() if orders["filter"] else 0
        )  # else the machine's are counted
        self.most = 0
        self.told = 0
        self.asleep = False  # of one test: bytes seen at once, whether it slept too long
        self.kinds: tuple[bytes, ...] = (b"RssAnon", b"VmSwap", b"VmPTE")
        if not orders["shared"]:
            self.kinds += (b"RssShmem",)
        else:
            # what is shared counts where it lies, whoever has it in use
            share_memory_by_files(orders["shared"], imported="mmap" in orders["source"])
        self.limit()
        self.refuse_calls()
        self.baseline, _ = bytes_of(
            os.getpid(), self.kinds
        )  # a child shares it until it writes to it
        gc.collect()
        gc.freeze()

    def scratch(self) -> list[int]:
        """The folders' times of change, which cannot be set, and of access: any file made, any
        attribute changed and any look into them shows."""
        times = []
        for path in self.orders["scratch"]:
            folder = os.stat(path)
            times += [folder.st_ctime_ns, folder.st_atime_ns]
        return times

    def serve(self) -> None:
        """Say that the sandbox is ready, then run a program for each call until the parent
        leaves.
        """
        self.send_report({"ready": sys.version.split()[0]})
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
            self.most = 0
            self.told = MUCH_MEMORY
            self.asleep = False
            try:
                cause, wall = self.watch(pid)
            finally:
                self.kill_all()
            status, cpu = self.reap(pid)
            report = {
                "cause": cause,
                "status": status,
                "cpu": cpu,
                "wall": wall,
                "asleep": self.asleep,
            }
            self.send_report(
                {**report, "memory": self.most, "clean": self.scratch() == self.unspoilt}
            )

    def send_report(self, report: dict[str, Any]) -> None:
        """Send a report outside."""
        self.control.send(json.dumps(report).encode())

    def watch(self, pid: int) -> tuple[str, float]:
        """Lets the test run until it ends or takes too much: which it was, and its seconds by the
        clock.

        Time for which no core was free to run it is left out, so that a busy machine makes no
        program late.
        """
        began = time.monotonic()
        seconds = self.orders["seconds"]
        waits = Waits(pid)
        handle = os.pidfd_open(pid)
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            poll.register(CONTROL, select.POLLIN)
            while True:
                ready = [descriptor for descriptor, _ in poll.poll(TICK_MS)]
                elapsed = time.monotonic() - began
                if ready:
                    waits.look(pid)
                    if handle in ready:
                        return "exit", elapsed - waits.longest()
                    self.control.recv(16)
                    return "stop", elapsed - waits.longest()
                those = descendants()
                if elapsed > EARLY * seconds:
                    waits.look_at_all(those, elapsed)
                used = elapsed - waits.longest()
                if used > seconds or elapsed > LEEWAY * seconds:
                    self.asleep = waits.asleep(those) > ASLEEP * seconds
                    # A little more time for what only slept to show it: it is tried once and not
                    # twice.
                    if self.asleep or used > PATIENCE * seconds or elapsed > LEEWAY * seconds:
                        return "wall", used
                overuse = self.overuse(those)
                if overuse:
                    return overuse, used
        finally:
            os.close(handle)

    def overuse(self, those: list[ProcStat]) -> str | None:
        """The limit that the program is beyond, in a word; None where it is within all."""
        if sum(process.seconds for process in those) > self.orders["seconds"]:
            return "cpu"
        memory = 0
        mappings = [0]
        for process in those:
            held_bytes, mapping_bytes = bytes_of(process.pid, self.kinds)
            memory += max(held_bytes - self.baseline, 0)
            mappings.append(mapping_bytes)
        memory += sum(mappings) - max(mappings)  # those of one process are few
        if self.socket_bytes:
            memory += self.socket_bytes * max(0, sockets() - FEW_SOCKETS)
        if self.orders["shared"]:
            room = os.statvfs(self.orders["shared"])
            memory += (room.f_blocks - room.f_bfree) * room.f_frsize
        self.most = max(self.most, memory)
        if self.most > 1.2 * self.told:
            self.told = self.most
            self.send_report({"memory": self.most})
        if memory > self.orders["memory_bytes"]:
            return "memory"
        for path in self.orders["scratch"]:
            room = os.statvfs(path)
            if room.f_files - room.f_ffree > MANY_FILES:
                return "files"
        return None

    def kill_all(self) -> None:
        """Ends every process of the test, whatever it forked and however it hid."""
        if self.orders[
            "alone"
        ]:  # in this process namespace, or under this uid: one call, without a race
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            return
        # stopped first: who is stopped forks no more, and its place is not free for another's child
        while True:
            awake = [process for process in descendants() if process.state not in "TZX"]
            if not awake:
                break
            send(signal.SIGSTOP, awake)
            time.sleep(0.001)
        send(signal.SIGKILL, descendants())

    def reap(self, pid: int) -> tuple[int, float]:
        """The exit status of the test's first process, and the CPU seconds of all."""
        status = 0
        cpu = 0.0
        while True:
            try:
                who, wait_status, used = os.wait4(-1, 0)
            except ChildProcessError:
                return status, cpu
            cpu += used.ru_utime + used.ru_stime
            if who == pid:
                status = os.waitstatus_to_exitcode(wait_status)

    def become_the_program(self, descriptors: list[int]) -> NoReturn:
        """In the child: isolate, close all files of the sandbox and run the candidate's code.

        Never returns.
        """
        status = 1
        try:
            self.confine()
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number, inheritable=number < RESULT)
        except BaseException as error:  # isolation failed: run nothing and report it
            self.send_report({"failed": repr(error)})
            os._exit(status)
        try:
            os.closerange(len(descriptors), 256)
            status = run(self.orders["source"], self.orders["function"])
        finally:
            os._exit(status)

    def limit(self) -> None:
        """Limits that hold for every process alike.

        What this one holds already is not on the candidate's account.
        """
        with open("/proc/self/statm", "rb") as file:
            address_space = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        for name, most in self.orders["rlimits"].items():
            most += address_space if name == "AS" else 0
            limit = getattr(resource, "RLIMIT_" + name)
            # A program may raise its stack: it lies within the address space.
            resource.setrlimit(
                limit, (most, resource.getrlimit(limit)[1] if name == "STACK" else most)
            )

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
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(
            "900"
        )  # if memory runs out, these go before the lab; behind bubblewrap it is so already
    if orders["uid"] is not None:
        os.setgroups([])
        uid = orders["uid"]
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # a signal without a handler does not reach the first process
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else children would go uncollected
    sys.path[:] = [path for path in sys.path if path]
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    Supervisor(orders).serve()
