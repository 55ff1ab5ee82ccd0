"""The calculator, by pencil."""

import pytest

from gspo_lab.tasks import Problem, Turn, build_task
from gspo_lab.tasks.calculator import demonstration, expression, result

PROBLEM = Problem("calc", "1+2*3=", "9")
TASK = build_task("calculator", {"digits": 1, "terms": 3})


def test_from_left_to_right() -> None:
    assert expression((47, 36, 12), "*+") == "47*36+12"
    assert result((1, 2, 3), "+*") == 9
    assert demonstration((1, 2, 3), "+*") == ("1+2\n", "=3\n", "3*3\n", "=9\n", "#9\n")


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("47*36", "=1692\n"),
        ("0+0", "=0\n"),
        ("1+2*3", "?\n"),
        ("-1+2", "?\n"),
        ("2**9", "?\n"),
        ("", "?\n"),
        ("9" * 13 + "+1", "?\n"),
        ("#9", None),
        ("so: #", None),
    ],
)
def test_the_tool_takes_two_numbers_and_an_answer_ends_the_response(text: str, reply: str | None) -> None:
    assert TASK.reply(PROBLEM, [Turn("", "?\n"), Turn(text)]) == reply


@pytest.mark.parametrize(
    ("last", "reward"), [("#9", 1.0), ("#09", 1.0), ("#8", 0.0), ("#", 0.0), ("9", 0.0), ("x#9", 0.0), ("# 9", 0.0)]
)
def test_the_last_turn_is_graded(last: str, reward: float) -> None:
    grade = TASK.grade_turns(PROBLEM, [Turn("1+2", "=3\n"), Turn(last)])
    assert (grade.reward, grade.correct, grade.turn_rewards) == (reward, reward == 1.0, None)


def test_demonstrations_are_right_and_fit() -> None:
    assert TASK.max_turns == 4
    for problem in list(TASK.problems("train")[:300]) + list(TASK.problems("held-out")):
        shown = problem.demonstrated_turns
        turns: list[Turn] = []
        for text, reply in zip(shown[::2], [*shown[1::2], None], strict=True):
            turns.append(Turn(text.removesuffix("\n")))
            assert TASK.reply(problem, turns) == reply
        assert TASK.grade_turns(problem, turns).correct
        assert sum(map(len, shown)) <= TASK.max_tokens


def test_hasty_demonstrations_answer_at_once_with_a_number_of_the_right_length() -> None:
    task = build_task("calculator", {"hasty": 1.0})
    for problem in task.problems("train")[:50]:
        (only,) = problem.demonstrated_turns
        assert len(only) == len(f"#{problem.reference}\n")
    assert all(len(problem.demonstrated_turns) == 3 for problem in task.problems("held-out")[:50])
    assert not {p.prompt for p in task.problems("train")} & {p.prompt for p in task.problems("held-out")}
