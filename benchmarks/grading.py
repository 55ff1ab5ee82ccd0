"""The cost of grading: fully isolated executions of tests per second, beside one isolated process
per test.

    python benchmarks/grading.py

Runs small correct programs in the sandbox, over as many slots as cores, and checks every output.
Prints the rates and writes them beside this file as JSON. `one house per candidate` is the way in
which candidates are graded: one sandbox starts, and its tests are forked inside. `one house per
test` starts one for every test. `python3 -c` is the bare interpreter with the same imports and
without isolation.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gspo_lab.tasks.sandbox import Limits, Program, Sandbox
from gspo_lab.tasks.sandbox.candidate import STARS

SOURCE = """
import sys
from collections import deque

def main():
    data = list(map(int, sys.stdin.read().split()))
    window, best = deque(), []
    for number in data[1:]:
        window.append(number)
        if len(window) > 3: window.popleft()
        best.append(max(window))
    print(sum(best))

if __name__ == "__main__":
    main()
"""
TESTS = 40
"""Tests per candidate; LiveCodeBench problems have about this many."""


def inputs(count: int) -> list[bytes]:
    return [b"4\n%d 2 3 1\n" % (number + 10) for number in range(count)]


def wanted(count: int) -> list[bytes]:
    return [b"%d\n" % (3 * (number + 10) + 3) for number in range(count)]


def timed(tests: int, work: Callable[[], None]) -> dict[str, float]:
    """Tests per second, and the CPU time of each, which depends little on other work."""
    before = os.times()
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    after = os.times()
    return {
        "tests/s": tests / seconds,
        "CPU ms a test": 1e3 * (sum(after[:4]) - sum(before[:4])) / tests,
    }


def in_sandbox(sandbox: Sandbox, candidates: int, tests: int) -> dict[str, float]:
    """Each candidate in its own sandbox."""

    def grade(_: int) -> None:
        outcomes = sandbox.run(Program(SOURCE), inputs(tests), Limits())
        assert [outcome.stdout for outcome in outcomes] == wanted(tests), outcomes

    def work() -> None:
        with ThreadPoolExecutor(sandbox.slots) as pool:
            list(pool.map(grade, range(candidates)))

    return max((timed(candidates * tests, work) for _ in range(3)), key=lambda one: one["tests/s"])


def bare(count: int, workers: int) -> dict[str, float]:
    text = "\n".join(f"from {module} import *" for module in STARS) + SOURCE

    def run(content: bytes) -> bytes:
        return subprocess.run(
            ["/usr/bin/python3", "-c", text], input=content, capture_output=True, check=True
        ).stdout

    def work() -> None:
        with ThreadPoolExecutor(workers) as pool:
            assert list(pool.map(run, inputs(count))) == wanted(count)

    return timed(count, work)


def rates() -> dict[str, dict[str, float]]:
    cores = len(os.sched_getaffinity(0))
    measured: dict[str, dict[str, float]] = {}
    with Sandbox.open() as sandbox:
        in_sandbox(sandbox, cores, 2)
        measured[f"{sandbox.level}: one house per candidate of {TESTS}"] = in_sandbox(
            sandbox, 10 * cores, TESTS
        )
        measured[f"{sandbox.level}: one house per test"] = in_sandbox(sandbox, 30 * cores, 1)
    measured["python3 -c with the same imports, not isolated"] = bare(30 * cores, cores)
    return measured


def main() -> None:
    measured = rates()
    for what, numbers in measured.items():
        print(f"{what}: " + ", ".join(f"{value:.1f} {unit}" for unit, value in numbers.items()))
    kept = {"cores": len(os.sched_getaffinity(0)), "sandbox": measured}
    Path(__file__).with_suffix(".json").write_text(
        json.dumps(kept, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
