"""Ways to a verdict that a program did not earn.

There is nothing to find, nothing to forge, nothing that stays.
"""

import contextlib
import itertools
import json
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from assertions import assert_fields
from waiting import until
from walled import TIGHT

from gspo_lab.common.plain_data import JsonObject, OptionalInt
from gspo_lab.tasks.sandbox import Limits, Program, Sandbox
from gspo_lab.tasks.sandbox.isolated_process import IsolatedProcess, PipeReader
from gspo_lab.tasks.sandbox.sandbox import SharedOrExclusive

SEARCH = """
import ctypes, gc, json, os, sys
marker = input()[::-1]
found = []
frame = sys._getframe()
while frame:
    for where in (frame.f_locals, frame.f_globals):
        if marker in repr(list(where.items())).replace(repr(marker), ""): found.append("frames")
    frame = frame.f_back
own = {id(marker)}
for thing in gc.get_objects():
    try:
        if isinstance(thing, (list, tuple, dict)) and id(thing) not in (id(globals()), id(own)):
            values = thing.values() if isinstance(thing, dict) else thing
            if any(isinstance(one, (str, bytes)) and id(one) not in own and marker in str(one) for one in values):
                found.append("objects")
    except Exception: pass
if marker in repr(sys.argv) or marker in repr(dict(os.environ)): found.append("arguments")
needle = marker.encode()
for fd in range(3, 64):
    try: text = os.pread(fd, 1 << 20, 0)
    except OSError: continue
    if needle in text: found.append(f"descriptor {fd}")
try:
    spans = [line.split()[0].split("-") for line in open("/proc/self/maps") if "rw" in line.split()[1]]
    memory = open("/proc/self/mem", "rb", 0)
    copies = 0
    for start, end in spans:
        memory.seek(int(start, 16))
        try: copies += memory.read(int(end, 16) - int(start, 16)).count(b"!" + needle)
        except (OSError, OverflowError): pass
    if copies: found.append(f"memory {copies}")
except OSError: pass
for root, _, names in os.walk("/tmp"):
    found += [root + name for name in names]
print("found " + " ".join(found) if found else "nothing")
"""


def test_expected_outputs_are_nowhere_to_be_found(sandbox: Sandbox) -> None:
    """The expected outputs stand in this process, in every form.

    The program searches all that it can reach for them.
    """
    marker = secrets.token_hex(8)
    expected = ["!" + marker, "!" + marker]
    inputs = [marker[::-1].encode() + b"\n"] * 2
    outcomes = sandbox.run(
        Program(SEARCH), inputs, replace(TIGHT, seconds=5.0, memory_bytes=1 << 30)
    )
    assert [one.stdout for one in outcomes] == [b"nothing\n", b"nothing\n"], outcomes
    assert expected[0].endswith(marker)


HIDING = {
    "a module": "import math\nlast = getattr(math, 'last', None)\nmath.last = now",
    "a builtin": "import builtins\nlast = getattr(builtins, 'last', None)\nbuiltins.last = now",
    "a file": (
        """
last = None
for place in ("/tmp", "/dev/shm", "/var/tmp"):
    try:
        last = last or open(place + "/last").read()
    except OSError: pass
    try: open(place + "/last", "w").write(now)
    except OSError: pass
"""
    ),
    "a deep folder": (
        """
last = os.path.exists("/tmp/d") or None
try:
    os.mkdir("/tmp/d"); os.chdir("/tmp/d")
    for _ in range(3000): os.mkdir("d"); os.chdir("d")
except OSError: pass
"""
    ),
    "attributes of the scratch folder": (
        """
last = None
for place in ("/tmp", "/dev/shm"):
    try:
        last = last or (os.getxattr(place, "user.last") if "user.last" in os.listxattr(place) else None)
        os.setxattr(place, "user.last", now.encode())
    except OSError: pass
    try:
        last = last or (7 if os.stat(place).st_mtime == 7 else None)
        os.utime(place, (7, 7))
    except OSError: pass
    try:
        last = last or (1 if os.stat(place).st_mode & 0o777 == 0o711 else None)
        os.chmod(place, 0o711)
    except OSError: pass
"""
    ),
    "a process that lives on": (
        """
try: last = [name for name in os.listdir("/proc") if name.isdigit() and int(name) not in (1, os.getpid())] or None
except OSError: last = None
if not os.fork():
    os.setsid()
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    for fd in (0, 1, 2): os.close(fd)
    time.sleep(60)
"""
    ),
    "the house's own niceness": (
        """
last = os.getpriority(os.PRIO_PROCESS, 0) == 19 or None
try: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)
except OSError: pass
"""
    ),
    "the first process's limits": (
        """
import resource
last = resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 77 or None
try: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (77, 77))
except OSError: pass
"""
    ),
}


@pytest.mark.parametrize("hiding", HIDING.values(), ids=HIDING.keys())
def test_nothing_stays_from_one_test_to_the_next(hiding: str, sandbox: Sandbox) -> None:
    source = f"import os, signal, sys, time\nnow = input()\n{hiding}\nprint(last)"
    outcomes = sandbox.run(Program(source), [b"first\n", b"second\n", b"third\n"], TIGHT)
    assert [(one.ending, one.stdout) for one in outcomes] == [("finished", b"None\n")] * 3, outcomes


def test_a_house_is_kept_for_tests_that_leave_nothing_in_it(sandbox: Sandbox) -> None:
    """Speed rests on this: process ids go on counting within one process namespace."""
    source = "import os\nprint(os.getpid())"
    kept = sandbox.run(Program(source), [b"", b"", b""], TIGHT)
    assert [one.stdout for one in kept] == [b"2\n", b"3\n", b"4\n"]
    moved = sandbox.run(
        Program(f"{source}\nopen('x', 'w').close()\nos.unlink('x')"), [b"", b"", b""], TIGHT
    )
    assert [one.stdout for one in moved] == [b"2\n", b"2\n", b"2\n"]


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (
            (
                "class I(int):\n    __eq__ = lambda s, o: True\n    __repr__ = lambda s: '42'\ndef"
                " f(): return I(7)"
            ),
            7,
        ),
        (
            (
                "class S(str):\n    __eq__ = lambda s, o: True\n    __str__ = lambda s: 'y'\ndef"
                " f(): return S('x')"
            ),
            "x",
        ),
        (
            (
                "class L(list):\n    __eq__ = lambda s, o: True\n    __len__ = lambda s: 9\ndef"
                " f(): return L([1])"
            ),
            [1],
        ),
        ("class D(dict):\n    __eq__ = lambda s, o: True\ndef f(): return D(a=1)", {"a": 1}),
        (
            (
                "class F(float):\n    __eq__ = lambda s, o: True\n    __repr__ = lambda s: '9'\ndef"
                " f(): return F(0.5)"
            ),
            0.5,
        ),
        ("def f(): return True", True),
    ],
)
def test_lying_subclasses_cross_as_what_they_hold(
    body: str, result: object, sandbox: Sandbox
) -> None:
    (outcome,) = sandbox.run(Program(body, "f"), [b""], TIGHT)
    crossed = json.loads(outcome.result)
    assert crossed == result
    assert type(crossed) is type(result)


@pytest.mark.parametrize(
    ("source", "ending", "result"),
    [
        (
            "import os\ndef f():\n    os.write(3, b'1\"forged\"')\n    os._exit(0)",
            "finished",
            b'"forged"',
        ),
        (
            "import json\njson.dumps = lambda *a, **k: '\"forged\"'\ndef f(): return 1",
            "finished",
            b'"forged"',
        ),
        (
            "import os\ndef f():\n    os.write(3, b'1\"forged\"')\n    while True: pass",
            "time",
            None,
        ),
        ("import os\ndef f():\n    os.write(3, b'1\"forged\"')\n    os._exit(1)", "error", None),
    ],
)
def test_what_is_forged_is_no_more_than_what_could_be_returned(
    source: str, ending: str, result: bytes | None, sandbox: Sandbox
) -> None:
    """The channel of the result is the program's own.

    It can write anything there except what it does not know.
    """
    (outcome,) = sandbox.run(Program(source, "f"), [b""], replace(TIGHT, seconds=0.3))
    assert (outcome.ending, outcome.result) == (ending, result)


def test_a_script_has_no_descriptor_but_its_own_three(sandbox: Sandbox) -> None:
    source = """
import os
for fd in range(3, 1024):
    try: os.fstat(fd)
    except OSError: continue
    print("open", fd)
for fd in range(3, 64):
    try: os.write(fd, b'{"cause": "exit", "status": 0, "cpu": 0, "queued": 9, "clean": true}')
    except OSError: pass
raise SystemExit(5)
"""
    (outcome,) = sandbox.run(Program(source), [b""], TIGHT)
    assert_fields(outcome, ending="error", exit_code=5, stdout=b"")


def test_output_after_the_exit_does_not_count(sandbox: Sandbox) -> None:
    source = """
import os, time
print("early", flush=True)
if not os.fork():
    os.setsid()
    time.sleep(5)
    os.write(1, b"late")
"""
    (outcome,) = sandbox.run(Program(source), [b""], TIGHT)
    assert (outcome.ending, outcome.stdout) == ("finished", b"early\n")
    assert outcome.seconds_wall < 5, "nobody waits for it"


def test_a_right_output_with_a_wrong_end_is_seen(sandbox: Sandbox) -> None:
    for source, ending in (
        ("print(1, flush=True)\nwhile True: pass", "time"),
        ("print(1, flush=True)\n1 / 0", "error"),
    ):
        (outcome,) = sandbox.run(Program(source), [b""], replace(TIGHT, seconds=0.3))
        assert (outcome.stdout, outcome.ending) == (b"1\n", ending)


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.kill(os.getpid(), 9)",
        "import signal\nsignal.raise_signal(9)",
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (0, 0))\nwhile True: pass",
    ],
)
def test_a_program_that_kills_itself_is_wrong_unless_the_kernel_may_have_ended_it(
    sandbox: Sandbox, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for counts, ending in (([7], "error"), ([1, 2], "killed"), ([None], "killed")):
        kernel_kills(monkeypatch, *counts)
        (outcome,) = sandbox.run(Program(source), [b""], TIGHT)
        assert outcome.ending == ending


def kernel_kills(monkeypatch: pytest.MonkeyPatch, *counts: OptionalInt) -> None:
    """The kernel says, again and again, that it has ended so many processes for want of memory."""
    told = itertools.cycle(counts)
    monkeypatch.setattr("gspo_lab.tasks.sandbox.isolated_process.oom_kills", lambda: next(told))


def test_who_exhausts_its_memory_or_the_machine_s_is_wrong(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_kills(monkeypatch, 1, 2)
    source = """
import os, time
held = bytearray(os.urandom(1 << 20)) * int(input())
time.sleep(0.3)
os.kill(os.getpid(), 9)
"""
    # MiB held of 256, and of what the machine has. Who held little did not bring it about, however
    # little there was.
    cases = (
        (180, 1 << 20, "memory"),
        (180, 200, "memory"),
        (80, 1 << 20, "killed"),
        (40, 50, "killed"),
    )
    for held, room, ending in cases:
        monkeypatch.setattr(
            "gspo_lab.tasks.sandbox.isolated_process.memory_available", lambda room=room: room << 20
        )
        (outcome,) = sandbox.run(Program(source), [b"%d" % held], TIGHT)
        assert outcome.ending == ending, (held, room)


def test_who_exhausts_the_memory_is_wrong_also_where_its_house_is_ended(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first process can no longer tell: what it has told meanwhile counts."""
    kernel_kills(monkeypatch, *range(100))
    wait = IsolatedProcess.wait

    def end_at_140_mib(
        house: IsolatedProcess, reading: PipeReader, deadline: float
    ) -> JsonObject | None:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(wait, house, reading, deadline)
            until(lambda: house.held > 140 << 20)
            house.kill_first_process()
            return waiting.result()

    monkeypatch.setattr(IsolatedProcess, "wait", end_at_140_mib)
    source = "import time\nheld = bytearray(b'x' * (1 << 20)) * 190\ntime.sleep(60)"
    (outcome,) = sandbox.run(Program(source), [b""], replace(TIGHT, seconds=60.0))
    assert outcome.ending == "memory"


@pytest.fixture
def no_turn_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = SharedOrExclusive.turn

    def beside(
        self: SharedOrExclusive, *, alone: bool, seconds: float = 0.0
    ) -> contextlib.AbstractContextManager[None]:
        assert not alone, "it was tried again with nobody beside it"
        return turn(self, alone=alone, seconds=seconds)

    monkeypatch.setattr(SharedOrExclusive, "turn", beside)


SLEEPERS = (
    "import time; time.sleep(60)",
    "import os, time\nfor _ in range(3): os.fork()\ntime.sleep(60)",
    (
        "import threading, time\nshort = threading.Thread(target=print); short.start();"
        " short.join()\ntime.sleep(60)"
    ),
    "import os, time\nif not os.fork(): os._exit(0)\nos.wait()\ntime.sleep(60)",
    "import os; os.posix_spawn('/bin/sh', ['sh', '-c', 'sleep 60; true'], {}); os.wait()",
    "import ctypes, time\nif not ctypes.CDLL(None).vfork(): time.sleep(60)",
    "import os, time; os.write(1, bytes(1 << 16)); time.sleep(60)",
)


@pytest.mark.usefixtures("no_turn_alone")
def test_a_sleeper_has_nobody_wait_for_it(crowded: Sandbox) -> None:
    """Late by the clock alone, but of its own will: it is not tried again with nobody beside it."""
    limits = replace(TIGHT, seconds=1.5)
    with ThreadPoolExecutor(len(SLEEPERS)) as pool:
        waiting = [pool.submit(crowded.run, Program(source), [b""], limits) for source in SLEEPERS]
    for source, future in zip(SLEEPERS, waiting, strict=True):
        (outcome,) = future.result()
        assert (outcome.ending, outcome.seconds_cpu < 0.5) == ("time", True), source


def test_a_late_kill_has_nobody_wait_for_it(
    sandbox: Sandbox, no_turn_alone: None, monkeypatch: Any
) -> None:
    """It is tried again, as any program that was killed, but beside others."""
    kernel_kills(monkeypatch, 7)
    (outcome,) = sandbox.run(
        Program("import os, time\ntime.sleep(0.9)\nos.kill(os.getpid(), 9)"), [b""], TIGHT
    )
    assert outcome.ending == "error"


def test_a_look_into_a_scratch_folder_shows(sandbox: Sandbox) -> None:
    """Under one supervisor a folder's time of access would tell the next test.

    The start time of its first process shows that the supervisor is another one.
    """
    source = (
        "import"
        " os\nprint(open('/proc/1/stat').read().split()[21])\nos.utime('/dev/shm')\nos.listdir('/tmp')"
    )
    one, other = sandbox.run(Program(source), [b"", b""], TIGHT)
    assert one.stdout != other.stdout


def test_the_program_s_clocks_are_its_own_affair(sandbox: Sandbox) -> None:
    source = """
import signal, time
time.monotonic = time.time = time.process_time = lambda: 0.0
signal.setitimer(signal.ITIMER_REAL, 0); signal.setitimer(signal.ITIMER_PROF, 0)
while True: pass
"""
    (outcome,) = sandbox.run(Program(source), [b""], replace(TIGHT, seconds=0.4))
    assert outcome.ending == "time"
    assert 0.3 <= outcome.seconds_cpu < 1.5  # at 2 s the kernel alone would have ended it


SPIN = """
import time
while time.process_time() < {seconds}: pass
print("done")
"""


def test_a_crowd_takes_no_time_from_anybody(crowded: Sandbox) -> None:
    """Eight programs run at once on fewer cores.

    Each needs 0.3 of its half second of CPU time, and far more by the clock.
    """
    limits = replace(TIGHT, seconds=0.5)
    with ThreadPoolExecutor(8) as pool:
        waiting = [
            pool.submit(crowded.run, Program(SPIN.format(seconds=0.3)), [b""], limits)
            for _ in range(8)
        ]
    outcomes = [future.result() for future in waiting]
    assert [(one.ending, one.stdout) for (one,) in outcomes] == [("finished", b"done\n")] * 8, (
        outcomes
    )


def test_the_limit_is_exact_to_a_few_hundredths(sandbox: Sandbox) -> None:
    sources = (
        SPIN.format(seconds=0.35),
        SPIN.format(seconds=0.65),
        "import time\ntime.sleep(0.65)",
    )
    outcomes = [
        sandbox.run(Program(source), [b""], replace(TIGHT, seconds=0.5))[0] for source in sources
    ]
    assert [outcome.ending for outcome in outcomes] == ["finished", "time", "time"]


def test_the_cpu_time_of_all_processes_counts(sandbox: Sandbox) -> None:
    source = "import os\nfor _ in range(3): os.fork()\n" + SPIN.format(seconds=0.3)
    (outcome,) = sandbox.run(Program(source), [b""], Limits(seconds=0.6))
    assert outcome.ending == "time"
    assert outcome.seconds_cpu > 0.6


IGNORED = """
import ctypes, os, signal, time
if {by_flag}:
    action = (ctypes.c_uint64 * 4)(0, 2, 0, 0)  # SIG_DFL, SA_NOCLDWAIT
    ctypes.CDLL(None).syscall({{"x86_64": 13, "aarch64": 134}}[os.uname().machine], 17, action, None, 8)
else:
    try: signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    except OSError: pass
while True:
    try: child = os.fork()
    except OSError: continue
    if not child:
        while time.process_time() < 0.01: pass
        os.write(1, b".")
        os._exit(0)
"""


@pytest.mark.parametrize("by_flag", [False, True], ids=["ignored", "not waited for"])
def test_the_time_of_children_that_nobody_collects_counts(by_flag: bool, sandbox: Sandbox) -> None:
    """Each point is a hundredth of a second.

    The program waits for a core behind its own children all the while.
    """
    (outcome,) = sandbox.run(
        Program(IGNORED.format(by_flag=by_flag)), [b""], replace(TIGHT, seconds=0.5)
    )
    assert outcome.ending == "time"
    assert len(outcome.stdout) <= 50, (
        "uncounted, it would be as much as the cores give in ten times the limit"
    )
