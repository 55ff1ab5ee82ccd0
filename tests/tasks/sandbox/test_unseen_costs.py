"""What a program can cost beside its own memory and time: the kernel's memory, the runner's time,
its neighbours' time. Each test fails where nothing bounds that cost.
"""

import resource
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import median

import pytest
from walled import TIGHT

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
    """28 forks with 46,000 mappings each hold 285 MB of the kernel's, which no process's resident
    memory shows.
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


LATE = "import time\ntime.sleep(2.0)\nwhile True: pass"
"""Late by the clock, and not asleep for nine tenths of its time."""


def test_late_programs_hold_up_nobody_for_long(crowded: Sandbox) -> None:
    limits = replace(TIGHT, seconds=3.0)
    waits = []
    with ThreadPoolExecutor(6) as pool:
        late = [pool.submit(crowded.run, Program(LATE), [b""], limits) for _ in range(6)]
        while not all(run.done() for run in late):
            began = time.monotonic()
            (outcome,) = crowded.run(Program("print(1)"), [b""], limits)
            assert outcome.ending == "finished"
            own = outcome.seconds_wall
            waits.append(time.monotonic() - began - own)
    assert {run.result()[0].ending for run in late} == {"time"}
    # The median, because a busy machine may hold up the start of one sandbox.
    assert median(waits) < 2 * QUIET_SECONDS + 2.0, "beyond the start of its own sandbox"
