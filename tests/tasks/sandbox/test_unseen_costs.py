"""What a program can cost beside its own memory and time.

The kernel's memory, the runner's time, its neighbours' time. Each test fails where nothing bounds
that cost.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest
from walled import TIGHT, neighbours

from gspo_lab.tasks.sandbox import Program, Sandbox
from gspo_lab.tasks.sandbox.sandbox import QUIET_SECONDS

MAPPINGS = """
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
)
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
place = libc.mmap(None, 46_000 * 4096, 3, 0x22, -1, 0)
for page in range(0, 46_000, 2): libc.mprotect(place + 4096 * page, 4096, 1)
for _ in range(28):
    if not os.fork(): time.sleep(60)
time.sleep(60)
"""


def test_mappings_count_as_memory(sandbox: Sandbox) -> None:
    """28 forks with 46,000 mappings each hold 285 MB of the kernel's memory.

    No process's resident memory shows it.
    """
    limits = replace(TIGHT, seconds=20.0, processes=32)
    (outcome,) = sandbox.run(Program(MAPPINGS), [b""], limits)
    assert outcome.ending == "memory"


def test_one_process_may_have_many_mappings(sandbox: Sandbox) -> None:
    source = MAPPINGS.replace("range(28)", "range(0)").replace("time.sleep(60)", "print('well')")
    (outcome,) = sandbox.run(Program(source), [b""], replace(TIGHT, seconds=20.0))
    assert (outcome.ending, outcome.stdout) == ("finished", b"well\n"), outcome


def test_event_loops_run_without_the_kernel_s_lists_of_descriptors(sandbox: Sandbox) -> None:
    """epoll's entries are in no count (70 MB); Python's event loops do without."""
    source = """
import asyncio, select
async def double(number):
    await asyncio.sleep(0.001)
    return 2 * number
async def main():
    return await asyncio.gather(*map(double, range(3)))
try: select.epoll()
except OSError: print(asyncio.run(main()))
"""
    (outcome,) = sandbox.run(Program(source), [b""], replace(TIGHT, seconds=20.0))
    assert (outcome.ending, outcome.stdout) == ("finished", b"[0, 2, 4]\n"), outcome


TIMERS = """
import ctypes
libc = ctypes.CDLL(None)
count = 0
timer = ctypes.c_void_p()
while count < 10_000 and not libc.timer_create(1, None, ctypes.byref(timer)): count += 1
print(count)
"""


def test_timers_are_few(sandbox: Sandbox) -> None:
    (outcome,) = sandbox.run(Program(TIMERS), [b""], replace(TIGHT, seconds=20.0))
    assert outcome.ending == "finished", outcome
    assert int(outcome.stdout) <= 256


@pytest.mark.parametrize("size", [1, 7, 40])
def test_small_writes_cost_the_runner_less_than_the_program(size: int, sandbox: Sandbox) -> None:
    limits = replace(TIGHT, seconds=20.0, output_bytes=1 << 25)
    source = f"import os\nfor _ in range(int(input())): os.write(1, bytes({size}))"
    before = resource.getrusage(resource.RUSAGE_SELF)
    (outcome,) = sandbox.run(Program(source), [b"200000"], limits)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert len(outcome.stdout) == 200_000 * size, outcome
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < outcome.seconds_cpu


GROWTH = """
from pathlib import Path
from gspo_lab.tasks.benchmarks.program_grading import Case, grade_checked
from gspo_lab.tasks.sandbox import Limits, Program, Sandbox

def kibibytes(key):
    return int(Path("/proc/self/status").read_text().partition(key)[2].split()[0])

most = Limits().output_bytes - 1
source = f"import sys; sys.stdout.write('7' * {most}); sys.stderr.write('e' * {most})"
checker = "import sys; print(int(open(sys.argv[2]).read() == open(sys.argv[3]).read()))"
cases = [Case(b"", b"7" * most)]
with Sandbox.open(slots=1) as sandbox:
    before = kibibytes("VmRSS:")
    grade = grade_checked(sandbox, Program(source), cases, Limits(seconds=20), checker, [1.0])
    assert grade.correct, grade
print((kibibytes("VmHWM:") - before) // 1024)
"""


def test_what_a_candidate_writes_is_held_once(sandbox: Sandbox) -> None:
    """16 MiB on stdout and on stderr, with a checker that is shown both outputs.

    The peak is 47 MiB, and 64 if what was read and its copy are held together.
    """
    grown = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True)
    assert grown.returncode == 0, grown.stderr
    assert int(grown.stdout) < 56


LATE = "import time\ntime.sleep(2.4)\nwhile True: pass"
"""Late by the clock, and not asleep for nine tenths of its time."""


def test_late_programs_hold_up_nobody_for_long(
    crowded: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst wait for a turn, which is all that neighbours cost.

    To start a sandbox takes its own time.
    """
    limits = replace(TIGHT, seconds=3.0)
    waits = []
    turn = crowded._turns.turn

    @contextmanager
    def timed(*, alone: bool, **how: float) -> Iterator[None]:
        began = time.monotonic()
        with turn(alone=alone, **how):
            waits.append(time.monotonic() - began)
            yield

    monkeypatch.setattr(crowded._turns, "turn", timed)
    with ThreadPoolExecutor(4) as pool:
        late = [pool.submit(crowded.run, Program(LATE), [b""], limits) for _ in range(4)]
        assert {outcome.ending for outcome in neighbours(crowded, late)} == {"finished"}
    assert {run.result()[0].ending for run in late} == {"time"}
    assert QUIET_SECONDS / 2 < max(waits) < 2 * QUIET_SECONDS + 1.0, "one did wait, and not longer"
