"""Programs whose output a checker judges: a Python program of the data set's, which a model wrote.

So it runs in the sandbox too, after the program and apart from it. It is called with three files, the input, the
correct output and the program's, and prints a number. As some print 1 and some 100 for a right output, each is first
shown the correct output as if a program had printed it: that number is the full one.
"""

import json
from collections.abc import Sequence

from gspo_lab.sandbox import ExecutionResult, Limits, Program, Sandbox, SandboxFailed, while_finished
from gspo_lab.tasks.base import Grade
from gspo_lab.tasks.benchmarks.cases import Case
from gspo_lab.tasks.benchmarks.programs import why

LIMITS = Limits(seconds=30.0)

_CALL = """
import json as _json, sys as _sys, tempfile as _tempfile, os as _os
_place = _tempfile.mkdtemp()
_paths = []
for _name, _text in _json.loads(_sys.stdin.buffer.read()):
    _paths.append(_os.path.join(_place, _name))
    with open(_paths[-1], "wb") as _file:
        _file.write(_text.encode("latin-1"))
_sys.argv = ["checker.py", *_paths]
_sys.stdin = open(_os.devnull)
exec(compile({source!r}, "checker.py", "exec"), {{"__name__": "__main__"}})
"""


class CheckerFailed(Exception):
    """The checker said nothing that can be used: no verdict on the program."""


def grade_checked(opened: Sandbox, program: Program, cases: Sequence[Case], limits: Limits, checker: str) -> Grade:
    """Right is a program that finishes on every test and whose outputs the checker gives the full number each."""
    if not cases:
        return Grade(None, None, program.source, error="no tests", isolation=opened.level)
    try:
        outcomes = opened.run(program, [case.input for case in cases], limits, go_on=while_finished)
        last = outcomes[-1] if outcomes else None
        if last is None or last.ending == "killed" or (last.ending == "finished" and len(outcomes) < len(cases)):
            raise SandboxFailed("not every test was run to its end")
        for index, (case, outcome) in enumerate(zip(cases, outcomes, strict=False)):
            right = outcome.ending == "finished" and _accepted(opened, checker, case, outcome.stdout)
            if not right:
                reason = f"test {index + 1} of {len(cases)}: {why(outcome)}"
                return Grade(0.0, False, program.source, reason, isolation=opened.level)
    except (SandboxFailed, CheckerFailed) as error:
        return Grade(None, None, program.source, error=str(error), isolation=opened.level)
    return Grade(1.0, True, program.source, f"passed all {len(cases)} tests", isolation=opened.level)


def _accepted(opened: Sandbox, checker: str, case: Case, output: bytes) -> bool:
    inputs = [_files(case, case.output), _files(case, output)]
    outcomes = opened.run(Program(_CALL.format(source=checker)), inputs, LIMITS, go_on=while_finished)
    full = _number(outcomes[0])
    if full is None or full <= 0:
        raise CheckerFailed(f"the checker gives the correct output no number above 0: {_said(outcomes[0])}")
    if len(outcomes) != len(inputs) or outcomes[1].ending == "killed":
        raise SandboxFailed("the checker was not run to its end")
    # One that takes the correct output and breaks on this one has met what it did not expect: no right output.
    got = _number(outcomes[1])
    return got is not None and got >= full


def _files(case: Case, output: bytes) -> bytes:
    named = (("input.txt", case.input), ("correct.txt", case.output), ("output.txt", output))
    return json.dumps([[name, content.decode("latin-1")] for name, content in named]).encode()


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
