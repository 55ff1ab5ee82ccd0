"""Chains of sums: long answers of which every item stands alone."""

import pytest
from assertions import assert_fields
from case_tables import cases

from gspo_lab.tasks.base import Problem
from gspo_lab.tasks.chain import Chain

FIVE = Chain(length=25)
"""25 characters hold five items `4:92 `, the counter with one digit."""
GIVEN = Problem("chain2-train-0", "37 55:", "25")


@pytest.mark.parametrize(
    ("answer", "right", "items"),
    cases(__file__, "every_item_is_held_against_the_two_before_it"),
)
def test_every_item_is_held_against_the_two_before_it(answer: str, right: int, items: int) -> None:
    grade = FIVE.grade(GIVEN, answer)
    assert grade.reward == pytest.approx(right / items)
    assert grade.correct is (right == items)
    assert grade.reason == f"{right} of {items} items are right"


@pytest.mark.parametrize("answer", ["", "\n", "4", "4:9", " "])
def test_an_answer_without_an_item_is_wrong(answer: str) -> None:
    assert_fields(FIVE.grade(GIVEN, answer), reward=0.0, correct=False)


@pytest.mark.parametrize(
    ("length", "width", "count"),
    cases(__file__, "lengths"),
)
def test_the_whole_answer_fills_its_length_with_the_narrowest_counter_that_counts_it(
    length: int, width: int, count: int
) -> None:
    task = Chain(length=length)
    assert_fields(task, width=width, count=count, max_tokens=length)
    shown = task.problems("train")[0].demonstration
    assert len(shown) == count * (width + 4) <= length
    assert shown.startswith(f"{count - 1:0{width}d}:")
    assert task.grade(task.problems("train")[0], shown).reward == 1.0


def test_a_cut_answer_is_the_beginning_of_a_longer_one_and_graded_alike() -> None:
    task = Chain(length=1024)
    for problem in (task.problems("train")[5], task.problems("held-out")[5]):
        whole = problem.demonstration
        assert [task.grade(problem, whole[:limit]).reward for limit in (16, 64, 256)] == [
            1.0,
            1.0,
            1.0,
        ]


def test_no_pair_in_either_order_is_on_both_sides() -> None:
    task = Chain(digits=1)
    train = {problem.prompt for problem in task.problems("train")}
    held = {problem.prompt for problem in task.problems("held-out")}
    assert len(train) + len(held) == 100
    assert 0 < len(held) < 30
    assert not {f"{prompt[2]} {prompt[0]}:" for prompt in held} & train
