"""Programs that are correct.

LiveCodeBench's own runner fails some of them, because its stdin and stdout are mocks.
"""

import json
from dataclasses import replace

import pytest
from case_tables import cases
from walled import TIGHT

from gspo_lab.tasks.sandbox import ExecutionResult, Limits, Program, Sandbox
from gspo_lab.tasks.sandbox.bubblewrap import ENVIRONMENT

STDIN = b"3 4\n10 20\n"
WANTED = b"7\n30\n"

SUMS: dict[str, str] = cases(__file__, "sums")


def one(
    sandbox: Sandbox,
    source: str,
    stdin: bytes = STDIN,
    limits: Limits = TIGHT,
    function: str | None = None,
) -> ExecutionResult:
    (outcome,) = sandbox.run(Program(source, function), [stdin], limits)
    return outcome


@pytest.mark.parametrize("source", SUMS.values(), ids=SUMS.keys())
def test_a_right_program_runs_right(source: str, sandbox: Sandbox) -> None:
    roomy = replace(TIGHT, seconds=5.0, memory_bytes=1 << 30)
    outcome = one(sandbox, source, limits=roomy)
    assert (outcome.ending, outcome.exit_code, outcome.stdout) == (
        "finished",
        0,
        WANTED,
    ), outcome.stderr.decode()
    assert outcome.stderr == b""


def test_numpy_is_there_if_this_environment_has_it(sandbox: Sandbox) -> None:
    if sandbox.isolation.numpy is None:
        pytest.skip(f"no numpy for {sandbox.isolation.python}")
    roomy = replace(TIGHT, seconds=5.0, memory_bytes=1 << 30)
    source = "import numpy\ndef f(n): return [numpy.int64(n), int(numpy.linalg.det(numpy.eye(3)))]"
    outcome = one(sandbox, source, b"3\n", roomy, "f")
    assert (outcome.result, outcome.exact) == (b"[3, 1]", True), outcome.stderr.decode()


def test_bytes_go_through_unchanged(sandbox: Sandbox) -> None:
    every = bytes(range(256)) * 500
    assert (
        one(sandbox, "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())", every).stdout
        == every
    )
    odd = b"\x00\xff\xfe \xe2\x82\xac\r\n\xd9\xa1 1_0\n"
    assert one(sandbox, "import sys\nsys.stdout.write(sys.stdin.read())", odd).stdout == odd
    large = b"7" * (8 << 20)  # that nobody reads, and that is read at once
    assert one(sandbox, "print('no')", large).stdout == b"no\n"
    at_once = "import os\nprint(len(os.read(0, 1 << 30)))"
    roomy = replace(TIGHT, memory_bytes=2 << 30)
    assert one(sandbox, at_once, large, roomy).stdout == b"8388608\n"


@pytest.mark.parametrize(
    ("source", "ending", "exit_code", "stderr"),
    cases(__file__, "how_a_program_ends"),
)
def test_how_a_program_ends_is_told(
    source: str, ending: str, exit_code: int, stderr: str, sandbox: Sandbox
) -> None:
    outcome = one(sandbox, source)
    assert (outcome.ending, outcome.exit_code) == (ending, exit_code), outcome
    assert stderr.encode() in outcome.stderr
    assert b"sandbox" not in outcome.stderr, "a traceback shows the program's own lines only"


@pytest.mark.parametrize(
    ("source", "stdin", "result", "exact"),
    [
        ("class Solution:\n    def f(self, a, b): return a + b", b"[1, 2]\n[3]", "[1, 2, 3]", True),
        ("def f(a, b): return (a, b)", b'"x"\n2.5\n', '["x", 2.5]', True),
        ("def f(): return [(1, 2)]", b"", "[[1, 2]]", False),
        ("def f(): return {1: 2}", b"", '{"1": 2}', False),
        (
            "def f(): return [True, None, 1.0, 10 ** 30]",
            b"\n",
            f"[true, null, 1.0, {10**30}]",
            True,
        ),
        ("def f(): return float('nan')", b"", "NaN", False),
        ("def f(): return '\\u0661\\x00'", b"", '"\\u0661\\u0000"', True),
        (
            (
                "class Solution:\n    n = 0\n    def f(self, x): self.n += x; print('noise');"
                " return self.n"
            ),
            b"5",
            "5",
            True,
        ),
        (
            "def f(x): return x[0][0] + len(x)\nif __name__ == '__main__': 1 / 0",
            b"[[4]]",
            "5",
            True,
        ),
    ],
)
def test_a_function_is_called_with_json_and_answers_in_json(
    source: str, stdin: bytes, result: str, exact: bool, sandbox: Sandbox
) -> None:
    outcome = one(sandbox, source, stdin, function="f")
    assert outcome.ending == "finished", outcome.stderr.decode()
    assert (outcome.result, outcome.exact) == (result.encode(), exact)


@pytest.mark.parametrize(
    ("source", "ending"),
    [
        ("def g(): return 1", "error"),
        ("class Solution:\n    def g(self): return 1", "error"),
        ("def f(): return {1, 2}", "finished"),
        (
            "class Liar:\n    def __eq__(self, other): return True\ndef f(): return Liar()",
            "finished",
        ),
        (
            (
                "class Pickled:\n    def __reduce__(self): return (print, ('unpickled',))\ndef f():"
                " return Pickled()"
            ),
            "finished",
        ),
        ("def f(): exit()", "finished"),
        ("def f():\n    import os\n    os._exit(0)", "finished"),
        ("def f(): 1 / 0", "error"),
        ("x = []\nx.append(x)\ndef f(): return x", "finished"),
    ],
)
def test_a_function_without_a_plain_result_has_none(
    source: str, ending: str, sandbox: Sandbox
) -> None:
    outcome = one(sandbox, source, b"", function="f")
    assert (outcome.ending, outcome.result, outcome.exact) == (ending, None, None), outcome


def test_tests_stop_where_the_parent_says(sandbox: Sandbox) -> None:
    program = Program("assert input() != 'c'\nprint('ok')")
    seen = []

    def go_on(index: int, outcome: ExecutionResult) -> bool:
        seen.append(index)
        return outcome.ending == "finished"

    outcomes = sandbox.run(program, [b"a\n", b"b\n", b"c\n", b"d\n"], TIGHT, go_on=go_on)
    assert [one.ending for one in outcomes] == ["finished", "finished", "error"]
    assert seen == [0, 1, 2]


def test_no_tests_are_an_error(sandbox: Sandbox) -> None:
    with pytest.raises(ValueError, match="proves nothing"):
        sandbox.run(Program("print(1)"), [], TIGHT)


def test_the_same_program_sees_the_same_order_of_a_set_every_time(sandbox: Sandbox) -> None:
    program = Program("print(list({str(i) for i in range(50)}))")
    first, second = sandbox.run(program, [b"", b""], TIGHT)
    assert first.stdout == second.stdout == one(sandbox, program.source, b"").stdout
    different = sandbox.run(Program("import random\nprint(random.random())"), [b"", b""], TIGHT)
    assert different[0].stdout != different[1].stdout, "random numbers are those of a fresh process"


def test_what_an_empty_environment_shows(sandbox: Sandbox) -> None:
    source = (
        "import json, os, sys\nprint(json.dumps([dict(os.environ), sys.argv, sys.path,"
        " os.getcwd()]))"
    )
    outcome = one(sandbox, source)
    environment, arguments, path, folder = json.loads(outcome.stdout)
    assert set(environment) <= {*ENVIRONMENT, "PWD"}
    assert arguments == ["solution.py"]
    assert "" not in path
    assert folder == "/tmp"
