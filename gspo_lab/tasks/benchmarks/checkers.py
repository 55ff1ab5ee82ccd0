"""Programs whose output a checker judges: a Python program of the data set's, which a model wrote.

So it runs in the sandbox too, after the program and apart from it. It is called with three files, the input, the
correct output and the program's, and prints a number. Some print 1 and some 100 for a right output. So each is first
shown the correct output of every test as if a program had printed it: that number is the test's full one. A checker
that gives a correct output none is broken. Then no answer to the problem is graded, whatever it says: graded answers
would be those that fail before the checker is asked.
"""

from collections.abc import Callable, Iterator, Sequence

from gspo_lab.sandbox import ExecutionResult, Limits, Program, Sandbox, SandboxFailed
from gspo_lab.tasks.base import Grade
from gspo_lab.tasks.benchmarks.cases import Case
from gspo_lab.tasks.benchmarks.programs import why

LIMITS = Limits(seconds=30.0)
KEPT_BYTES = 4 << 20
"""Outputs are kept until they are more than this, then checked."""

_CALL = """
import os as _os, sys as _sys
_text = _sys.stdin.buffer.read()
_sizes, _, _text = _text.partition(b"\\n")
_paths = []
for _size in map(int, _sizes.split()):
    _file = _os.memfd_create("text")
    _paths.append("/proc/self/fd/%d" % _file)
    with open(_file, "wb", closefd=False) as _stream:
        _stream.write(_text[:_size])
    _text = _text[_size:]
_sys.argv = ["checker.py", *_paths]
_sys.stdin = open(_os.devnull)
exec(compile({source!r}, "checker.py", "exec"), {{"__name__": "__main__"}})
"""


class CheckerFailed(Exception):
    """The checker gives a correct output no number: it can judge no answer to its problem."""


def full_numbers(opened: Sandbox, checker: str, cases: Sequence[Case]) -> tuple[float, ...]:
    """What the checker gives the correct output of each test. CheckerFailed where that is no number above 0,
    SandboxFailed where it could not be run."""
    numbers: list[float] = []

    def go_on(_index: int, outcome: ExecutionResult) -> bool:
        number = _number(outcome)
        if outcome.ending == "killed":
            raise SandboxFailed("the checker was not run to its end")
        if number is None or number <= 0:
            test = f"test {len(numbers) + 1} of {len(cases)}"
            raise CheckerFailed(f"{test}: the checker gives the correct output no number above 0: {_said(outcome)}")
        numbers.append(number)
        return True

    for several in _batches(cases, [len(case.output) for case in cases]):
        _check(opened, checker, several, [case.output for case in several], go_on)
    return tuple(numbers)


def grade_checked(
    opened: Sandbox, program: Program, cases: Sequence[Case], limits: Limits, checker: str, full: Sequence[float]
) -> Grade:
    """Right is a program that finishes on every test and whose outputs the checker gives the `full` number each."""
    checked = 0
    try:
        while checked < len(cases):
            outcomes = _run_some(opened, program, cases[checked:], limits)
            finished = [outcome for outcome in outcomes if outcome.ending == "finished"]
            right = _count_right(opened, checker, cases[checked:], finished, full[checked:])
            checked += right
            if right < len(outcomes):
                reason = f"test {checked + 1} of {len(cases)}: {why(outcomes[right])}"
                return Grade(0.0, False, program.source, reason, isolation=opened.level)
    except SandboxFailed as error:
        return Grade(None, None, program.source, error=f"the sandbox failed: {error}", isolation=opened.level)
    return Grade(1.0, True, program.source, f"passed all {len(cases)} tests", isolation=opened.level)


def _run_some(opened: Sandbox, program: Program, cases: Sequence[Case], limits: Limits) -> list[ExecutionResult]:
    """The outcomes of the first tests: up to one that does not finish, or until enough output is kept."""
    kept = 0

    def go_on(_index: int, outcome: ExecutionResult) -> bool:
        nonlocal kept
        kept += len(outcome.stdout)
        return outcome.ending == "finished" and kept <= KEPT_BYTES

    outcomes = opened.run(program, [case.input for case in cases], limits, go_on=go_on)
    if outcomes[-1].ending == "killed":
        raise SandboxFailed("a test was ended from outside")
    return outcomes


def _count_right(
    opened: Sandbox, checker: str, cases: Sequence[Case], outcomes: Sequence[ExecutionResult], full: Sequence[float]
) -> int:
    """How many outcomes, from the first on, the checker gives the full number."""
    right = 0

    def go_on(index: int, outcome: ExecutionResult) -> bool:
        nonlocal right
        if outcome.ending == "killed":
            raise SandboxFailed("the checker was not run to its end")
        # One that breaks on this output has met what it did not expect: no right output.
        number = _number(outcome)
        accepted = number is not None and number >= full[index]
        right += accepted
        return accepted

    if outcomes:
        _check(opened, checker, cases[: len(outcomes)], [outcome.stdout for outcome in outcomes], go_on)
    return right


def _check(
    opened: Sandbox,
    checker: str,
    cases: Sequence[Case],
    outputs: Sequence[bytes],
    go_on: Callable[[int, ExecutionResult], bool],
) -> None:
    """Have the checker judge an output for each test, until `go_on` says no."""
    inputs = []
    for case, output in zip(cases, outputs, strict=True):
        sizes = " ".join(str(len(text)) for text in (case.input, case.output, output))
        inputs.append(b"%s\n%s%s%s" % (sizes.encode(), case.input, case.output, output))
    opened.run(Program(_CALL.format(source=checker)), inputs, LIMITS, go_on=go_on, keep_output=False)


def _batches(cases: Sequence[Case], sizes: Sequence[int]) -> Iterator[Sequence[Case]]:
    """The tests in order, in parts of not much more than KEPT_BYTES."""
    start, kept = 0, 0
    for place, size in enumerate(sizes, start=1):
        kept += size
        if kept > KEPT_BYTES or place == len(sizes):
            yield cases[start:place]
            start, kept = place, 0


def _number(outcome: ExecutionResult) -> float | None:
    """The one number that the checker printed, and nothing else; None for any other end."""
    if outcome.ending != "finished":
        return None
    try:
        return float(outcome.stdout.decode("ascii").strip())
    except ValueError:
        return None


def _said(outcome: ExecutionResult) -> str:
    if outcome.ending != "finished":
        return why(outcome)
    return repr(outcome.stdout[:80])
