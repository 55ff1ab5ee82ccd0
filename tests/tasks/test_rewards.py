"""Reward functions of TRL's and verl's signatures, used as they are."""

import json
from pathlib import Path
from typing import Any

import pytest

from gspo_lab.errors import LabError
from gspo_lab.tasks import Problem, Task, build_task
from gspo_lab.tasks.custom import signature_of

REWARDS = '''
def trl(completions, **kwargs):
    """As in TRL's documentation: lists of texts and of columns."""
    return [float(text == right) for text, right in zip(completions, kwargs["ground_truth"])]

def trl_by_column(prompts, completions, answer):
    assert len(prompts) == len(completions) == len(answer) == 1
    return [0.5 * (text in prompt) + 0.5 * (text == right) for prompt, text, right in zip(prompts, completions, answer)]

def trl_of_messages(completions, solution, **kwargs):
    assert kwargs["prompts"][0][0]["role"] == "user"
    return [1.0 if message[0]["content"] == right else 0.0 for message, right in zip(completions, solution)]

def trl_of_nothing(completions, **kwargs):
    return [None for _ in completions]

def trl_of_two(completions, **kwargs):
    return [1.0, 1.0]

def trl_of_a_column_that_is_not_there(completions, difficulty):
    return [0.0]

def verl(data_source, solution_str, ground_truth, extra_info=None):
    assert extra_info["question"] == "7+9="
    return float(solution_str == ground_truth) if data_source == "sums" else -1.0

def verl_of_a_dict(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    return {"score": 0.25, "acc": solution_str == ground_truth}

def verl_without_the_rest(solution_str, ground_truth):
    return 1.0 * (solution_str == ground_truth)

def grade(problem, answer):
    return 1.0
'''
SUM = Problem("a", "7+9=", "16")


@pytest.fixture
def make(tmp_path: Path) -> Any:
    (tmp_path / "rewards.py").write_text(REWARDS)
    lines = [{"id": str(n), "prompt": f"{n}+9=", "reference": str(n + 9)} for n in range(40)]
    (tmp_path / "problems.jsonl").write_text("\n".join(map(json.dumps, lines)))

    def made(function: str, **options: Any) -> Task:
        return build_task(f"rewards.py:{function}", {"problems": "problems.jsonl", **options}, tmp_path)

    return made


@pytest.mark.parametrize(
    ("function", "options", "wrong", "right"),
    [
        ("trl", {}, 0.0, 1.0),
        ("trl_by_column", {}, 0.5, 0.5),
        ("trl_of_messages", {"messages": True}, 0.0, 1.0),
        ("verl", {"data_source": "sums"}, 0.0, 1.0),
        ("verl", {}, -1.0, -1.0),
        ("verl_without_the_rest", {}, 0.0, 1.0),
    ],
)
def test_a_reward_function_of_another_library_grades(
    make: Any, function: str, options: dict[str, Any], wrong: float, right: float
) -> None:
    task = make(function, **options)
    assert task.grader.startswith(f"{function}@"), "the version is that of the user's own source"
    assert [task.grade(SUM, answer).reward for answer in ("7", "16")] == [wrong, right]
    assert task.grade(SUM, "16").correct is (right >= 1)


def test_a_dict_of_verl_says_what_is_correct(make: Any) -> None:
    task = make("verl_of_a_dict")
    assert [(grade.reward, grade.correct) for grade in (task.grade(SUM, "7"), task.grade(SUM, "16"))] == [
        (0.25, False),
        (0.25, True),
    ]


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("trl_of_nothing", "the grader returned None, not a number"),
        ("trl_of_two", "returned [1.0, 1.0] for one completion, not a list of one reward"),
        ("trl_of_messages", "string indices must be integers"),
    ],
)
def test_what_it_returns_wrongly_is_an_error_of_that_grade(make: Any, function: str, error: str) -> None:
    grade = make(function).grade(SUM, "16")
    assert grade.reward is None
    assert error in grade.error


def test_what_does_not_fit_is_one_line(make: Any) -> None:
    with pytest.raises(LabError, match=r"parameter 'difficulty' is no column of a problem; it can be completions"):
        make("trl_of_a_column_that_is_not_there")
    with pytest.raises(LabError, match="messages belongs to reward functions of TRL; leave it out"):
        make("grade", messages=True)
    with pytest.raises(LabError, match="data_source belongs to reward functions of verl; leave it out"):
        make("trl", data_source="sums")


def test_the_lab_s_own_signature_is_told_from_theirs() -> None:
    assert signature_of(lambda problem, answer: 1.0) == "gspo-lab"
    assert signature_of(lambda prompts, completions: [1.0]) == "TRL"
    assert signature_of(lambda solution_str, ground_truth: 1.0) == "verl"
    assert signature_of(lambda options: None) is None
    assert signature_of(dict) is None
