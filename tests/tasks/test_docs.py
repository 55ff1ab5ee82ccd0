"""docs/reference/tasks.md is run.

Its files are written out and used, and its tables are compared with the code.
"""

import inspect
import json
import re
import tomllib
from pathlib import Path

import pytest
from assertions import assert_fields

from gspo_lab.common.registry import look_up
from gspo_lab.tasks import BENCHMARKS, TASKS, Problem, Turn, build_task
from gspo_lab.tasks.addition import demonstration
from gspo_lab.tasks.custom import OPTIONS

PAGE = (Path(__file__).parents[2] / "docs/reference/tasks.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+ (\S+)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL))
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_the_users_own_task(folder: Path) -> None:
    assert set(FILES) == {"problems.jsonl", "my_file.py", "graded.py", "parrot.py", "study.toml"}
    table = tomllib.loads(FILES["study.toml"])["task"]
    task = build_task(table.pop("name"), table, folder)
    assert_fields(task, stop=("\n",), max_tokens=16)
    france = Problem("fr", *FRANCE)
    japan = Problem("jp", *JAPAN)
    assert {*task.problems("train"), *task.problems("held-out")} == {france, japan}
    for answer, reward in [(" Paris.", 1.0), ("It is Paris.", 0.5), ("London", 0.0), ("", 0.0)]:
        grade = task.grade(france, answer)
        assert_fields(grade, reward=reward, correct=reward == 1.0, error=None)


FRANCE = ("The capital of France is", "Paris", " Paris.\n")
JAPAN = ("The capital of Japan is", "Tokyo", " Tokyo.\n")


def test_the_grader_that_says_more(folder: Path) -> None:
    task = build_task("graded.py:grade", {"problems": "problems.jsonl", "held_out": 0.5}, folder)
    grade = task.grade(Problem("fr", *FRANCE), " Paris.\n")
    assert_fields(grade, reward=1.0, correct=True, extracted="Paris", reason="compared as text")


def test_the_parrot_replies_until_it_hears_the_reference(folder: Path) -> None:
    options = {"problems": "problems.jsonl", "held_out": 0.5, "reply": "reply"}
    task = build_task("parrot.py:grade", options, folder)
    france = Problem("fr", *FRANCE)
    turns = [Turn("Rome", "? "), Turn("Paris")]
    assert [task.reply(france, turns[:1]), task.reply(france, turns)] == ["? ", None]
    assert task.grade_turns(france, turns).reward == 0.5


def test_the_first_block_is_a_task() -> None:
    block = re.search(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    table = tomllib.loads(block[1])["task"]
    assert build_task(table.pop("name"), table).problems("train")[0].id == "add3-train-0"


def rows(section: str, columns: int) -> list[list[str]]:
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line[:1] == "|"
    ]
    return [row for row in cells if len(row) == columns and row[0].startswith("`")]


def test_the_examples_are_the_codes_own() -> None:
    for prompt, shown in rows(SECTIONS["addition"], 2):
        assert (
            demonstration([int(text) for text in prompt.strip("`=").split("+")])
            == shown.strip("`") + "\n"
        )


def test_every_option_of_a_task_has_its_line() -> None:
    for name in TASKS:
        parameters = inspect.signature(look_up("task", name, TASKS)).parameters.values()
        expected = [
            (f"`{one.name}`", json.dumps(one.default)) for one in parameters
        ]  # as TOML writes it
        assert [(row[0], row[1].strip("`")) for row in rows(SECTIONS[name], 3)] == expected
    assert {row[0].strip("`") for row in rows(SECTIONS["Your own task"], 3)} == set(OPTIONS)


BENCHMARK_PAGE = (Path(__file__).parents[2] / "docs/reference/benchmarks.md").read_text(
    encoding="utf-8"
)


def options_of(name: str) -> list[str]:
    return [f"`{one}`" for one in inspect.signature(look_up("task", name, BENCHMARKS)).parameters]


def test_every_option_of_a_benchmark_has_its_line() -> None:
    sections = dict(
        re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", BENCHMARK_PAGE, flags=re.MULTILINE | re.DOTALL)
    )
    for name, title in {"livecodebench": "LiveCodeBench", "codeforces": "CodeForces"}.items():
        assert [row[0] for row in rows(sections[title], 3)] == options_of(name)
    small = rows(sections["AIME, MATH-500, GSM8K"], 4)
    for name in ("aime24", "aime25", "math500", "gsm8k"):
        assert [row[1] for row in small if row[0] == f"`{name}`"] == options_of(name)
