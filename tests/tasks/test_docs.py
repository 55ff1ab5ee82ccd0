"""docs/reference/tasks.md is run: its files are written out and used."""

import re
import tomllib
from pathlib import Path

import pytest

from gspo_lab.tasks import Problem, Turn, build_task

PAGE = (Path(__file__).parents[2] / "docs/reference/tasks.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+ (\S+)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_the_users_own_task(folder: Path) -> None:
    assert set(FILES) == {"problems.jsonl", "my_file.py", "graded.py", "parrot.py", "study.toml"}
    table = tomllib.loads(FILES["study.toml"])["task"]
    task = build_task(table.pop("name"), table, folder)
    assert task.stop == ("\n",)
    assert task.max_tokens == 16
    france, japan = Problem("fr", *FRANCE), Problem("jp", *JAPAN)
    assert {*task.problems("train"), *task.problems("held-out")} == {france, japan}
    for answer, reward in [(" Paris.", 1.0), ("It is Paris.", 0.5), ("London", 0.0), ("", 0.0)]:
        grade = task.grade(france, answer)
        assert (grade.reward, grade.correct, grade.error) == (reward, reward == 1.0, None)


FRANCE = ("The capital of France is", "Paris", " Paris.\n")
JAPAN = ("The capital of Japan is", "Tokyo", " Tokyo.\n")


def test_the_grader_that_says_more(folder: Path) -> None:
    task = build_task("graded.py:grade", {"problems": "problems.jsonl", "held_out": 0.5}, folder)
    grade = task.grade(Problem("fr", *FRANCE), " Paris.\n")
    assert (grade.reward, grade.correct, grade.extracted, grade.reason) == (1.0, True, "Paris", "compared as text")


def test_the_parrot_replies_until_it_hears_the_reference(folder: Path) -> None:
    options = {"problems": "problems.jsonl", "held_out": 0.5, "reply": "reply"}
    task = build_task("parrot.py:grade", options, folder)
    france, turns = Problem("fr", *FRANCE), [Turn("Rome", "? "), Turn("Paris")]
    assert [task.reply(france, turns[:1]), task.reply(france, turns)] == ["? ", None]
    assert task.grade_turns(france, turns).reward == 0.5


def test_the_first_block_is_a_task() -> None:
    block = re.search(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    table = tomllib.loads(block[1])["task"]
    assert build_task(table.pop("name"), table).problems("train")[0].id == "add3-train-0"
