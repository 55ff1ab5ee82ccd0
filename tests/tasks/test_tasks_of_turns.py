"""Tasks of several turns: what their grades must hold.

Also a user's own task with a function that replies.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from assertions import assert_fields
from calling import lab_error
from case_tables import cases

from gspo_lab.common.plain_data import JsonObject, OptionalText
from gspo_lab.tasks import Grade, Problem, ReplyError, Task, Turn, build_task, grade_answer
from gspo_lab.tasks.grader_dry_run import first_failure

MINE = """
import time

def grade(problem, answer):
    return float(answer == problem.reference)

def grade_all(problem, answer, turns=()):
    return 0.1 * len(turns) + (answer == problem.reference)

def reply(problem, turns):
    said = turns[-1].text
    if said == "hang":
        while True:
            time.sleep(0.01)
    return {"raise": 1 / (said != "raise"), "number": 7, "half": "\\ud800", "end": None}.get(said, f"heard {said}")
"""  # noqa: E501
PROBLEM = Problem("a", "?", "yes")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    line = {"prompt": "?", "reference": "yes", "demonstration": ["x", "heard x", "yes"]}
    (tmp_path / "p.jsonl").write_text(
        "".join(json.dumps({"id": str(n), **line, "prompt": f"{n}?"}) + "\n" for n in range(9))
    )
    return tmp_path


def own(folder: Path, grader: str = "grade", **options: Any) -> Any:
    given = {"problems": "p.jsonl", "reply": "reply", "seconds": 1, **options}
    return build_task(f"mine.py:{grader}", given, folder)


def test_a_function_of_the_graders_file_replies(folder: Path) -> None:
    task = own(folder)
    assert task.max_turns == 8
    assert task.reply(PROBLEM, [Turn("hello")]) == "heard hello"
    assert task.reply(PROBLEM, [Turn("end")]) is None
    assert task.grade_turns(PROBLEM, [Turn("no"), Turn("yes")]).reward == 1.0
    assert own(folder, "grade_all").grade_turns(
        PROBLEM, [Turn("no"), Turn("yes")]
    ).reward == pytest.approx(1.2)
    assert task.problems("train")[0].demonstrated_turns == ("x", "heard x", "yes")
    assert own(folder, max_turns=3).max_turns == 3


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("raise", "ZeroDivisionError.*mine.py:15"),
        ("hang", "no reply after 1 s"),
        ("number", "the reply is 7, neither text nor None"),
        ("half", "not Unicode text"),
    ],
)
def test_a_reply_that_fails_is_an_error_of_that_one_response(
    folder: Path, said: str, told: str
) -> None:
    with pytest.raises(ReplyError, match=told):
        own(folder).reply(PROBLEM, [Turn(said)])


def test_a_response_whose_environment_failed_is_not_graded(folder: Path) -> None:
    grade = grade_answer(
        own(folder), PROBLEM, "yes", truncated=False, turns=[Turn("yes", error="it broke")]
    )
    assert grade == Grade(None, None, error="it broke")


@pytest.mark.parametrize(
    ("reward", "rewards", "told"),
    [
        (1.0, (0.5, 0.5), None),
        (0.3, (0.1, 0.2), None),
        (3e-9, (1e-9, 2e-9), None),
        (4e-9, (1e-9, 2e-9), "add up to 3e-09, and the reward 4e-09"),
        (0.1, (0.3, -0.2), None),  # 0.1 but for the last bit of 0.3
        (3e9, (1e9, 2e9 + 1e4), "add up to 3.00001e+09, and the reward 3e+09"),
        (1.0, (0.5,), "1 rewards for 2 turns"),
        (1.0, (0.5, 0.25), "add up to 0.75, and the reward 1"),
        (1.0, (0.5, float("nan")), "add up to nan"),
        (1.0, (float("-inf"), float("inf")), "add up to nan"),
    ],
)
def test_the_reward_is_the_sum_of_its_turns(
    reward: float, rewards: tuple[float, ...], told: OptionalText
) -> None:
    task = build_task("guess", {})
    task.grade_turns = lambda problem, turns: Grade(reward, True, turn_rewards=rewards)  # type: ignore[method-assign]
    grade = grade_answer(task, PROBLEM, "", truncated=False, turns=[Turn(""), Turn("")])
    if told is None:
        assert_fields(grade, reward=reward, error=None)
    else:
        assert_fields(grade, reward=None, correct=None, turn_rewards=None)
        assert told in str(grade.error)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"reply": "nothing"}, "nothing"),
        ({"reply": "time"}, "reply = 'time' is module, not a function"),
        ({"reply": 3}, "must name a function of the grader's file"),
        ({"reply": None, "max_turns": 3}, "max_turns needs a function that replies"),
        ({"max_turns": 1}, "max_turns = 1 must be a whole number from 2"),
    ],
)
def test_senseless_options_are_refused(folder: Path, options: JsonObject, told: str) -> None:
    with lab_error(told):
        own(folder, **options)


def test_a_class_with_turns_needs_a_reply(tmp_path: Path) -> None:
    body = (
        "name='t'; grader='t/1'; stop=(); max_tokens=4; max_turns=2\n    def problems(self, split):"
        " return []\n"
    )
    (tmp_path / "t.py").write_text(
        f"class T:\n    {body}    def grade(self, problem, answer): pass\n"
    )
    with lab_error("has 2 turns and no 'reply'"):
        build_task("t.py:T", {}, tmp_path)


def test_a_reply_is_tried_before_a_study_trains(folder: Path) -> None:
    options = {"problems": "p.jsonl", "reply": "reply"}
    assert first_failure("mine.py:grade", options, folder) is None
    (folder / "mine.py").write_text(MINE.replace("said = ", "said = problem.nothing or "))
    failure = first_failure("mine.py:grade", options, folder)
    assert "an empty answer: no reply: AttributeError" in failure


def turns_of(task: Task, problem: Problem) -> list[Turn]:
    """The turns of a demonstration, of which each reply is the environment's own."""
    shown = problem.demonstrated_turns
    turns = []
    for text, reply in zip(shown[::2], [*shown[1::2], None], strict=True):
        assert text.endswith("\n")
        turns.append(Turn(text[:-1]))
        assert task.reply(problem, turns) == reply
    return turns


NUMBER = Problem("guess-0-7-5", "0-7:", "5")
GUESS = build_task("guess", {})


def said(*texts: str) -> list[Turn]:
    return [Turn(text) for text in texts]


@pytest.mark.parametrize(
    ("texts", "reply"),
    cases(__file__, "replies"),
)
def test_a_reply_compares_and_says_what_is_left(texts: list[str], reply: str) -> None:
    assert GUESS.reply(NUMBER, said(*texts)) == (reply or None)


@pytest.mark.parametrize(
    ("texts", "rewards", "correct"),
    cases(__file__, "each_turn_has_its_reward"),
)
def test_each_turn_has_its_reward(texts: list[str], rewards: list[float], correct: bool) -> None:
    grade = GUESS.grade_turns(NUMBER, said(*texts))
    assert (list(grade.turn_rewards), grade.correct) == (rewards, correct)
    assert grade.reward == pytest.approx(sum(rewards))


def test_demonstrations_are_what_the_environment_says_and_the_middle_always_finds() -> None:
    task = build_task("guess", {"width": 15, "max_turns": 4})
    most = 0
    for problem in task.problems("held-out"):
        turns = turns_of(task, problem)
        shown = problem.demonstrated_turns
        assert task.grade_turns(problem, turns).reward == 1.0
        assert sum(map(len, shown)) <= task.max_tokens
        most = max(most, len(turns))
    assert most == 4  # 15 numbers = 2^4 - 1


def test_hasty_demonstrations_do_not_listen_and_held_out_ones_are_never_hasty() -> None:
    hasty = build_task("guess", {"hasty": 1.0})
    calm = build_task("guess", {})
    assert list(hasty.problems("held-out")) == list(calm.problems("held-out"))
    grades = []
    for problem in hasty.problems("train")[:200]:
        turns = [Turn(text[:-1]) for text in problem.demonstrated_turns[::2]]
        grades.append(hasty.grade_turns(problem, turns))
    assert 0 < sum(grade.correct for grade in grades) < 100
    assert any(-0.1 in grade.turn_rewards for grade in grades)


def test_a_range_with_all_its_numbers_is_on_one_side() -> None:
    task = build_task("guess", {"digits": 1, "width": 9})
    train = {problem.prompt for problem in task.problems("train")}
    held = {problem.prompt for problem in task.problems("held-out")}
    assert train
    assert held
    assert not train & held
    widths = [int(p[2]) - int(p[0]) + 1 for p in train | held]
    assert (min(widths), max(widths)) == (5, 9)
