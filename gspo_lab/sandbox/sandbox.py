"""The front door: tries the walls, keeps the slots, runs candidates, tries doubtful tests again.

with Sandbox.open() as sandbox:
    print(sandbox.level)
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
from dataclasses import replace
from typing import Self

from gspo_lab.cpu_count import cores
from gspo_lab.errors import LabError
from gspo_lab.sandbox.bubblewrap import Isolation, missing, numpy_for, pythons
from gspo_lab.sandbox.isolated_process import IsolatedProcess
from gspo_lab.sandbox.program import ExecutionResult, GoOn, Limits, Program, SandboxFailed, always

UIDS = range(60600, 61100)
"""Debian and systemd leave these unused; one per slot, held by a name that only one process can have."""

NOT_HELD = "bubblewrap is installed and its walls do not stand"
NO_PYTHON = "no Python that may be shown to a program (apt-get install python3)"

TURNS = 10
"""How many times the seconds that others wait for a test that is alone must pass before they do so again."""

PROBE = Program(
    """
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
"""
)


class SandboxSlot:
    """A place for one candidate at a time, with a uid that no other sandbox of this machine uses (as root)."""

    def __init__(self, uid: int | None, claim: socket.socket | None) -> None:
        self.uid = uid
        self.claim = claim

    @classmethod
    def claim_one(cls) -> "SandboxSlot":
        """A user that no other sandbox of this machine runs programs as; none but one's own without root."""
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
        raise LabError(f"all {len(UIDS)} uids for sandboxes are in use: end other gspo-lab processes")

    def release(self) -> None:
        """Let another sandbox have the user."""
        if self.claim is not None:
            self.claim.close()


class SharedOrExclusive:
    """Lets tests run side by side, or one alone: who wants to be alone waits for the others, and they for it.

    The others wait for at most a tenth of the time: until that has passed a test runs beside them all the same.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.running = 0
        self.waiting = 0
        self.next_alone = 0.0
        """When, by the monotonic clock, the next test may be alone."""

    @contextlib.contextmanager
    def turn(self, *, alone: bool) -> Iterator[None]:
        """Run beside others, unless one is to be alone; or `alone`, when nothing else runs."""
        with self.changed:
            came = time.monotonic()
            alone = alone and not self.waiting and came >= self.next_alone
            self.waiting += alone
            self.changed.wait_for(lambda: not (self.running if alone else self.waiting))
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


class Sandbox:
    """Runs programs isolated from the machine and from each other. Thread-safe: callers beyond `slots` wait."""

    def __init__(self, walls: Isolation, slots: Sequence[SandboxSlot]) -> None:
        self.walls = walls
        self.slots = len(slots)
        self.level = walls.level(slots[0].uid)
        """The isolation really reached, as `open` saw it at work; stored with every grade."""
        self.uids = [slot.uid for slot in slots if slot.uid is not None]
        self._all = slots
        self._free: queue.SimpleQueue[SandboxSlot] = queue.SimpleQueue()
        self._crowd = SharedOrExclusive()
        for slot in slots:
            self._free.put(slot)

    @classmethod
    def open(cls, *, slots: int | None = None, unsafe: bool = False) -> "Sandbox":
        """Isolation that was tried out. `slots` candidates at once, as many as cores by default.

        LabError if they do not hold here; with `unsafe`, programs then run under limits alone.
        """
        if sys.platform != "linux":
            raise LabError("programs can be run on Linux only: its kernel isolates them")
        first = SandboxSlot.claim_one()
        lack = missing()
        refused: list[str] = []
        for isolated in [*([] if lack else [True]), *([False] if unsafe else [])]:
            for python in pythons():
                walls = Isolation(python, numpy_for(python), isolated)
                try:
                    probe(walls, first.uid)
                except (SandboxFailed, LabError) as failure:
                    refused.append(f"{'bubblewrap' if isolated else 'limits alone'} with {python}: {failure}")
                    continue
                count = slots or cores()
                return cls(walls, [first, *(SandboxSlot.claim_one() for _ in range(count - 1))])
        first.release()
        why = lack or (NOT_HELD if refused else NO_PYTHON)
        raise LabError(
            f"programs cannot be isolated on this machine: {why}; user namespaces must be allowed. "
            "See docs/explanation/sandbox.md. "
            "Or take the risk with --unsafe-no-sandbox (in a study: the task's option unsafe = true)",
            details=tuple(refused),
        )

    def run(
        self,
        program: Program,
        inputs: Sequence[bytes],
        limits: Limits,
        *,
        go_on: GoOn = always,
        keep_output: bool = True,
    ) -> list[ExecutionResult]:
        """The outcomes of the tests in order, up to the one after which `go_on` says no.

        Without `keep_output` only `go_on` sees what a test wrote and returned: one candidate's may fill gigabytes.

        A test that ran out of time by the clock while others ran is tried once more, alone, and that counts.
        SandboxFailed if the sandbox could not do its work: that says nothing about the program.
        """
        if not inputs:
            raise ValueError("no tests: an empty list proves nothing")
        slot = self._free.get()
        try:
            with IsolatedProcess(program, limits, self.walls, slot.uid) as house:
                outcomes: list[ExecutionResult] = []
                for index, content in enumerate(inputs):
                    with self._crowd.turn(alone=False):
                        ended = house.test(content)
                    if ended.retry != "no":
                        with self._crowd.turn(alone=ended.retry == "alone"):
                            ended = house.test(content)
                    going_on = go_on(index, ended.outcome)
                    bare = replace(ended.outcome, stdout=b"", stderr=b"", result=None)
                    outcomes.append(ended.outcome if keep_output else bare)
                    if not going_on:
                        break
                return outcomes
        finally:
            self._free.put(slot)

    def close(self) -> None:
        """Let the users go."""
        for slot in self._all:
            slot.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def probe(walls: Isolation, uid: int | None) -> None:
    """Runs a program behind these walls that tries them; SandboxFailed if one does not hold."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", dir="/var/tmp") as outside:
        os.fchmod(outside.fileno(), 0o644)
        with IsolatedProcess(PROBE, Limits(), walls, uid) as house:
            outcome = house.test(outside.name.encode()).outcome
    if outcome.ending != "finished":
        raise SandboxFailed(f"a first program did not run: {outcome.stderr.decode(errors='replace').strip()[-300:]}")
    facts = json.loads(outcome.stdout)
    if uid is not None and facts["uid"] != uid:
        raise SandboxFailed(f"programs run as uid {facts['uid']}, not {uid}")
    if walls.isolated and (facts["sockets"] or facts["files"]):
        raise SandboxFailed(f"a program could open {'a socket' if facts['sockets'] else 'a file outside'}")
