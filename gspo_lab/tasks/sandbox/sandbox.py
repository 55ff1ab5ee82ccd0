"""Run programs in isolation: check the isolation, manage the slots, repeat tests that time out
under load.

with Sandbox.open() as sandbox:
    outcomes = sandbox.run(Program("print(int(input()) + 1)"), [b"1\\n", b"41\\n"], Limits())
"""

import contextlib
import json
import os
import queue
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from gspo_lab.common.cpu_count import cores
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import OptionalInt
from gspo_lab.tasks.sandbox.bubblewrap import Isolation, numpy_for, pythons, why_missing
from gspo_lab.tasks.sandbox.isolated_process import IsolatedProcess
from gspo_lab.tasks.sandbox.program import ExecutionResult, GoOn, Limits, Program, SandboxFailed

UIDS = range(60600, 61100)
"""uids that Debian and systemd leave unused; a socket's unique name reserves one per slot."""

NOT_HELD = "bubblewrap is installed but does not isolate programs"
NO_PYTHON = "no Python that may be shown to a program (apt-get install python3)"

TURNS = 10
"""After an exclusive test, the next one may start after this many times its duration."""
QUIET_SECONDS = 1.0
"""For how long a late test waits for the others, and they for it, before they run side by side."""
UNHURRIED_SECONDS = 3600.0
"""For how long a test that lacked memory waits for the others, and they for it."""

PROBE = Program("""
import json, os, socket
facts = {"uid": os.getuid()}
try:
    socket.socket()
    facts["sockets"] = True
except OSError:
    facts["sockets"] = False
try:
    open(input()).read()
    facts["files"] = True
except OSError:
    facts["files"] = False
print(json.dumps(facts))
""")


@dataclass(frozen=True)
class SandboxSlot:
    """A place for one candidate at a time, with a uid that no other sandbox of this machine uses
    (as root).
    """

    uid: OptionalInt
    claim: socket.socket | None

    @classmethod
    def claim_one(cls) -> "SandboxSlot":
        """Reserve a uid that no other sandbox of this machine uses.

        Without root programs run as the present user.
        """
        if os.geteuid() != 0:
            return cls(None, None)
        for uid in UIDS:
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                claim.bind(f"\0gspo-lab-sandbox-{uid}")  # gone with this process, however it ends
            except OSError:
                claim.close()
                continue
            return cls(uid, claim)
        raise LabError(
            f"all {len(UIDS)} uids for sandboxes are in use: end other gspo-lab processes"
        )

    def release(self) -> None:
        """Free the uid for another sandbox."""
        if self.claim is not None:
            self.claim.close()


class SharedOrExclusive:
    """Lets tests run concurrently, or one exclusively, which waits for the others and they for it.

    Exclusive tests take at most a tenth of the time; beyond that they run beside others. Nobody
    waits longer than an exclusive test asks for, so that sleepers cannot hold up their neighbours.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.running = 0
        self.waiting = 0
        self.reserved_until = 0.0
        """Until when other tests wait for the exclusive one."""
        self.next_alone = 0.0
        """Earliest time of the next exclusive test, by the monotonic clock."""

    @contextlib.contextmanager
    def turn(self, *, alone: bool, seconds: float = UNHURRIED_SECONDS) -> Iterator[None]:
        """Run beside others, or `alone` when nothing else runs.

        `seconds`: for how long it waits for others to end, and then keeps others from starting.
        """
        with self.changed:
            came = time.monotonic()
            alone = alone and not self.waiting and came >= self.next_alone
            if alone:
                self.waiting += 1
                self.reserved_until = came + 2 * seconds
                self.changed.wait_for(lambda: not self.running, seconds)
            else:
                self._wait_for_exclusive()
            self.running += 1
        try:
            yield
        finally:
            with self.changed:
                if alone:
                    self.next_alone = came + TURNS * (time.monotonic() - came)
                self.waiting -= alone
                self.running -= 1
                self.changed.notify_all()

    def _wait_for_exclusive(self) -> None:
        """Wait until no exclusive test waits or runs, or until its time is over."""
        while self.waiting:
            remaining = self.reserved_until - time.monotonic()
            if remaining <= 0:
                return
            self.changed.wait(remaining)


class Sandbox:
    """Runs programs isolated from the machine and from each other.

    Thread-safe: callers beyond `slots` wait.
    """

    def __init__(self, isolation: Isolation, slots: Sequence[SandboxSlot]) -> None:
        self.isolation = isolation
        self.slots = len(slots)
        self.level = isolation.level(slots[0].uid)
        """The isolation that `open` has checked; stored with every grade."""
        self.uids = [slot.uid for slot in slots if slot.uid is not None]
        self._all = slots
        self._free: queue.SimpleQueue[SandboxSlot] = queue.SimpleQueue()
        self._turns = SharedOrExclusive()
        for slot in slots:
            self._free.put(slot)

    @classmethod
    def open(cls, *, slots: OptionalInt = None, unsafe: bool = False) -> "Sandbox":
        """A sandbox whose isolation was checked, with `slots` (default: cores) candidates at once.

        LabError if programs cannot be isolated; with `unsafe` they then run with limits only.
        """
        if sys.platform != "linux":
            raise LabError("programs can be run on Linux only: its kernel isolates them")
        first_slot = SandboxSlot.claim_one()
        lack = why_missing()
        refused: list[str] = []
        attempts = []
        if not lack:
            attempts.append(True)
        if unsafe:
            attempts.append(False)
        for isolated in attempts:
            way = "bubblewrap" if isolated else "limits alone"
            for python in pythons():
                isolation = Isolation(python, numpy_for(python), isolated)
                try:
                    probe(isolation, first_slot.uid)
                except (SandboxFailed, LabError) as failure:
                    refused.append(f"{way} with {python}: {failure}")
                    continue
                count = slots or cores()
                return cls(
                    isolation, [first_slot, *(SandboxSlot.claim_one() for _ in range(count - 1))]
                )
        first_slot.release()
        why = lack or NOT_HELD
        if not lack and not refused:
            why = NO_PYTHON
        raise LabError(
            f"programs cannot be isolated on this machine: {why}; user namespaces must be allowed."
            " See docs/explanation/sandbox.md. Or take the risk with --unsafe-no-sandbox (in a"
            " study: the task's option unsafe = true)",
            details=tuple(refused),
        )

    def run(
        self,
        program: Program,
        inputs: Sequence[bytes],
        limits: Limits,
        *,
        go_on: GoOn = lambda _index, _outcome: True,
        keep_output: bool = True,
    ) -> list[ExecutionResult]:
        """The outcomes of the tests in order, up to the one after which `go_on` says no.

        Without `keep_output` only `go_on` sees what a test wrote and returned: one candidate's may
        fill gigabytes.

        A test that exceeds its wall time beside others is repeated, at first alone, and the second
        result counts. SandboxFailed: a failure of the sandbox, not of the program.
        """
        if not inputs:
            raise ValueError("no tests: an empty list proves nothing")
        slot = self._free.get()
        try:
            with IsolatedProcess(program, limits, self.isolation, slot.uid) as process:
                outcomes: list[ExecutionResult] = []
                for index, content in enumerate(inputs):
                    with self._turns.turn(alone=False):
                        ended = process.test(content)
                    if ended.retry != "no":
                        alone = ended.retry in ("quiet", "alone")
                        seconds = QUIET_SECONDS if ended.retry == "quiet" else UNHURRIED_SECONDS
                        with self._turns.turn(alone=alone, seconds=seconds):
                            ended = process.test(content)
                    going_on = go_on(index, ended.outcome)
                    bare = replace(ended.outcome, stdout=b"", stderr=b"", result=None)
                    outcomes.append(ended.outcome if keep_output else bare)
                    if not going_on:
                        break
                return outcomes
        finally:
            self._free.put(slot)

    def close(self) -> None:
        """Free the uids."""
        for slot in self._all:
            slot.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def probe(isolation: Isolation, uid: OptionalInt) -> None:
    """Run a program that tests the isolation. SandboxFailed if it does not hold."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", dir="/var/tmp") as outside:
        os.fchmod(outside.fileno(), 0o644)
        with IsolatedProcess(PROBE, Limits(), isolation, uid) as process:
            outcome = process.test(outside.name.encode()).outcome
    if outcome.ending != "finished":
        raise SandboxFailed(
            f"a first program did not run: {outcome.stderr.decode(errors='replace').strip()[-300:]}"
        )
    facts = json.loads(outcome.stdout)
    if uid is not None and facts["uid"] != uid:
        raise SandboxFailed(f"programs run as uid {facts['uid']}, not {uid}")
    if isolation.isolated and (facts["sockets"] or facts["files"]):
        opened = "a socket" if facts["sockets"] else "a file outside"
        raise SandboxFailed(f"a program could open {opened}")
