from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from calling import lab_error
from public_data import public

from gspo_lab.tasks import build_task
from gspo_lab.tasks.base import Problem
from gspo_lab.tasks.benchmarks.gsm8k import Gsm8k

GOLD = Problem("gsm8k-test-1", "?", "1080")


RIGHT = [
    r"\boxed{1080}",
    r"\boxed{1,080}",
    r"\boxed{1{,}080}",
    r"\boxed{\$1080}",
    r"\boxed{1080.00}",
    r"\boxed{x = 1080}",
    r"\boxed{1080 \text{ dollars}}",
    "so\n#### 1080",
    "so\n#### $1,080.",
    "#### 5\n\\boxed{1080}",
    "\\boxed{5}\n#### 1080",
    "<think>#### 5</think>#### 1080",
    # Lenient: a per cent sign, words, full-width digits.
    r"\boxed{1080\%}",
    r"\boxed{1080 apples}",
    r"\boxed{1080 / day}",
    "\\boxed{１０８０}",
]
WRONG = [
    r"\boxed{10,80}",
    r"\boxed{1080.5}",
    r"\boxed{108}",
    r"\boxed{-1080}",
    r"\boxed{1080 or 1081}",
    r"\boxed{1080/1}",
    "1080",
    "####",
    "#### 1080\n\\boxed{10",
    "\\boxed{1080}\n#### 5",
    "<think>#### 1080",
    r"\boxed{10*80}",
    r"\boxed{5 = 1080}",
]


@pytest.mark.parametrize("answer", [*RIGHT, *WRONG])
def test_answers_graded_by_hand(answer: str) -> None:
    grade = Gsm8k().grade(GOLD, answer)
    right = answer in RIGHT
    assert (grade.correct, grade.reward, grade.error) == (right, float(right), None), grade.reason


def test_the_published_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GSPO_LAB_DATA", str(public("gsm8k_test.jsonl").parent))
    task = build_task("gsm8k", {})
    train = task.problems("train")
    held_out = task.problems("held-out")
    assert (len(train), len(held_out)) == (7_473, 1_319)
    assert not {one.prompt for one in train} & {one.prompt for one in held_out}
    assert held_out[0].reference == "18"
    assert "<<" not in "".join(one.demonstration or "" for one in train)
    for one in (*train[:500], *held_out):
        assert task.grade(one, one.demonstration).correct is True
        assert len(one.demonstration.encode()) < task.max_tokens
    assert task.data_digest is not None


def test_a_gold_without_its_mark_is_an_error(
    write_rows: Callable[[str, Iterable[Any]], Path],
) -> None:
    rows = [
        {"question": f"How many are {n}?", "answer": f"They are {n}.\n#### {n}"}
        for n in range(1_318)
    ]
    path = write_rows("own.jsonl", [*rows, {"question": "And now?", "answer": "They are 5."}])
    with lab_error(r"own.jsonl, row 1319: the answer must end in '#### NUMBER'"):
        Gsm8k(data=str(path)).problems("held-out")
