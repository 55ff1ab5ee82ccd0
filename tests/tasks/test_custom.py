"""Reward functions of TRL's and verl's signatures, used as they are."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from assertions import assert_fields
from calling import lab_error
from case_tables import cases
from hypothesis import given
from hypothesis import strategies as st

from gspo_lab.common.plain_data import JsonObject, OptionalText
from gspo_lab.tasks import Grade, Problem, Task, build_task
from gspo_lab.tasks.base import grade_answer
from gspo_lab.tasks.reward_functions import signature_of

GRADERS = """\
from fractions import Fraction

from gspo_lab.tasks import Grade


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no")


class Odd:
    def __repr__(self):
        raise RuntimeError("no")


def grade(problem, answer):
    return eval(answer)


def raises(error):
    raise error
"""
GOOD = cases(__file__, "good")
FAILING = cases(__file__, "failing")


def lines(*problems: JsonObject) -> str:
    return "".join(json.dumps(problem) + "\n" for problem in problems)


def numbered(count: int, **more: Any) -> str:
    return lines(*({"prompt": f"{n}+1=", "reference": n + 1, **more} for n in range(count)))


def write(
    folder: Path, problems: str, grader: str = "def grade(problem, answer):\n    return 1.0\n"
) -> Path:
    (folder / "graders.py").write_text(grader)
    (folder / "problems.jsonl").write_text(problems)
    return folder


def build(folder: Path, **options: Any) -> Task:
    return build_task("graders.py:grade", {"problems": "problems.jsonl", **options}, folder)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return build(write(tmp_path, numbered(40), GRADERS))


@pytest.mark.parametrize(("answer", "reward", "correct"), GOOD)
def test_what_a_grader_may_return(task: Task, answer: str, reward: float, correct: bool) -> None:
    grade = task.grade(task.problems("train")[0], answer)
    assert_fields(grade, reward=reward, correct=correct, error=None)
    assert type(grade.reward) is float
    assert type(grade.correct) is bool


@pytest.mark.parametrize(("answer", "error"), FAILING)
def test_a_failing_grader_is_an_error_and_no_wrong_answer(
    task: Task, answer: str, error: str
) -> None:
    grade = task.grade(task.problems("train")[0], answer)
    assert_fields(grade, reward=None, correct=None)
    assert grade.error
    assert grade.error.startswith(error)
    assert "\n" not in grade.error


@pytest.mark.parametrize(
    ("reward", "error"),
    [
        (3.4e38, None),
        (-3.4e38, None),
        (1e39, "the grader returned 1e+39, beyond float32"),
        (-1e39, "the grader returned -1e+39, beyond float32"),
        (float("inf"), "the grader returned inf, beyond float32"),
        (float("nan"), "the grader returned nan, beyond float32"),
    ],
)
def test_a_reward_that_no_float32_holds_is_an_error_whoever_graded(
    reward: float, error: OptionalText
) -> None:
    class Own(Task):
        name = "own"
        grader = "own/1"
        stop = ()
        max_tokens = 4

        def problems(self, split: str) -> list[Problem]:
            return []

        def grade(self, problem: Problem, answer: str) -> Grade:
            return Grade(reward, True, "x")

    grade = grade_answer(Own(), Problem("p", "1+1=", "2"), "2", truncated=False)
    assert (grade.reward, grade.correct, grade.error) == (
        (reward, True, None) if error is None else (None, None, error)
    )


def test_a_grade_is_passed_on_and_the_grader_named_by_its_file(task: Task, tmp_path: Path) -> None:
    problem = task.problems("train")[0]
    assert task.grade(problem, "Grade(0.25, True, 'x', 'because')") == Grade(
        0.25, True, "x", "because"
    )
    assert task.grade(problem, "Grade(1, None, extracted=12)").extracted == "12"
    assert (
        task.grade(problem, "problem.reference == str(int(problem.prompt[:-3]) + 1)").correct
        is True
    )
    assert task.grader == "grade@" + hashlib.sha256(GRADERS.encode()).hexdigest()[:8]
    (tmp_path / "other").mkdir()
    assert (
        build(write(tmp_path / "other", numbered(10), GRADERS + "# changed\n")).grader
        != task.grader
    )


@given(st.floats(0.15, 0.85), st.integers(30, 60))
def test_the_share_is_disjoint_complete_and_stable(
    tmp_path_factory: Any, share: float, count: int
) -> None:
    folder = write(tmp_path_factory.mktemp("share"), numbered(count))
    task = build(folder, held_out=share)
    train = task.problems("train")
    held = task.problems("held-out")
    assert {one.prompt for one in train} | {one.prompt for one in held} == {
        f"{n}+1=" for n in range(count)
    }
    assert not {one.id for one in train} & {one.id for one in held}
    write(folder, numbered(count + 20))
    more = build(folder, held_out=share)
    assert more.problems("train")[: len(train)] == train
    assert more.problems("held-out")[: len(held)] == held


def test_a_second_file(tmp_path: Path) -> None:
    write(
        tmp_path,
        lines({"id": 1, "prompt": "a", "reference": "b"}, {"prompt": "c", "reference": 2.5}),
    )
    (tmp_path / "held.jsonl").write_text(
        "\ufeff\n" + lines({"id": "h", "prompt": "d\u2028e", "reference": ""}) + "\n\n"
    )
    task = build(tmp_path, held_out="held.jsonl")
    first, second = task.problems("train")
    assert first == Problem("1", "a", "b")
    assert second == Problem(hashlib.sha256(b"c").hexdigest()[:12], "c", "2.5")
    assert list(task.problems("held-out")) == [Problem("h", "d\u2028e", "")]


def test_stop_and_max_tokens(tmp_path: Path) -> None:
    write(tmp_path, numbered(40))
    plain = build(tmp_path)
    assert_fields(plain, stop=(), max_tokens=256)
    given_both = build(tmp_path, stop="\n", max_tokens=12)
    assert_fields(given_both, stop=("\n",), max_tokens=12)
    assert build(tmp_path, stop=["a", "b"]).stop == ("a", "b")
    write(tmp_path, numbered(40, demonstration="é" * 20))  # 40 bytes: 40 * 5 // 4 + 8
    assert build(tmp_path).max_tokens == 58


@pytest.mark.parametrize(
    ("text", "message"),
    cases(__file__, "bad_problem_files"),
)
def test_bad_problem_files(tmp_path: Path, text: str, message: str) -> None:
    with lab_error(message) as caught:
        build(write(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    cases(__file__, "bad_options"),
)
def test_bad_options(tmp_path: Path, options: JsonObject, message: str) -> None:
    write(tmp_path, numbered(40))
    (tmp_path / "leak.jsonl").write_text(lines({"id": "other", "prompt": "2+1=", "reference": 3}))
    with lab_error(message):
        build(tmp_path, **options)
    (tmp_path / "problems.jsonl").write_bytes(b"\xff\xfe\x00")
    with lab_error("cannot be read as UTF-8 text"):
        build(tmp_path)


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

import functools
import numpy as np

def trl_array(completions, ground_truth, **kwargs):
    return np.array([text == right for text, right in zip(completions, ground_truth)])

def trl_tuple(completions, ground_truth, **kwargs):
    return tuple(np.float32(text == right) for text, right in zip(completions, ground_truth))

def trl_tensor(completions, ground_truth, **kwargs):
    import torch
    return torch.tensor([float(text == right) for text, right in zip(completions, ground_truth)])

def weighted(completions, ground_truth, weight, **kwargs):
    return [weight * (text == right) for text, right in zip(completions, ground_truth)]

partial = functools.partial(weighted, weight=1.0)
partial_of_verl = functools.partial(lambda solution_str, ground_truth, bonus: np.bool_(solution_str == ground_truth) + bonus, bonus=0)

class Judge:
    """A callable object, as people write for a setting of their own."""
    __name__ = "judge"
    def __call__(self, prompts, completions, answer, **kwargs):
        return np.array([np.bool_(text == right) for text, right in zip(completions, answer)])

judge = Judge()

class Compared:
    def __call__(self, problem, answer):
        return np.bool_(answer == problem.reference)

compared = Compared()

async def asynchronous(completions, **kwargs):
    return [1.0]

def trl_of_a_scalar(completions, **kwargs):
    return np.array(1.0)

def verl(data_source, solution_str, ground_truth, extra_info=None):
    assert extra_info["question"] == "7+9="
    return float(solution_str == ground_truth) if data_source == "sums" else -1.0

def verl_of_a_dict(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    return {"score": 0.25, "acc": solution_str == ground_truth}

def verl_without_the_rest(solution_str, ground_truth):
    return 1.0 * (solution_str == ground_truth)

def grade(problem, answer):
    return 1.0
'''  # noqa: E501
SUM = Problem("a", "7+9=", "16")


@pytest.fixture
def make(tmp_path: Path) -> Any:
    (tmp_path / "rewards.py").write_text(REWARDS)
    write(tmp_path, numbered(40))

    def made(function: str, **options: Any) -> Task:
        return build_task(
            f"rewards.py:{function}", {"problems": "problems.jsonl", **options}, tmp_path
        )

    return made


@pytest.mark.parametrize(
    ("function", "options", "wrong", "right"),
    cases(__file__, "a_reward_function_of_another_library_grades"),
)
def test_a_reward_function_of_another_library_grades(
    make: Any, function: str, options: JsonObject, wrong: float, right: float
) -> None:
    if function == "trl_tensor":
        pytest.importorskip("torch")
    task = make(function, **options)
    assert task.grader.startswith(f"{function}@"), "the version is that of the user's own source"
    assert [task.grade(SUM, answer).reward for answer in ("7", "16")] == [wrong, right]
    assert task.grade(SUM, "16").correct is (right >= 1)


def test_a_dict_of_verl_says_what_is_correct(make: Any) -> None:
    grades = [make("verl_of_a_dict").grade(SUM, answer) for answer in ("7", "16")]
    assert [(grade.reward, grade.correct) for grade in grades] == [(0.25, False), (0.25, True)]


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("trl_of_nothing", "the grader returned None, not a number"),
        ("trl_of_two", "returned [1.0, 1.0] for one completion, not a list of one reward"),
        ("trl_of_a_scalar", "returned array(1.) for one completion, not a list of one reward"),
        ("trl_of_messages", "string indices must be integers"),
    ],
)
def test_what_it_returns_wrongly_is_an_error_of_that_grade(
    make: Any, function: str, error: str
) -> None:
    grade = make(function).grade(SUM, "16")
    assert grade.reward is None
    assert error in grade.error


def test_what_does_not_fit_is_one_line(make: Any) -> None:
    with lab_error(
        r"parameter 'difficulty' is not a column of a problem; it can be completions",
    ):
        make("trl_of_a_column_that_is_not_there")
    with lab_error("messages belongs to reward functions of TRL; leave it out"):
        make("grade", messages=True)
    with lab_error("data_source belongs to reward functions of verl; leave it out"):
        make("trl", data_source="sums")
    with lab_error("the function is async; make it a plain one"):
        make("asynchronous")


def test_a_partial_with_other_values_is_another_version(make: Any, tmp_path: Path) -> None:
    version = make("partial").grader
    path = tmp_path / "rewards.py"
    path.write_text(path.read_text().replace("weight=1.0", "weight=0.5"))
    assert make("partial").grader != version


def test_the_lab_s_own_signature_is_told_from_theirs() -> None:
    assert signature_of(lambda problem, answer: 1.0) == "gspo-lab"
    assert signature_of(lambda prompts, completions: [1.0]) == "TRL"
    assert signature_of(lambda solution_str, ground_truth: 1.0) == "verl"
    assert signature_of(lambda options: None) is None
    assert signature_of(dict) is None


HANGS = """\
import threading
import time


def sleeps(problem, answer):
    time.sleep(8 if answer == "hang" else 0)
    return 1.0


def computes(problem, answer):
    while answer == "hang":
        pass
    return 1.0


def thread(problem, answer):
    return threading.get_ident()
"""


@pytest.mark.parametrize("grader", ["sleeps", "computes"])
def test_a_grader_that_hangs_is_abandoned_in_every_thread(
    tmp_path: Path, grader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (write(tmp_path, numbered(40)) / "hangs.py").write_text(HANGS)
    task = build_task(f"hangs.py:{grader}", {"problems": "problems.jsonl"}, tmp_path)
    monkeypatch.setattr(task, "seconds", 0.2)
    [problem, *_] = task.problems("train")

    def graded(answer: str) -> Grade:
        return grade_answer(task, problem, answer, truncated=False)

    with ThreadPoolExecutor(1) as pool:
        for place in (graded, lambda answer: pool.submit(graded, answer).result(60)):
            assert place("hang").error == "it has not graded the answer after 0.2 s"
            assert place("goes on").reward == 1.0


def test_one_thread_makes_all_calls_of_a_grading_thread(tmp_path: Path) -> None:
    """A grader may keep what only one thread may use, such as a connection to SQLite."""
    (write(tmp_path, numbered(40)) / "hangs.py").write_text(HANGS)
    task = build_task("hangs.py:thread", {"problems": "problems.jsonl"}, tmp_path)
    problem = task.problems("train")[0]
    with ThreadPoolExecutor(1) as pool:
        rewards = list(
            pool.map(lambda _: grade_answer(task, problem, "", truncated=False).reward, range(3))
        )
    assert len(set(rewards)) == 1
