"""One candidate's isolated process tree, seen from outside: started, given one test after the
other, ended.

The parent measures and decides here. Each test has a stdin of its own (a sealed file in memory, as
a judge's `< input`: it can be read at any speed, measured and opened again) and real pipes for
stdout and stderr. They are read with a cap while the test runs, and what is judged is what they
held when the sandbox had reported every process of the test dead.
"""

import binascii
import contextlib
import fcntl
import functools
import json
import marshal
import math
import os
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, Self

from gspo_lab.common.plain_data import Integers, JsonObject, OptionalInt
from gspo_lab.tasks.sandbox.bubblewrap import ENVIRONMENT, SHARED, Isolation, same_version
from gspo_lab.tasks.sandbox.program import (
    MIB,
    Ending,
    ExecutionResult,
    Limits,
    Program,
    SandboxFailed,
)
from gspo_lab.tasks.sandbox.seccomp_filter import assemble

BOOT = """
import binascii, marshal, sys, types
while len(sys.argv) > 2:
    name, text = sys.argv.pop(1), sys.argv.pop(1)
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = name
    source = text.startswith('"')
    code = compile(text, name, "exec") if source else marshal.loads(binascii.a2b_base64(text))
    exec(code, vars(module))
module.main()
"""
"""Makes modules of what the command line brings and runs the last one's main; a descriptor's number
is left to it.
"""
MODULES = ("gspo_lab.tasks.sandbox.candidate", "gspo_lab.tasks.sandbox.supervisor")
START_SECONDS = 30.0
LEEWAY = 10.0
"""`supervisor.py` stops a test after LEEWAY times its time limit.

The parent waits GRACE seconds longer for a report.
"""
GRACE = 10.0
PATIENCE = 3.0
CHUNK = 1 << 16
LITTLE = 4096
PAUSE_MS = 5
"""After fewer bytes than LITTLE the pipes rest for so long: a program that writes byte by byte
must not cost this process more time than it takes itself."""
STDERR = 1 << 16
"""How much of a test's stderr is kept, its end; a candidate's tests may each have written all that
they may.
"""
PIPE = 1 << 16
FULL_PIPE_SECONDS = 0.05
"""What fits into a pipe, and how long a program that has filled one may have waited for us to read.
"""
SURELY_OWN = 64 * MIB
"""A test that held less when the kernel ended it for want of memory did not bring that about alone.
"""

Retry = Literal["no", "beside others", "quiet", "alone"]


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """How one test ended, and whether it must be run again before that counts."""

    outcome: ExecutionResult
    retry: Retry
    """On a busy machine a test that took too long by the clock proves nothing: it runs again, in
    quiet at first. One that lacked memory runs again alone. One that was killed for no known reason
    runs again beside others."""
    clean: bool
    """It left nothing that a next test in the same sandbox could find."""


@functools.cache
def modules(*, compiled: bool) -> list[str]:
    """Names and texts of the modules that a sandbox needs; read, not imported: they run elsewhere.

    Where the interpreter there is of this version they can be `compiled` here, which saves it a
    tenth of its start.
    """
    arguments = []
    for name in MODULES:
        file = Path(__file__).with_name(f"{name.rpartition('.')[2]}.py")
        code = file.read_text(encoding="utf-8")
        if compiled:
            bytecode = marshal.dumps(compile(code, name, "exec"))
            code = binascii.b2a_base64(bytecode, newline=False).decode()
        arguments += [name, code]
    return arguments


def sealed(content: bytes) -> int:
    """A descriptor to read these bytes from; they cannot be changed."""
    writable = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(writable, view) :]
        seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        fcntl.fcntl(writable, fcntl.F_ADD_SEALS, seals)
        return os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(writable)


def supervisor_config(
    program: Program, limits: Limits, isolation: Isolation, uid: OptionalInt
) -> bytes:
    """What the first process of a sandbox needs to know. The expected outputs are not among it."""
    own_process_limit = uid is not None or (isolation.isolated and kernel_version() >= (5, 14))
    stack = (
        120 * MIB
    )  # deep recursion; more would not fit below the libraries, and a thread's stack stays as it is
    content = {
        "source": program.source.encode("utf-8", "replace").decode(),
        "function": program.function,
        "seconds": limits.seconds,
        "memory_bytes": limits.memory_bytes,
        "cpu": math.ceil(limits.seconds) + 1,  # whole seconds: a second wall behind the exact one
        "rlimits": {
            "AS": limits.memory_bytes,
            # Behind bubblewrap the folders limit files, and shared memory is made of files.
            "FSIZE": max(limits.file_bytes, limits.memory_bytes)
            if isolation.isolated
            else limits.file_bytes,
            # Counted of the sandbox only: by its uid, or by its namespace (since Linux 5.14).
            "NPROC": limits.processes + (0 if own_process_limit else threads_of_user()),
            "NOFILE": 256,
            "STACK": min(stack, limits.memory_bytes),
            "SIGPENDING": 256,  # timers and queued signals hold the kernel's memory
            "CORE": 0,
            "MEMLOCK": 0,
        },
        "filter": assemble().hex() if isolation.isolated else "",
        "scratch": ["/tmp", "/dev/shm", SHARED] if isolation.isolated else [],
        "shared": SHARED if isolation.isolated else "",
        "alone": isolation.isolated or uid is not None,
        "uid": None if isolation.isolated else uid,
        "numpy": isolation.numpy_inside(),
    }
    return json.dumps(content).encode()


def kernel_version() -> Integers:
    """The version of the running kernel: `(5, 14)`."""
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])


def threads_of_user() -> int:
    """How many threads this user has running."""
    count = 0
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and process.stat().st_uid == os.getuid():
                count += len(list((process / "task").iterdir()))
    return count


class IsolatedProcess:
    """See the module. A test that leaves something behind ends the process tree, and the next test
    gets a new one. Not thread-safe; made, used and left in one thread."""

    def __init__(
        self, program: Program, limits: Limits, isolation: Isolation, uid: OptionalInt
    ) -> None:
        self.program = program
        self.limits = limits
        self.isolation = isolation
        self.uid = uid
        self.process: subprocess.Popen[bytes] | None = None
        self.control: socket.socket | None = None
        self.complaints: IO[bytes] | None = None
        self.held = 0
        """The most bytes that the test was seen to hold, as far as the sandbox has told."""
        self.room = 0
        """The bytes that programs could have when the sandbox was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def test(self, content: bytes) -> TestOutcome:
        """One test with this stdin. SandboxFailed if it could not be isolated."""
        if self.process is None:
            self.start()
        ended = self.run_test(content)
        if not ended.clean:
            self.close()
        return ended

    def start(self) -> None:
        """Raises SandboxFailed, with the tools' own words, if the sandbox does not come up."""
        stdin = sealed(supervisor_config(self.program, self.limits, self.isolation, self.uid))
        self.control, sandbox_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.complaints = os.fdopen(os.memfd_create("complaints", os.MFD_CLOEXEC), "w+b")
        command = [
            *self.isolation.command(BOOT, self.uid, self.limits),
            *modules(compiled=same_version(self.isolation.python)),
            str(sandbox_end.fileno()),
        ]
        try:
            self.process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=self.complaints,
                cwd="/",
                env=ENVIRONMENT,
                pass_fds=[sandbox_end.fileno()],
                start_new_session=True,  # Ctrl-C at a terminal is the lab's to answer
            )
        except OSError as error:
            raise SandboxFailed(f"{command[0]}: {error.strerror}") from error
        finally:
            sandbox_end.close()
            os.close(stdin)
        self.room = memory_available()
        self.control.settimeout(START_SECONDS)
        try:
            ready = self.control.recv(CHUNK)
        except OSError:
            ready = b""
        if b"ready" not in ready:
            self.end()
            self.complaints.seek(0)
            words = self.complaints.read().decode(errors="replace").strip().splitlines()
            reason = words[-1] if words else "no reason given"
            raise SandboxFailed(f"{command[0]} did not start: {reason}")

    def run_test(self, content: bytes) -> TestOutcome:
        """One test in the process tree that is there."""
        assert self.control is not None
        stdin = sealed(content)
        pipes = [
            os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) for _ in range(3 if self.program.function else 2)
        ]
        descriptors = [stdin]
        for _, end in pipes:
            os.set_blocking(end, True)
            if self.uid is not None:
                os.fchown(end, self.uid, self.uid)  # so that /dev/stdout can be opened
            descriptors.append(end)
        reading = PipeReader({mine: bytearray() for mine, _ in pipes}, self.limits.output_bytes)
        kills = oom_kills()
        self.held = 0
        began = time.monotonic()
        try:
            socket.send_fds(self.control, [b"test"], descriptors)
        except OSError:
            pass  # the sandbox is gone, which the wait finds out
        finally:
            for end in descriptors:
                os.close(end)
        try:
            report = self.wait(reading, began + LEEWAY * self.limits.seconds + GRACE)
            wall = time.monotonic() - began
            if report is None:
                self.end()
            for end in list(reading.content):
                reading.drain(end)
        finally:
            for end, _ in pipes:
                os.close(end)
        return self.outcome(report, wall, reading, kills)

    def wait(self, reading: "PipeReader", deadline: float) -> JsonObject | None:
        """The sandbox's report on the test; None if it ended or does not answer."""
        assert self.control is not None
        control = select.poll()
        control.register(self.control, select.POLLIN)
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        for end in reading.content:
            poll.register(end, select.POLLIN)
        stopped = False
        while (remaining := deadline - time.monotonic()) > 0:
            total_before = reading.total
            for end, _ in poll.poll(1000 * remaining):
                if end == self.control.fileno():
                    with contextlib.suppress(ConnectionResetError):
                        report = json.loads(self.control.recv(CHUNK) or "null")
                        if report is None or "cause" in report or "failed" in report:
                            return report
                        self.held = report["memory"]
                        continue
                    return None
                if not reading.drain(end):
                    poll.unregister(end)
            if reading.too_much and not stopped:
                stopped = True
                with contextlib.suppress(OSError):
                    self.control.send(b"stop")
            if 0 < reading.total - total_before < LITTLE:
                control.poll(PAUSE_MS)
        return None

    def outcome(
        self, report: JsonObject | None, wall: float, reading: "PipeReader", kills: OptionalInt
    ) -> TestOutcome:
        """What a report from inside and the bytes that were read make of a test; without a report
        it was killed.

        `kills` is how many processes the kernel had ended for want of memory when the test began.
        """
        written = max(map(len, list(reading.content.values())[:2]))
        stdout, stderr, *result = reading.collect()
        if report is None:
            # The kernel may have ended a process for want of memory; it may also not say.
            by_itself = (kills is None or oom_kills() != kills) and self.exhausts(self.held)
            lost: Ending = "memory" if by_itself else "killed"
            outcome = ExecutionResult(lost, None, stdout, stderr, 0.0, wall)
            return TestOutcome(outcome, retry="alone", clean=False)
        if "failed" in report:
            raise SandboxFailed(f"a test could not be isolated: {report['failed']}")
        cause = report["cause"]
        status = report["status"]
        cpu = report["cpu"]
        late = cause == "wall" or report["wall"] > self.limits.seconds
        spent = cause == "cpu" or cpu > self.limits.seconds
        ending: Ending
        retry: Retry = "no"
        if reading.too_much:
            ending = "output"
        elif cause in ("memory", "files"):
            ending = "memory"
        elif spent or late:
            ending = "time"
            waited = written // PIPE * FULL_PIPE_SECONDS > self.limits.seconds / 10
            if not spent and (waited or not report["asleep"]):
                retry = "quiet"
        elif status == 0:
            ending = "finished"
        elif status == -signal.SIGKILL:
            # A program that kills itself, or that exhausts the memory, was not ended from outside:
            # else an answer could keep itself out of every score.
            if kills is not None and oom_kills() == kills:
                ending = "error"
                retry = "beside others"
            else:
                ending = "memory" if self.exhausts(report["memory"]) else "killed"
                retry = "alone"
        else:
            ending = (
                "memory"
                if stderr.rstrip().rpartition(b"\n")[2].startswith(b"MemoryError")
                else "error"
            )
        returned = result[0] if result and ending == "finished" else b""
        outcome = ExecutionResult(
            ending,
            status if cause == "exit" else None,
            stdout,
            stderr,
            cpu,
            wall,
            returned[1:] if returned else None,
            returned[:1] == b"1" if returned else None,
        )
        return TestOutcome(outcome, retry, clean=report["clean"] and not reading.too_much)

    def exhausts(self, memory: int) -> bool:
        """Whether a test that held so much exhausts its memory, or the machine's."""
        return memory > max(min(self.limits.memory_bytes, self.room) / 2, SURELY_OWN)

    def close(self) -> None:
        """End all that lives in the sandbox, and close what it holds open."""
        self.end()
        if self.complaints is not None:
            self.complaints.close()
        self.process = self.control = self.complaints = None

    def end(self) -> None:
        """Ends every process of the sandbox and collects it; no zombie stays."""
        if self.control is not None:
            # its first process ends on that, and with it the process namespace
            self.control.close()
        if self.process is None:
            return
        for end in (self.kill_first_process, self.process.kill):
            try:
                self.process.wait(PATIENCE)
                return
            except subprocess.TimeoutExpired:
                end()
        self.process.wait()

    def kill_first_process(self) -> None:
        """bubblewrap waits for its child: ended in this order, nothing is left to init."""
        assert self.process is not None
        with contextlib.suppress(OSError):
            children = Path(
                f"/proc/{self.process.pid}/task/{self.process.pid}/children"
            ).read_text()
            for child in children.split():
                os.kill(int(child), signal.SIGKILL)


@dataclass(slots=True)
class PipeReader:
    """What came through the pipes so far, none beyond `most` bytes."""

    content: dict[int, bytearray]
    most: int
    too_much: bool = False
    total: int = 0
    """The bytes that were read, with those beyond `most`."""

    def collect(self) -> list[bytes]:
        """Stdout, the end of stderr and the result, each let go once it is copied: a test may have
        written `most` bytes to each.
        """
        texts = []
        for index, content in enumerate(self.content.values()):
            texts.append(bytes(content[-STDERR:] if index == 1 else content))
            content.clear()
        return texts

    def drain(self, end: int) -> bool:
        """Takes what the pipe holds now; False when every writer has closed it."""
        content = self.content[end]
        while True:
            try:
                chunk = os.read(end, CHUNK)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            self.total += len(chunk)
            room = self.most - len(content)
            content += chunk[:room]
            if len(chunk) > room:
                self.too_much = True
                return True


CGROUPS = {
    "": ("/sys/fs/cgroup", "memory.max", "memory.current"),
    "memory": ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
}
"""Controllers -> where their groups lie, the files of a group's limit and of its use; "" is the
second version.
"""


def oom_kills() -> OptionalInt:
    """How many processes of this machine the kernel has ended because memory ran out; None where it
    does not say.
    """
    try:
        counts = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
        return int(counts["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None


def memory_available() -> int:
    """The bytes that programs started here could still have: of the machine, and of each cgroup
    around this process.
    """
    with contextlib.suppress(OSError):
        available = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text())
        return max(0, min([int(available[1]) << 10 if available else 0, *_left_in_cgroups()]))
    return 0


def _left_in_cgroups() -> Iterator[int]:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            if controllers not in CGROUPS:
                continue
            root, limit, use = CGROUPS[controllers]
            group = Path(root + name)
            for folder in (group, *group.parents):
                # In a container the groups above are not shown. A limit of "max" is not a number.
                with contextlib.suppress(OSError, ValueError):
                    yield int((folder / limit).read_text()) - int((folder / use).read_text())
