"""CodeForces problems: rows of the published shape and generated tests.

Checkers run in the sandbox.
"""

import json
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from assertions import assert_fields
from calling import lab_error
from case_tables import cases

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.tasks import Task, build_task, grade_answer
from gspo_lab.tasks.benchmarks import codeforces
from gspo_lab.tasks.sandbox import Program, Sandbox

Write = Callable[[str, Iterable[Any]], Path]

DOUBLE: JsonObject = {
    "id": "1/A",
    "contest_id": "1",
    "contest_start": 1_733_000_000,
    "time_limit": 2.0,
    "memory_limit": 256.0,
    "title": "Twice",
    "description": "Print twice the number.",
    "input_format": "A number.",
    "output_format": "Twice the number.",
    "interaction_format": None,
    "note": "Simple.",
    "examples": [{"input": "1\n", "output": "2\n"}],
    "rating": 800,
    "official_tests": [{"input": "1\n", "output": "2\n"}, {"input": "21\n", "output": "42\n"}],
    "official_tests_complete": True,
    "input_mode": "stdio",
    "generated_checker": None,
    "generated_tests": 0,
}
CHECKER = """
import sys
number = int(open(sys.argv[1]).read())
assert sum(map(int, open(sys.argv[2]).read().split())) == number
parts = [int(word) for word in open(sys.argv[3]).read().split()]
print({full} if sum(parts) == number and len(parts) == 2 else 0)
"""
SPLIT = DOUBLE | {
    "id": "1/B",
    "title": "Two parts",
    "description": "Print any two numbers whose sum is the number.",
    "rating": 1200,
    "official_tests": [{"input": "5\n", "output": "2 3\n"}, {"input": "9\n", "output": "4 5\n"}],
    "generated_checker": CHECKER.format(full=1),
}
TRIPLE = DOUBLE | {
    "id": "1/C",
    "description": "Print the number three times over.",
    "rating": None,
    "official_tests": [{"input": "1\n", "output": "3\n"}],
    "official_tests_complete": False,
    "generated_tests": 2,
}


def fenced(program: str) -> str:
    return f"```python\n{program}\n```"


@pytest.fixture
def made(write_rows: Write, can_isolate: None) -> Callable[..., Task]:
    """A function that makes the task of some rows."""

    def make(*rows: JsonObject, **options: Any) -> Task:
        return build_task("codeforces", {"data": str(write_rows("own.jsonl", rows)), **options})

    return make


def write_generated(folder: Path, tests: list[tuple[str, int, str, str]]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [
        dict(zip(("problem_id", "test_i", "input", "output"), test, strict=True)) for test in tests
    ]
    (folder / "generated_tests").mkdir(exist_ok=True)
    parquet.write_table(
        pyarrow.Table.from_pylist(rows), folder / "generated_tests" / "test_cases_0001.parquet"
    )


@pytest.fixture
def own(made: Callable[..., Task], tmp_path: Path) -> Task:
    """Three problems, the third with generated tests in its contest's parquet file."""
    write_generated(
        tmp_path, [("1/C", 1, "20\n", "60\n"), ("1/A", 0, "0\n", "7\n"), ("1/C", 0, "2\n", "6\n")]
    )
    return made(DOUBLE, SPLIT, TRIPLE)


PROGRAMS = cases(__file__, "programs")


def test_programs(own: Task) -> None:
    for problem, program, right, reason in PROGRAMS:
        grade = own.grade(own.problems("held-out")[problem], fenced(program))
        assert_fields(grade, correct=right, reason=reason, error=None)
        assert grade.isolation


def test_a_checker_that_gives_a_hundred_gives_no_prize_for_one(made: Callable[..., Task]) -> None:
    task = made(SPLIT | {"generated_checker": CHECKER.format(full=100).replace("else 0", "else 1")})
    (problem,) = task.problems("held-out")
    assert task.grade(problem, fenced("n = int(input())\nprint(0, n)")).correct is True
    assert task.grade(problem, fenced("print(7, 7)")).correct is False


@pytest.mark.parametrize(
    ("checker", "error"),
    [
        (
            "1 / 0",
            (
                "test 1 of 2: the checker gives the correct output no number above 0: exit 1:"
                " ZeroDivisionError"
            ),
        ),
        (
            "print('yes')",
            "test 1 of 2: the checker gives the correct output no number above 0: b'yes",
        ),
        ("print(0)", "test 1 of 2: the checker gives the correct output no number above 0"),
        (
            CHECKER.format(full=1) + "assert number != 9\n",
            "test 2 of 2: the checker gives the correct output no",
        ),
    ],
)
def test_a_broken_checker_leaves_no_answer_to_its_problem_graded(
    made: Callable[..., Task], checker: str, error: str
) -> None:
    """A broken checker leaves every answer to its problem ungraded.

    Otherwise answers that fail before the checker runs would count, and those that pass would not.
    """
    task = made(DOUBLE, SPLIT | {"generated_checker": checker})
    sound, broken = task.problems("held-out")
    for answer in (fenced("n = int(input())\nprint(0, n)"), fenced("1 / 0"), "no program at all"):
        for truncated in (False, True):
            grade = grade_answer(task, broken, answer, truncated=truncated)
            assert (grade.correct, grade.reward, grade.error[: len(error)]) == (None, None, error)
        assert task.grade(broken, answer).correct is None
    assert grade_answer(task, sound, fenced("1 / 0"), truncated=False).correct is False


def test_a_checker_sees_every_test_s_correct_output_once(
    made: Callable[..., Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[tuple[bool, int]] = []
    run = Sandbox.run

    def count(
        opened: Sandbox, program: Program, inputs: Sequence[bytes], *more: Any, **named: Any
    ) -> Any:
        outcomes = run(opened, program, inputs, *more, **named)
        runs.append(("checker.py" in program.source, len(outcomes)))
        return outcomes

    monkeypatch.setattr(Sandbox, "run", count)
    task = made(SPLIT)
    (problem,) = task.problems("held-out")
    for right in (True, False):
        runs.clear()
        answer = fenced(f"n = int(input())\nprint(0, n if {right} else 0)")
        assert task.grade(problem, answer).correct is right
        assert runs == [*([(True, 2)] if right else []), (False, 2), (True, 2 if right else 1)]


def test_large_outputs_are_checked_before_the_next_ones_are_made(made: Callable[..., Task]) -> None:
    """Each of 8 outputs has 5 MB.

    This process holds one at a time, with what is sent to the checker.
    """
    tests = [{"input": f"{number}\n", "output": f"0 {number}\n"} for number in range(8)]
    task = made(SPLIT | {"official_tests": tests, "time_limit": 20.0})
    (problem,) = task.problems("held-out")
    task.fault(problem)
    tracemalloc.start()
    try:
        grade = task.grade(problem, fenced("n = int(input())\nprint(0, ' ' * 5_000_000, n)"))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert_fields(grade, correct=True, error=None)
    assert most < 33_000_000, "all together have 40 MB, and more as JSON"


def test_a_checker_cannot_leave_its_sandbox(made: Callable[..., Task], tmp_path: Path) -> None:
    task = made(
        SPLIT
        | {"generated_checker": f"open({str(tmp_path / 'written')!r}, 'w').write('x')\nprint(1)"}
    )
    assert task.grade(task.problems("held-out")[0], fenced("print(1)")).correct is None
    assert not (tmp_path / "written").exists()


def test_what_is_asked(own: Task) -> None:
    first, second, third = own.problems("held-out")
    assert [one.id for one in (first, second, third)] == ["1/A", "1/B", "1/C"]
    assert "Time limit: 2 s. Memory limit: 256 MB." in first.prompt
    assert "## Example\nInput:\n```\n1\n" in first.prompt
    assert "42" not in first.prompt, "hidden tests are no part of what is asked"
    assert json.loads(second.reference)["rating"] == 1200
    assert json.loads(second.reference)["checker"] is True
    assert json.loads(third.reference)["tests"] == 3
    assert own.grader == "codeforces-all-lcb-x1/2"


def test_what_cannot_be_judged_here_is_left_out(write_rows: Write) -> None:
    other = [
        DOUBLE | {"id": "1/D", "interaction_format": "Ask."},
        DOUBLE | {"id": "1/E", "input_mode": "file"},
    ]
    path = str(write_rows("own.jsonl", [DOUBLE, *other, TRIPLE]))
    task = build_task("codeforces", {"data": path, "tests": "official"})
    assert [one.id for one in task.problems("held-out")] == ["1/A"]
    with lab_error(
        r"its generated tests are missing: no file .*test_cases_0001.parquet; or use",
    ):
        build_task("codeforces", {"data": path}).problems("held-out")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (DOUBLE | {"id": 3}, "no text in id or description; is this open-r1/codeforces"),
        (DOUBLE | {"time_limit": None}, "time_limit or memory_limit is not a number"),
        (DOUBLE | {"official_tests": []}, "1/A has no tests"),
        (
            DOUBLE | {"official_tests": [{"input": "1"}]},
            "a test without the texts input and output",
        ),
        (TRIPLE | {"contest_id": "x"}, "the contest_id 'x' is not a number"),
        (DOUBLE | {"input_mode": "file"}, "no problem in .* that reads stdin and has tests"),
    ],
)
def test_damaged_rows_are_errors(write_rows: Write, row: JsonObject, message: str) -> None:
    with lab_error(message):
        build_task("codeforces", {"data": str(write_rows("own.jsonl", [row]))}).problems("held-out")


def test_generated_tests_are_counted_and_read_once_for_all_answers(
    own: Task, tmp_path: Path
) -> None:
    problem = own.problems("held-out")[2]
    answer = fenced("print(3 * int(input()))")
    first = own.grade(problem, answer)
    write_generated(tmp_path, [("1/C", 0, "2\n", "6\n")])
    assert own.grade(problem, answer) == first
    assert first.correct is True
    codeforces._generated.cache_clear()
    with lab_error(r"1 tests of 1/C, not 2"):
        own.grade(problem, answer)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tests": "some"}, "tests = 'some' must be one of all, official"),
        ({"compare": "exact"}, "compare = 'exact' must be one of"),
        ({"time_factor": -1}, "time_factor = -1 must be a number above 0"),
    ],
)
def test_mistakes_in_options(options: JsonObject, message: str) -> None:
    with lab_error(message):
        build_task("codeforces", options)
