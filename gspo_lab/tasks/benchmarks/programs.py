"""Grading of model-written programs: found in the answer, run in the sandbox, compared here.

The sandbox is given the program and the inputs and nothing else; expected outputs are compared in this process, on
bytes, after the program has ended.
"""

import atexit
import functools
import threading
from collections.abc import Callable, Sequence

from gspo_lab.sandbox import ExecutionResult, Limits, Program, Sandbox, SandboxFailed
from gspo_lab.tasks.base import Grade
from gspo_lab.tasks.benchmarks.boxed import NoAnswer, spoken
from gspo_lab.tasks.benchmarks.cases import Case
from gspo_lab.tasks.benchmarks.compare import RULES, Rule, output_rule, value_rule

FENCE = "```"
SHOWN = 200

ENDINGS = {"time": "time limit", "memory": "memory limit", "output": "output limit"}

Strictest = Callable[[Case, ExecutionResult], Rule | None]
"""The strictest rule by which a test that finished is passed; None: by none. Each later rule of RULES takes it too."""


_OPENING = threading.Lock()
"""Answers are graded in several threads, and the first ones would each open a sandbox of their own."""


def sandbox(unsafe: bool) -> Sandbox:
    """This process's sandbox, opened when it is first needed and closed when the process ends."""
    with _OPENING:
        return _opened(unsafe)


@functools.cache
def _opened(unsafe: bool) -> Sandbox:
    opened = Sandbox.open(unsafe=unsafe)
    atexit.register(opened.close)
    return opened


def extract_program(answer: str) -> str:
    """The lines between the last two that hold three backticks, behind the thinking (LiveCodeBench's own rule).

    NoAnswer where there are fewer than two, or nothing between them.
    """
    lines = spoken(answer).split("\n")
    fences = [place for place, line in enumerate(lines) if FENCE in line]
    if len(fences) < 2:
        raise NoAnswer("no program between two lines with ```")
    program = "\n".join(lines[fences[-2] + 1 : fences[-1]])
    if not program.strip():
        raise NoAnswer("nothing between the last two lines with ```")
    return program


def rule_of_output(case: Case, outcome: ExecutionResult) -> Rule | None:
    """Of a script: by which rule its stdout is the expected one."""
    return output_rule(case.output, outcome.stdout)


def rule_of_value(case: Case, outcome: ExecutionResult) -> Rule | None:
    """Of a function: by which rule it returned the expected value."""
    return value_rule(case.output, outcome.result, bool(outcome.exact))


def grade_program(
    opened: Sandbox, program: Program, cases: Sequence[Case], limits: Limits, rule: Rule, strictest: Strictest
) -> Grade:
    """Right is a program that passes every test by `rule`; it is run until no rule has it right any more.

    The reason ends in what other rules would have said where they decide otherwise: "[tolerant: right]". What keeps the
    sandbox from an outcome is the grade's error.
    """
    if not cases:
        return Grade(None, None, program.source, error="no tests", isolation=opened.level)
    failures: dict[Rule, str] = {}

    def go_on(index: int, outcome: ExecutionResult) -> bool:
        passed = strictest(cases[index], outcome) if outcome.ending == "finished" else None
        for failed in RULES if passed is None else RULES[: RULES.index(passed)]:
            failures.setdefault(failed, f"test {index + 1} of {len(cases)}: {why(outcome)}")
        return len(failures) < len(RULES)

    try:
        outcomes = opened.run(program, [case.input for case in cases], limits, go_on=go_on, keep_output=False)
    except SandboxFailed as error:
        return Grade(None, None, program.source, error=f"the sandbox failed: {error}", isolation=opened.level)
    killed = any(one.ending == "killed" for one in outcomes)
    if killed or (len(outcomes) < len(cases) and len(failures) < len(RULES)):
        what = "a test was ended from outside" if killed else f"only {len(outcomes)} of {len(cases)} tests were run"
        return Grade(None, None, program.source, error=f"the sandbox failed: {what}", isolation=opened.level)
    right = rule not in failures
    reason = failures.get(rule, f"passed all {len(cases)} tests")
    for other in RULES:
        if (other not in failures) != right:
            reason += f" [{other}: {'wrong' if right else 'right'}]"
    return Grade(float(right), right, program.source, reason, isolation=opened.level)


def why(outcome: ExecutionResult) -> str:
    """How a failed test ended, in a few words: `wrong output`, `exit 1: ZeroDivisionError: division by zero`."""
    if outcome.ending == "finished":
        return "wrong output"
    if outcome.ending == "error":
        last = outcome.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f"exit {outcome.exit_code}: {ascii(last)[1:-1][:SHOWN]}".removesuffix(": ")
    return ENDINGS.get(outcome.ending, outcome.ending)
