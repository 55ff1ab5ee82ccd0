"""Guess the number, by pencil."""

import pytest

from gspo_lab.tasks import Problem, Turn, build_task

PROBLEM = Problem("guess-0-7-5", "0-7:", "5")
GUESS = build_task("guess", {})


def said(*texts: str) -> list[Turn]:
    return [Turn(text) for text in texts]


@pytest.mark.parametrize(
    ("texts", "reply"),
    [
        (("3",), ">4-7:"),
        (("6",), "<0-5:"),
        (("3", "6"), "<4-5:"),
        (("3", "1"), ">4-7:"),  # a guess below what is left takes nothing away
        (("3", "9"), "<4-7:"),
        (("3", "six"), "?4-7:"),
        (("",), "?0-7:"),
        ((" 5",), "?0-7:"),
        (("3", "05"), None),
        (("5",), None),
    ],
)
def test_a_reply_compares_and_says_what_is_left(texts: tuple[str, ...], reply: str | None) -> None:
    assert GUESS.reply(PROBLEM, said(*texts)) == reply


@pytest.mark.parametrize(
    ("texts", "rewards", "correct"),
    [
        (("5",), (1.0,), True),
        (("3", "6", "5"), (0.0, 0.0, 1.0), True),
        (("3", "1", "5"), (0.0, -0.1, 1.0), True),  # 1 was known to be too small
        (("9", "x", "4"), (-0.1, -0.1, 0.0), False),
        (("",), (-0.1,), False),
    ],
)
def test_each_turn_has_its_reward(texts: tuple[str, ...], rewards: tuple[float, ...], correct: bool) -> None:
    grade = GUESS.grade_turns(PROBLEM, said(*texts))
    assert (grade.turn_rewards, grade.correct) == (rewards, correct)
    assert grade.reward == pytest.approx(sum(rewards))


def test_demonstrations_are_what_the_environment_says_and_the_middle_always_finds() -> None:
    task = build_task("guess", {"width": 15, "max_turns": 4})
    most = 0
    for problem in task.problems("held-out"):
        shown = problem.demonstrated_turns
        turns: list[Turn] = []
        for text, reply in zip(shown[::2], [*shown[1::2], None], strict=True):
            assert text.endswith("\n")
            turns.append(Turn(text[:-1]))
            assert task.reply(problem, turns) == reply
        assert task.grade_turns(problem, turns).reward == 1.0
        assert sum(map(len, shown)) <= task.max_tokens
        most = max(most, len(turns))
    assert most == 4  # 15 numbers = 2^4 - 1


def test_hasty_demonstrations_do_not_listen_and_held_out_ones_are_never_hasty() -> None:
    hasty, calm = build_task("guess", {"hasty": 1.0}), build_task("guess", {})
    assert list(hasty.problems("held-out")) == list(calm.problems("held-out"))
    grades = []
    for problem in hasty.problems("train")[:200]:
        turns = [Turn(text[:-1]) for text in problem.demonstrated_turns[::2]]
        grades.append(hasty.grade_turns(problem, turns))
    assert 0 < sum(grade.correct for grade in grades) < 100
    assert any(-0.1 in grade.turn_rewards for grade in grades)


def test_a_range_with_all_its_numbers_is_on_one_side() -> None:
    task = build_task("guess", {"digits": 1, "width": 9})
    train, held = ({problem.prompt for problem in task.problems(split)} for split in ("train", "held-out"))
    assert train
    assert held
    assert not train & held
    widths = [int(p[2]) - int(p[0]) + 1 for p in train | held]
    assert (min(widths), max(widths)) == (5, 9)
