"""Grading of model-written programs: found in the answer, run in the sandbox, compared here.

The sandbox is given the program and the inputs and nothing else; expected outputs are compared in
this process, on bytes, after the program has ended.

A checker is a Python program of the data set's, which a model wrote. So it runs in the sandbox too,
after the program and apart from it. It is called with three files, the input, the correct output
and the program's, and prints a number. Some print 1 and some 100 for a right output. So each is
first shown the correct output of every test: what it prints then is the test's full number. One
that gives a correct output none is broken, and no answer to its problem is graded.
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

ENDINGS = {"time": "time limit", "memory": "memory limit", "output": "output limit"}


@dataclass(frozen=True, slots=True)
class Case:
    """One test: what the program is given, what is expected of it."""

    input: bytes
    output: bytes


_OPENING = threading.Lock()
"""Answers are graded in several threads, and the first ones would each open a sandbox of their own.
"""


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
    """The lines between the last two that hold three backticks, behind the thinking
    (LiveCodeBench's own rule).

    NoAnswer where there are fewer than two, or nothing between them.
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
        """Its program."""
        return extract_program(answer)


def grade_program(
    opened: Sandbox, program: Program, cases: Sequence[Case], limits: Limits, rule: ComparisonRule
) -> Grade:
    """Right is a program that passes every test by `rule`; it is run until no rule has it right any
    more.

    The reason ends in what other rules would have said where they decide otherwise: "[tolerant:
    right]". What keeps the sandbox from an outcome is the grade's error.
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
    """What the checker gives the correct output of each test. CheckerFailed where that is not a
    number above 0, SandboxFailed where it could not be run."""
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
    """Right is a program that finishes on every test and whose outputs the checker gives the `full`
    number each.
    """
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
    """The outcomes of the first tests: up to one that does not finish, or until enough output is
    kept.
    """
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
    """Have the checker judge an output for each test, until `go_on` says no."""
    inputs = []
    for case, output in zip(cases, outputs, strict=True):
        texts = (case.input, case.output, output)
        sizes = " ".join(str(len(text)) for text in texts)
        inputs.append(b"".join((f"{sizes}\n".encode(), *texts)))
    opened.run(
        Program(_CALL.format(source=checker)), inputs, LIMITS, go_on=go_on, keep_output=False
    )


def _number(outcome: ExecutionResult) -> float | None:
    """The one number that the checker printed, and nothing else; None for any other end."""
    if outcome.ending != "finished":
        return None
    try:
        return float(outcome.stdout.decode("ascii").strip())
    except ValueError:
        return None
