"""The built-in tasks in words, as a chat model is asked: questions and grades by hand."""

import json

import pytest
from assertions import assert_fields
from calling import lab_error
from case_tables import cases

from gspo_lab.tasks import TASKS, Problem, Turn, build_task, task_key
from gspo_lab.tasks.pools import last_number


@pytest.mark.parametrize(
    ("text", "number"),
    cases(__file__, "last_numbers"),
)
def test_the_last_number_of_a_text(text: str, number: str) -> None:
    assert last_number(text) == (number or None)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_every_task_asks_in_words(name: str) -> None:
    task = build_task(name, {"words": True})
    assert_fields(task, chat=True, prompt_version="words/1", stop=())
    for problem in (*task.problems("train")[:20], *task.problems("held-out")[:20]):
        assert problem.prompt[0].isupper()
        assert " " in problem.prompt
        shown = problem.demonstration
        if task.max_turns == 1:
            assert shown is not None
            assert task.grade(problem, shown).correct
    with lab_error(rf"task '{name}': words = 'yes' must be true or false"):
        build_task(name, {"words": "yes"})


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_same_problems_are_asked_either_way(name: str) -> None:
    bare = build_task(name, {"words": False})
    words = build_task(name, {"words": True})
    for split in ("train", "held-out"):
        assert [one.id for one in bare.problems(split)[:50]] == [
            one.id for one in words.problems(split)[:50]
        ]


def test_a_task_s_key_holds_every_option() -> None:
    assert json.loads(task_key("addition", {}))["options"]["words"] is False
    assert json.loads(task_key("addition", {"words": True}))["options"]["words"] is True


@pytest.mark.parametrize(
    ("answer", "reward"),
    cases(__file__, "last_number_rewards"),
)
def test_sums_are_graded_by_their_last_number(answer: str, reward: float) -> None:
    grade = build_task("addition", {"words": True}).grade(
        Problem("", "What is 7 plus 9?", "16"), answer
    )
    assert_fields(grade, reward=reward, correct=reward == 1)


def test_chains_are_graded_number_by_number() -> None:
    """The errors of a chain: 37 + 55 = 92, 55 + 92 = 147 -> 47, 92 + 47 = 139 -> 39.

    An error costs its own number alone.
    """
    task = build_task("chain", {"words": True, "length": 25})
    prompt = "A sequence begins with 37, 55. Each next number ..."
    problem = Problem("", prompt, "25")
    assert task.grade(problem, "92, 47, 39, 86, 25").correct
    assert task.grade(problem, "92, 48, 40, 88").reward == pytest.approx(3 / 4)
    assert task.grade(problem, "92, 47, 39, 86, 25, 11").reward == pytest.approx(5 / 6), (
        "five were asked for"
    )
    assert task.grade(problem, "none").reward == 0.0


def test_a_guess_in_words_has_replies_in_words() -> None:
    task = build_task("guess", {"words": True})
    problem = Problem("", "I think of a whole number from 12 to 42. Guess it.", "31")
    turns = [Turn("Is it 27?")]
    assert task.reply(problem, turns).startswith(
        "It is greater. It lies from 28 to 42. Guess again. Answer with"
    )
    turns = [Turn("Is it 27?"), Turn("hm"), Turn("31")]
    assert task.reply(problem, turns[:2]).startswith(
        "That is no number. It lies from 28 to 42. Guess again."
    )
    assert task.reply(problem, turns) is None
    grade = task.grade_turns(problem, turns)
    assert_fields(
        grade,
        reward=pytest.approx(0.9),
        correct=True,
        extracted="31",
        turn_rewards=(0.0, -0.1, 1.0),
    )
