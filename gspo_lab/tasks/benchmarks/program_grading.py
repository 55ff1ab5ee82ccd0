"""Grading of programs that a model wrote: extracted here, run in the sandbox, compared here.

The sandbox gets only the program and the inputs. This process compares the outputs with the
expected ones, on bytes, after the program has ended.

Some data sets have checkers: Python programs that a model wrote. So a checker runs in the sandbox
too, after the program and apart from it. It is called with three files (the input, the correct
output, the program's output) and prints a score. For a correct output some checkers print 1 and
some 100. So each checker first scores the correct output of every test: that is the test's full
score. A checker that prints no score above 0 for a correct output is broken. Then no answer to its
problem is graded.
"""

import atexit
import functools
import hashlib
import itertools
import threading
from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gspo_lab.tasks.base import Defaults, Grade, choice
from gspo_lab.tasks.benchmarks.final_answers import NoAnswer, without_thinking
from gspo_lab.tasks.benchmarks.output_comparison import (
    RULES,
    ComparisonRule,
    output_rule,
    value_rule,
)
from gspo_lab.tasks.benchmarks.published_benchmark import Published
from gspo_lab.tasks.sandbox import ExecutionResult, Limits, Program, Sandbox, SandboxFailed

FENCE = "```"
SHOWN = 200
"""The most characters shown of a program's last line on stderr."""

ENDINGS = {"time": "time limit", "memory": "memory limit", "output": "output limit"}


@dataclass(frozen=True, slots=True)
class Case:
    """One test: what the program is given, what is expected of it."""

    input: bytes
    output: bytes


_OPENING = threading.Lock()
"""Held while the sandbox opens: several threads grade, and only one sandbox may open."""


def sandbox(unsafe: bool) -> Sandbox:
    """This process's sandbox, opened when it is first needed and closed when the process ends."""
    with _OPENING:
        return _open_sandbox(unsafe)


@functools.cache
def _open_sandbox(unsafe: bool) -> Sandbox:
    opened = Sandbox.open(unsafe=unsafe)
    atexit.register(opened.close)
    return opened


def cases_digest(cases: Sequence[Case]) -> str:
    """sha256 of the tests, in order."""
    digest = hashlib.sha256()
    for case in cases:
        for part in (case.input, case.output):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def extract_program(answer: str) -> str:
    """The lines between the last two lines with three backticks, after the thinking.

    This is LiveCodeBench's own rule. NoAnswer if there are fewer than two, or nothing between them.
    """
    lines = without_thinking(answer).split("\n")
    fences = [place for place, line in enumerate(lines) if FENCE in line]
    if len(fences) < 2:
        raise NoAnswer("no program between two lines with ```")
    program = "\n".join(lines[fences[-2] + 1 : fences[-1]])
    if not program.strip():
        raise NoAnswer("nothing between the last two lines with ```")
    return program


class ProgramBenchmark(Published, ABC):
    """A benchmark whose answers are programs.

    `unsafe` runs them without isolation where nothing isolates them.
    """

    runs_programs = True
    # Samples are those of the GSPO paper and of CodeElo; the sampling is Qwen3's when thinking.
    defaults = Defaults(samples=8, temperature=0.6, top_p=0.95, max_tokens=32_768)
    max_tokens = 32_768

    def __init__(self, data: str | None, compare: ComparisonRule, unsafe: bool) -> None:
        super().__init__(data)
        self.rule: ComparisonRule = choice(self.name, "compare", compare, RULES)
        self.unsafe = unsafe

    def extract(self, answer: str) -> str:
        """The program in an answer."""
        return extract_program(answer)


def grade_program(
    opened: Sandbox, program: Program, cases: Sequence[Case], limits: Limits, rule: ComparisonRule
) -> Grade:
    """A program is correct if it passes every test by `rule`. It runs until every rule has failed.

    If other rules decide otherwise, the reason ends with their grade: "[tolerant: right]". If the
    sandbox gives no outcome, the grade has an error.
    """
    if not cases:
        return Grade(None, None, program.source, error="no tests", isolation=opened.level)
    failures: dict[ComparisonRule, str] = {}

    def go_on(index: int, outcome: ExecutionResult) -> bool:
        passed = _passed_rule(program, cases[index].output, outcome)
        for failed in RULES if passed is None else RULES[: RULES.index(passed)]:
            failures.setdefault(
                failed, f"test {index + 1} of {len(cases)}: {failure_text(outcome)}"
            )
        return len(failures) < len(RULES)

    problem = None
    try:
        outcomes = opened.run(
            program, [case.input for case in cases], limits, go_on=go_on, keep_output=False
        )
        if any(outcome.ending == "killed" for outcome in outcomes):
            problem = "a test was ended from outside"
        elif len(outcomes) < len(cases) and len(failures) < len(RULES):
            problem = f"only {len(outcomes)} of {len(cases)} tests were run"
    except SandboxFailed as error:
        problem = str(error)
    if problem is not None:
        return Grade(
            None,
            None,
            program.source,
            error=f"the sandbox failed: {problem}",
            isolation=opened.level,
        )
    right = rule not in failures
    reason = failures.get(rule, f"passed all {len(cases)} tests")
    other_verdict = "wrong" if right else "right"
    for another in RULES:
        if (another not in failures) != right:
            reason += f" [{another}: {other_verdict}]"
    return Grade(float(right), right, program.source, reason, isolation=opened.level)


def _passed_rule(
    program: Program, expected: bytes, outcome: ExecutionResult
) -> ComparisonRule | None:
    """The strictest rule by which a test's outcome is right; None: by no rule."""
    if outcome.ending != "finished":
        return None
    if program.function is None:
        return output_rule(expected, outcome.stdout)
    return value_rule(expected, outcome.result, bool(outcome.exact))


def failure_text(outcome: ExecutionResult) -> str:
    """How a failed test ended, in a few words.

    Examples: `wrong output`, `exit 1: ZeroDivisionError: division by zero`."""
    if outcome.ending == "finished":
        return "wrong output"
    if outcome.ending == "error":
        last = outcome.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f"exit {outcome.exit_code}: {ascii(last)[1:-1][:SHOWN]}".removesuffix(": ")
    return ENDINGS.get(outcome.ending, outcome.ending)


LIMITS = Limits(seconds=30.0)
"""The limits of a checker."""
KEPT_BYTES = 4 << 20
"""Outputs are collected until they exceed this size, then checked."""

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
    """The checker prints no score for a correct output, so it cannot grade answers."""


def full_numbers(opened: Sandbox, checker: str, cases: Sequence[Case]) -> tuple[float, ...]:
    """The full score of each test: what the checker prints for the correct output. CheckerFailed if
    that is not a number above 0, SandboxFailed if the checker could not run."""
    numbers: list[float] = []

    def go_on(_index: int, outcome: ExecutionResult) -> bool:
        number = _number(outcome)
        if outcome.ending == "killed":
            raise SandboxFailed("the checker was not run to its end")
        if number is None or number <= 0:
            test = f"test {len(numbers) + 1} of {len(cases)}"
            printed = (
                repr(outcome.stdout[:80]) if outcome.ending == "finished" else failure_text(outcome)
            )
            raise CheckerFailed(
                f"{test}: the checker gives the correct output no number above 0: {printed}"
            )
        numbers.append(number)
        return True

    while len(numbers) < len(cases):  # in parts of not much more than KEPT_BYTES
        sizes = itertools.accumulate(len(case.output) for case in cases[len(numbers) :])
        part = cases[len(numbers) :][: sum(size <= KEPT_BYTES for size in sizes) + 1]
        _check(opened, checker, part, [case.output for case in part], go_on)
    return tuple(numbers)


def grade_checked(
    opened: Sandbox,
    program: Program,
    cases: Sequence[Case],
    limits: Limits,
    checker: str,
    full: Sequence[float],
) -> Grade:
    """A program is correct if it finishes every test with an output of the test's `full` score."""
    checked = 0
    try:
        while checked < len(cases):
            outcomes = _run_some(opened, program, cases[checked:], limits)
            finished = [outcome for outcome in outcomes if outcome.ending == "finished"]
            right = _count_right(opened, checker, cases[checked:], finished, full[checked:])
            checked += right
            if right < len(outcomes):
                reason = f"test {checked + 1} of {len(cases)}: {failure_text(outcomes[right])}"
                return Grade(0.0, False, program.source, reason, isolation=opened.level)
    except SandboxFailed as error:
        return Grade(
            None, None, program.source, error=f"the sandbox failed: {error}", isolation=opened.level
        )
    return Grade(
        1.0, True, program.source, f"passed all {len(cases)} tests", isolation=opened.level
    )


def _run_some(
    opened: Sandbox, program: Program, cases: Sequence[Case], limits: Limits
) -> list[ExecutionResult]:
    """The outcomes of the first tests, up to one that does not finish or to `KEPT_BYTES`."""
    stored = 0

    def go_on(_index: int, outcome: ExecutionResult) -> bool:
        nonlocal stored
        stored += len(outcome.stdout)
        return outcome.ending == "finished" and stored <= KEPT_BYTES

    outcomes = opened.run(program, [case.input for case in cases], limits, go_on=go_on)
    if outcomes[-1].ending == "killed":
        raise SandboxFailed("a test was ended from outside")
    return outcomes


def _count_right(
    opened: Sandbox,
    checker: str,
    cases: Sequence[Case],
    outcomes: Sequence[ExecutionResult],
    full: Sequence[float],
) -> int:
    """How many outcomes, from the first on, get the full score from the checker."""
    right = 0

    def go_on(index: int, outcome: ExecutionResult) -> bool:
        nonlocal right
        if outcome.ending == "killed":
            raise SandboxFailed("the checker was not run to its end")
        # If the checker breaks on an output, the output is incorrect.
        number = _number(outcome)
        accepted = number is not None and number >= full[index]
        right += accepted
        return accepted

    if outcomes:
        _check(
            opened, checker, cases[: len(outcomes)], [outcome.stdout for outcome in outcomes], go_on
        )
    return right


def _check(
    opened: Sandbox,
    checker: str,
    cases: Sequence[Case],
    outputs: Sequence[bytes],
    go_on: Callable[[int, ExecutionResult], bool],
) -> None:
    """Run the checker on an output of each test, until `go_on` returns False."""
    inputs = []
    for case, output in zip(cases, outputs, strict=True):
        texts = (case.input, case.output, output)
        sizes = " ".join(str(len(text)) for text in texts)
        inputs.append(b"".join((f"{sizes}\n".encode(), *texts)))
    opened.run(
        Program(_CALL.format(source=checker)), inputs, LIMITS, go_on=go_on, keep_output=False
    )


def _number(outcome: ExecutionResult) -> float | None:
    """The number that the checker printed; None if it printed anything else or did not finish."""
    if outcome.ending != "finished":
        return None
    try:
        return float(outcome.stdout.decode("ascii").strip())
    except ValueError:
        return None
