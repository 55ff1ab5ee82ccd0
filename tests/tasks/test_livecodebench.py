"""LiveCodeBench: releases and windows of the published sizes, and damaged files.

Grading uses the real sandbox.
"""

import base64
import json
import pickle
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from assertions import assert_fields
from calling import lab_error
from case_tables import cases
from laboratory import json_of
from public_data import public

from gspo_lab.analysis.stats.passk import pass_at_k
from gspo_lab.cli.published_score import unusual_settings
from gspo_lab.common.plain_data import JsonObject, OptionalInt
from gspo_lab.tasks import Task, build_task, task_key
from gspo_lab.tasks.benchmarks.final_answers import NoAnswer
from gspo_lab.tasks.benchmarks.livecodebench import ReleaseWindow, decode_cases
from gspo_lab.tasks.benchmarks.program_grading import Case, cases_digest, extract_program
from gspo_lab.tasks.evaluation.benchmark_spec import BenchmarkOverrides, bench_of

Write = Callable[[str, Iterable[Any]], Path]

PER_FILE = (400, 111, 101, 101, 167)
"""Problems in test.jsonl, test2.jsonl, ... of release_v5."""

TWICE: JsonObject = {
    "question_id": "own_a",
    "question_title": "Twice",
    "question_content": "Print twice each number of the input.",
    "platform": "atcoder",
    "contest_id": "own",
    "contest_date": "2024-12-01T00:00:00",
    "starter_code": "",
    "difficulty": "easy",
    "public_test_cases": json.dumps(
        [{"input": "2\n3\n4\n", "output": "6\n8\n", "testtype": "stdin"}]
    ),
    "private_test_cases": json.dumps([{"input": "1\n5\n", "output": "10\n", "testtype": "stdin"}]),
    "metadata": "{}",
}
PAIRS = TWICE | {
    "question_id": "own_b",
    "question_title": "find-the-peaks",
    "question_content": "Return the pairs of neighbours.",
    "platform": "leetcode",
    "starter_code": (
        "class Solution:\n    def pairs(self, values: List[int], gap: int) -> List[List[int]]:\n   "
        "     "
    ),
    "public_test_cases": json.dumps(
        [{"input": "[1, 2, 3]\n1", "output": "[[1, 2], [2, 3]]", "testtype": "functional"}]
    ),
    "private_test_cases": json.dumps(
        [{"input": "[4]\n1", "output": "[]", "testtype": "functional"}]
    ),
    "metadata": '{"func_name": "pairs"}',
}


def fenced(program: str) -> str:
    return f"Here it is.\n```python\n{program}\n```\nDone."


def made(path: Path, **options: Any) -> Task:
    return build_task("livecodebench-file", {"data": str(path), **options})


@pytest.fixture
def own(write_rows: Write, can_isolate: None) -> Task:
    return made(write_rows("own.jsonl", [TWICE, PAIRS]), seconds=2)


@pytest.fixture
def release(write_rows: Write) -> Path:
    """The folder of release_v5 with its real ids, dates and titles.

    Statements and tests are our own.
    """
    rows = [json.loads(line) for line in public("lcb_v5_metadata.jsonl").read_text().splitlines()]
    start = 0
    for number, count in enumerate(PER_FILE, start=1):
        name = "test.jsonl" if number == 1 else f"test{number}.jsonl"
        write_rows(f"livecodebench/{name}", [TWICE | row for row in rows[start : start + count]])
        start += count
    assert start == len(rows) == 880
    return write_rows(
        "livecodebench/test6.jsonl", [TWICE | {"question_id": f"later{n}"} for n in range(175)]
    ).parent


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("livecodebench", 166),
        ("livecodebench-v5-2410-2502", 166),
        ("livecodebench-v5-2408-2502", 279),
        ("livecodebench-v5-all", 880),
        ("livecodebench-v4-all", 713),
    ],
)
def test_the_published_counts(
    release: Path, name: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GSPO_LAB_DATA", str(release.parent))
    problems = build_task(name, {}).problems("held-out")
    assert len(problems) == len({one.id for one in problems}) == count
    solved = [3 if n < count // 2 else 0 for n in range(count)]
    assert pass_at_k(solved, [8] * count, 1).mean() == pytest.approx(3 / 8 * (count // 2) / count)


def test_a_window_is_part_of_the_name_and_of_the_key(release: Path) -> None:
    options = {"data": str(release)}
    one = build_task("livecodebench", options)
    bench = bench_of("livecodebench-v5-2408-2502", options, Path(), BenchmarkOverrides(plain=True))
    other = bench.task
    assert [one.name, other.name] == ["livecodebench-v5-2410-2502", "livecodebench-v5-2408-2502"]
    assert one.grader == "livecodebench-lcb-6s/1"
    assert one.data_digest != other.data_digest
    assert task_key("livecodebench", options) != task_key("livecodebench-v5-2408-2502", options)
    # What `eval --published` names as unlike the published protocol.
    assert unusual_settings(bench) == {
        "prompt in the chat template": "False (usual True)",
        "window": "livecodebench-v5-2408-2502 (usual livecodebench-v5-2410-2502)",
    }


@pytest.mark.parametrize(
    ("date", "inside"),
    [
        ("09-30T23:59:59", False),
        ("10-01T00:00:00", True),
        ("12-31T00:00:00", True),
        ("12-31T19:30:00", False),
    ],
)
def test_a_window_ends_at_the_midnight_its_last_day_begins_with(date: str, inside: bool) -> None:
    assert ReleaseWindow.parse("2410-2412").holds(f"2024-{date}") is inside


@pytest.mark.parametrize(
    ("name", "options", "message"),
    cases(__file__, "mistakes_in_names_and_options"),
)
def test_mistakes_in_names_and_options(name: str, options: JsonObject, message: str) -> None:
    with lab_error(message):
        build_task(f"livecodebench{name}", options)


DAMAGED: dict[str, tuple[list[Any], str]] = {
    "a problem twice": ([TWICE, TWICE], r"own.jsonl:2: the problem own_a is also at .*own.jsonl:1"),
    "a column missing": (
        [{k: v for k, v in TWICE.items() if k != "metadata"}],
        "no text in metadata; is this a file",
    ),
    "a column of another kind": ([TWICE | {"difficulty": 3}], "no text in difficulty"),
    "no object": ([3], "no text in question_id"),
    "a date that is none": (
        [TWICE | {"contest_date": "soon"}],
        "contest_date 'soon' is not an ISO date",
    ),
    "metadata that are none": ([TWICE | {"metadata": "x"}], "the metadata are no JSON object"),
    "metadata of another kind": ([TWICE | {"metadata": "[]"}], "the metadata are no JSON object"),
    "a function's name that is code": (
        [PAIRS | {"metadata": '{"func_name": "a()"}'}],
        "is not the name of a function",
    ),
    "no tests": (
        [TWICE | {"public_test_cases": "[]", "private_test_cases": "[]"}],
        "no tests; without any",
    ),
    "tests that cannot be decoded": (
        [TWICE | {"private_test_cases": "eJw"}],
        "private_test_cases cannot be decoded",
    ),
    "nothing": ([], "no problem of the release lies in the window"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_an_error(damage: str, write_rows: Write) -> None:
    rows, message = DAMAGED[damage]
    task = made(write_rows("own.jsonl", rows))
    with lab_error(message) as caught:
        task.problems("held-out")
    assert "\n" not in str(caught.value)


def test_a_release_must_be_whole(release: Path) -> None:
    lines = (release / "test3.jsonl").read_text().splitlines()
    (release / "test3.jsonl").write_text("\n".join(lines[:-1]))
    with lab_error("879 problems in 5 files, not the 880 of the release"):
        build_task("livecodebench", {"data": str(release)}).problems("held-out")
    (release / "test3.jsonl").unlink()
    with lab_error(r"the release needs test3.jsonl too"):
        build_task("livecodebench", {"data": str(release)}).problems("held-out")


def test_a_file_that_changes_behind_the_index_is_noticed(own: Task, tmp_path: Path) -> None:
    problem = own.problems("held-out")[0]
    path = tmp_path / "own.jsonl"
    path.write_text(path.read_text().replace("10\\\\n", "11\\\\n"))
    with lab_error(r"the line of own_a has changed"):
        own.grade(problem, fenced("print(1)"))


def test_the_index_is_made_again_for_a_changed_file_and_may_not_be_kept(
    write_rows: Write, tmp_path: Path
) -> None:
    path = write_rows("own.jsonl", [TWICE])
    assert made(path).data_digest == made(path).data_digest
    write_rows("own.jsonl", [TWICE, PAIRS])
    (first,) = (tmp_path / "cache" / "benchmarks").iterdir()
    assert len(made(path).problems("held-out")) == 2
    (second,) = set((tmp_path / "cache" / "benchmarks").iterdir()) - {first}
    second.unlink()
    second.mkdir()  # no file can take this place
    assert len(made(path).problems("held-out")) == 2
    assert set(first.parent.iterdir()) == {first, second}


def test_prompts_and_references(write_rows: Write) -> None:
    task = made(write_rows("own.jsonl", [TWICE, PAIRS]))
    script, function = task.problems("held-out")
    assert "### Question:\nPrint twice" in script.prompt
    assert "```python\n# YOUR CODE HERE\n```\n\n### Answer:\n" in script.prompt
    assert "class Solution:\n    def pairs(" in function.prompt
    reference = json.loads(script.reference)
    assert len(reference.pop("sha256")) == 16
    facts = {"platform": "atcoder", "difficulty": "easy", "date": "2024-12-01T00:00:00"}
    assert reference == {"tests": 2, **facts}
    assert json.loads(function.reference)["errata"] == "several right outputs"
    assert "10" not in script.prompt, "a hidden test's output is no part of what is asked"


@pytest.mark.parametrize(
    ("answer", "program"),
    cases(__file__, "programs_in_answers"),
)
def test_the_program_in_an_answer(answer: str, program: str) -> None:
    if not program:
        with pytest.raises(NoAnswer):
            extract_program(answer)
    else:
        assert extract_program(answer) == program


EACH = "for _ in range(int(input())): "
SCRIPTS = [
    (f"{EACH}print(2 * int(input()))\nsys.exit()", True, "passed all 2 tests"),
    (
        f"print()\n{EACH}print('', 2.0 * int(input()), '')",
        True,
        "passed all 2 tests [strict: wrong]",
    ),
    (f"{EACH}print(2 * int(input()) + 1e-9)", False, "test 1 of 2: wrong output [tolerant: right]"),
    ("print(6)\nprint(8)", False, "test 2 of 2: wrong output"),
    ("1 / 0", False, "test 1 of 2: exit 1: ZeroDivisionError: division by zero"),
    ("for", False, "test 1 of 2: exit 1: SyntaxError: invalid syntax"),
    ("while True: pass", False, "test 1 of 2: time limit"),
    ("pass", False, "test 1 of 2: wrong output"),
]


def test_scripts(own: Task) -> None:
    for program, right, reason in SCRIPTS:
        grade = own.grade(own.problems("held-out")[0], fenced(program))
        assert_fields(grade, correct=right, reason=reason, error=None, extracted=program)
        assert grade.isolation


FUNCTIONS = cases(__file__, "functions")


def test_functions(own: Task) -> None:
    for method, right, reason in FUNCTIONS:
        grade = own.grade(own.problems("held-out")[1], fenced(f"class Solution:\n    def {method}"))
        assert (grade.correct, grade.error) == (right, None), grade.reason
        assert grade.reason.startswith(reason)


def test_another_rule_decides_otherwise(write_rows: Write, can_isolate: None) -> None:
    path = write_rows("own.jsonl", [TWICE])
    answer = fenced(SCRIPTS[2][0])
    wrong = (False, "test 1 of 2: wrong output [tolerant: right]")
    right = (True, "passed all 2 tests [strict: wrong] [lcb: wrong]")
    for rule, verdict in (("strict", wrong), ("lcb", wrong), ("tolerant", right)):
        task = made(path, compare=rule)
        grade = task.grade(task.problems("held-out")[0], answer)
        assert (grade.correct, grade.reason) == verdict


THREADS = """
import threading
from gspo_lab.tasks.benchmarks.program_grading import sandbox

together, found = threading.Barrier(4), []

def first():
    together.wait()
    found.append(sandbox(True))

threads = [threading.Thread(target=first) for _ in range(4)]
for one in threads:
    one.start()
for one in threads:
    one.join()
print(len(found), len(set(map(id, found))))
"""


def test_threads_share_one_sandbox_from_the_first_answer_on() -> None:
    said = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, timeout=240, check=True
    )
    assert said.stdout.split() == ["4", "1"]


def test_the_genuine_row(can_isolate: None) -> None:
    task = made(public("lcb_one_row.jsonl"))
    (problem,) = task.problems("held-out")
    assert problem.id == "1873_A"
    right = (
        "for _ in range(int(input())):\n    print('YES' if sum(map(str.__ne__, input(), 'abc')) < 3"
        " else 'NO')"
    )
    assert task.grade(problem, fenced(right)).reason == "passed all 5 tests"
    assert task.grade(problem, fenced(right.replace("< 3", "< 9"))).correct is False
    assert task.grade(problem, "no program").reason == "no program between two lines with ```"


STDIN = [{"input": "1\n", "output": "2\n", "testtype": "stdin"}]
FUNCTIONAL = [{"input": '[1, 2]\n"x"', "output": "3", "testtype": "functional"}]


def packed(value: object, protocol: OptionalInt = None) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value, protocol))).decode()


def decoded(public: str, private: str, functional: bool = False) -> list[Case]:
    row = {"public_test_cases": public, "private_test_cases": private}
    return decode_cases("row", row, functional=functional)


class Bomb:
    """Would write a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.write_text, (self.path, "boom")


def test_the_tests_of_the_genuine_row() -> None:
    cases = decode_cases("row", json_of(public("lcb_one_row.jsonl")), functional=False)
    assert len(cases) == 5
    assert cases[0] == Case(b"6\nabc\nacb\nbac\nbca\ncab\ncba\n", b"YES\nYES\nYES\nNO\nNO\nYES\n")
    assert all(case.input.endswith(b"\n") for case in cases)


@pytest.mark.parametrize(
    "private", [json.dumps(STDIN), packed(json.dumps(STDIN)), "[]", packed("[]")]
)
def test_both_encodings(private: str) -> None:
    cases = decoded(json.dumps(STDIN), private)
    assert cases == [Case(b"1\n", b"2\n")] * (1 if private in ("[]", packed("[]")) else 2)
    assert decoded(json.dumps(FUNCTIONAL), "[]", functional=True) == [Case(b'[1, 2]\n"x"', b"3")]


@pytest.mark.parametrize(
    ("public", "private", "message"),
    [
        ("[]", "[]", "row: no tests; without any, every program would pass"),
        ("[]", packed("[]"), "no tests"),
        ("", "[]", "public_test_cases is not a JSON list"),
        ("[]", '"x"', "private_test_cases is not a JSON list"),
        ("[]", "no base64!", "cannot be decoded: ValueError: neither JSON nor base64"),
        ("[]", base64.b64encode(b"no zlib").decode(), "cannot be decoded: error"),
        ("[]", packed(json.dumps(STDIN))[:-8], "cannot be decoded"),
        ("[]", packed([1]), "cannot be decoded: TypeError: the pickle holds list, not text"),
        ("[]", packed("[1, 2"), "private_test_cases is not a JSON list"),
        ("[]", packed(packed), "refused"),
        ('[{"input": "1"}]', "[]", "a test is not an object with the texts"),
        (
            '[{"input": 1, "output": "2", "testtype": "stdin"}]',
            "[]",
            "a test is not an object with the texts",
        ),
        (
            json.dumps(FUNCTIONAL),
            "[]",
            "of type 'functional' where the problem's metadata say 'stdin'",
        ),
    ],
)
def test_what_cannot_be_decoded_is_an_error_and_never_an_empty_list(
    public: str, private: str, message: str
) -> None:
    with lab_error(message):
        decoded(public, private)


def test_a_functional_test_must_expect_json() -> None:
    broken = json.dumps([FUNCTIONAL[0] | {"output": "[1, 2"}])
    with lab_error(r"expects '\[1, 2', which is not JSON"):
        decoded(broken, "[]", functional=True)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_would_run_code_runs_none(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "written"
    with lab_error(r"the global .* is refused"):
        decoded(json.dumps(STDIN), packed(Bomb(target), protocol))
    assert not target.exists()


def test_the_digest_tells_tests_apart() -> None:
    digests = {
        cases_digest(cases)
        for cases in ([Case(b"1", b"2")], [Case(b"12", b"")], [Case(b"2", b"1")], [])
    }
    assert len(digests) == 4
