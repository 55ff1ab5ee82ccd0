import random
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspo_lab.errors import LabError
from gspo_lab.tasks.base import Problem
from gspo_lab.tasks.countdown import Countdown
from gspo_lab.tasks.pools import SLACK_TOKENS

TASK = Countdown()
SOME = Countdown(use_all=False)
GOAL = Problem("countdown3-train-0", "7 3 12=33:", "7*3+12")

RIGHT = [
    *("#7*3+12", "7*3=21 21+12=33 #7*3+12", "# 7 * 3 + 12 ", "#12+3*7", "#((((7))*3)+((12)))", "#1 #7*3+12"),
    "#7*3+12\n= 33",
]
WRONG = [
    ("7*3+12", "no answer marker found"),
    ("#", "nothing behind the answer marker"),
    ("#7*3+12#", "nothing behind the answer marker"),
    ("#7+3+12", "differs: got 22, wanted 33"),
    ("#33", "uses 33, which is not given"),
    ("#7*3", "leaves out 12"),
    ("#7*3*7*3+12", "uses 7 too often"),
    ("#73+12", "uses 73, which is not given"),
    ("#12/7+3", "12/7 leaves a remainder"),
    ("#7/(3-12)", "7/-9 leaves a remainder"),
    ("#7*3+12=33", "'=' is no part of an expression of whole numbers and + - * / ( )"),
    ("#-7*3+12", "more than whole numbers and + - * / ( )"),
    ("#7**3+12", "more than whole numbers and + - * / ( )"),
    ("#7*3+", "not an expression"),
    ("#07*3+12", "not an expression"),
    ("#()", "more than whole numbers and + - * / ( )"),
    ("#7(3)+12", "more than whole numbers and + - * / ( )"),
    ("#7e0*3+12", "'e' is no part of an expression of whole numbers and + - * / ( )"),
]
ADVERSARIAL = [
    *("#" + "7*3+12" * 100_000, "#" + "(" * 100_000 + "7*3+12" + ")" * 100_000, "#" + "(" * 119, "#" * 100_000),
    *("#" + "-" * 110 + "7*3+12", "#" + "9" * 119, "#" + "9" * 1_000_000, "#9**9**9**9**9", "#" + "7**" * 30 + "7"),
    *("#__import__('os').system('echo owned')", "#().__class__.__bases__[0].__subclasses__()", "#lambda: 33"),
    *("#(a:=33)", "#7*3+12 or 33", "#33 # 7*3+12\x00", "#٧*٣+١٢", "#7×3+12", "#7*3+１２", "#7\u2028*3+12"),
    *("#7\\\n*3+12", "#'7*3+12'", "#7*3+12;33", "#7,3,12", "#True*7*3+12", "#0x7*3+12", "#7j*3+12", "#..."),
]


@pytest.mark.parametrize("answer", RIGHT)
def test_right(answer: str) -> None:
    grade = TASK.grade(GOAL, answer)
    assert (grade.reward, grade.correct, grade.reason, grade.error) == (1.0, True, "reaches 33", None)


@pytest.mark.parametrize(("answer", "reason"), WRONG)
def test_wrong(answer: str, reason: str) -> None:
    grade = TASK.grade(GOAL, answer)
    assert (grade.reward, grade.correct, grade.reason, grade.error) == (0.0, False, reason, None)


@pytest.mark.parametrize("answer", ADVERSARIAL, ids=lambda answer: answer[:24].encode("ascii", "replace").decode())
def test_adversarial(answer: str) -> None:
    start = time.process_time()
    grade = TASK.grade(GOAL, answer)
    assert time.process_time() - start < 1
    assert (grade.reward, grade.correct, grade.error) == (0.0, False, None)
    assert len(grade.reason) < 120


@pytest.mark.parametrize(
    ("task", "given", "reference", "answer", "reason"),
    [
        (TASK, "6 2 1=4:", "6/2+1", "#1+6/2", "reaches 4"),
        (TASK, "6 2 1=4:", "6/2+1", "#6/(1/2)", "1/2 leaves a remainder"),  # 12, but 1/2 is no whole number
        (TASK, "5 5 2=20:", "(5+5)*2", "#2/(5-5)", "divides by zero"),
        (TASK, "5 5 2=20:", "(5+5)*2", "#(5+5)*2", "reaches 20"),  # a number given twice may be used twice
        (TASK, "5 5 2=20:", "(5+5)*2", "#2*5+2*5", "uses 2 too often"),
        (TASK, "3 5 10=8:", "10-(5-3)", "#3-5+10", "reaches 8"),  # values below zero on the way are allowed
        (SOME, "10 5 5=10:", "10*5/5", "#5+5", "reaches 10"),
        (SOME, "10 5 5=10:", "10*5/5", "#5*5-5-10", "uses 5 too often"),
        (TASK, "10 5 5=10:", "10*5/5", "#10", "leaves out 5, 5"),
    ],
)
def test_reasons(task: Countdown, given: str, reference: str, answer: str, reason: str) -> None:
    grade = task.grade(Problem("p", given, reference), answer)
    assert (grade.correct, grade.reason) == (reason.startswith("reaches"), reason)


def test_a_reference_that_is_none_is_an_error_and_no_wrong_answer() -> None:
    grade = TASK.grade(Problem("p", "7 3 12=33:", "33 apples"), "#7*3+12")
    assert (grade.reward, grade.correct) == (None, None)
    assert grade.error.startswith("the reference '33 apples':")


def random_tree(source: random.Random, numbers: list[int]) -> tuple[str, Fraction | None]:
    """A fully parenthesised expression of all numbers, and its value where every division comes out even."""
    if len(numbers) == 1:
        return str(numbers[0]), Fraction(numbers[0])
    cut = source.randint(1, len(numbers) - 1)
    left_text, left = random_tree(source, numbers[:cut])
    right_text, right = random_tree(source, numbers[cut:])
    sign = source.choice("+-*/")
    text = f"({left_text}{sign}{right_text})"
    if left is None or right is None or (sign == "/" and (right == 0 or (left / right).denominator != 1)):
        return text, None
    return text, {"+": left + right, "-": left - right, "*": left * right}[sign] if sign != "/" else left / right


@given(st.integers(0, 2**32), st.integers(2, 6))
def test_values_agree_with_exact_fractions(seed: int, count: int) -> None:
    source = random.Random(seed)
    numbers = [source.randint(1, 12) for _ in range(count)]
    reference = "+".join(map(str, numbers))
    text, value = random_tree(source, numbers)
    grade = TASK.grade(Problem("p", "", reference), f"#{text}")
    assert grade.correct == (value == sum(numbers))
    if value is not None and value != sum(numbers):
        assert grade.reason == f"differs: got {value}, wanted {sum(numbers)}"
    # The same expression as reference of a problem of its own is right, if it has a value at all.
    own = TASK.grade(Problem("p", "", text), f"#{text}")
    assert own.correct is (True if value is not None else None)


@given(st.integers(2, 5), st.data())
def test_demonstrations_are_right_and_a_changed_digit_is_wrong(numbers: int, data: st.DataObject) -> None:
    task = Countdown(numbers=numbers, train=20, held_out=5)
    problem = data.draw(st.sampled_from([*task.problems("train"), *task.problems("held-out")]))
    assert problem.demonstration.endswith("\n")
    assert len(problem.demonstration) + SLACK_TOKENS <= task.max_tokens
    text = problem.demonstration.removesuffix("\n")
    assert task.grade(problem, text).reward == 1.0
    assert task.grade(problem, f"#{problem.reference}").reward == 1.0
    spots = [index for index in range(text.index("#"), len(text)) if text[index].isdigit()]
    spot = data.draw(st.sampled_from(spots))
    other = data.draw(st.sampled_from([digit for digit in "0123456789" if digit != text[spot]]))
    assert task.grade(problem, text[:spot] + other + text[spot + 1 :]).reward == 0.0


@given(st.text("0123456789+-*/() #", max_size=30) | st.text(max_size=40))
def test_any_text_gets_a_grade(answer: str) -> None:
    grade = TASK.grade(GOAL, f"#{answer}")
    assert grade.error is None
    assert grade.correct is (grade.reward == 1.0)


@pytest.mark.parametrize(
    "task",
    [
        Countdown(train=2000, held_out=200),
        Countdown(numbers=2),
        Countdown(numbers=4, max_number=9, max_target=24, operators="+-", train=500, held_out=50),
        Countdown(numbers=6, max_number=100, max_target=1000, train=100, held_out=10),
    ],
)
def test_problems_are_disjoint_true_and_in_bounds(task: Countdown) -> None:
    seen = set()
    for split in ("train", "held-out"):
        label = "train" if split == "train" else "held"
        for index, problem in enumerate(task.problems(split)):
            assert problem.id == f"countdown{task.numbers}-{label}-{index}"
            left, _, right = problem.prompt.removesuffix(":").partition("=")
            numbers, target = [int(text) for text in left.split(" ")], int(right)
            assert len(numbers) == task.numbers
            assert all(1 <= number <= task.max_number for number in numbers)
            assert 1 <= target <= task.max_target
            assert set(problem.reference) <= set("0123456789()") | set(task.operators)
            key = (tuple(sorted(numbers)), target)
            assert key not in seen
            seen.add(key)
            assert len(problem.demonstration) + SLACK_TOKENS <= task.max_tokens
            for step in problem.demonstration.partition(" #")[0].split(" "):
                # What Python itself makes of "7*3=21"; these texts are our own.
                text, _, value = step.partition("=")
                assert eval(text) == int(value) > 0
            assert eval(problem.reference) == target
            assert task.grade(problem, problem.demonstration).correct
    assert len(seen) > 100


def test_steps_by_hand() -> None:
    first = TASK.problems("train")[0]
    assert first.prompt == "14 15 2=43:"
    assert first.demonstration == "2*14=28 15+28=43 #15+2*14\n"  # 28; 15 + 28 = 43
    assert first.reference == "15+2*14"


def test_pool_sizes_prefixes_and_parentheses() -> None:
    shown = [problem.reference for problem in TASK.problems("train")]
    assert all(any(sign in text for text in shown) for sign in (")*", "-("))
    assert (len(shown), len(TASK.problems("held-out"))) == (10_000, 500)
    few = Countdown(numbers=2)
    assert (len(few.problems("train")), len(few.problems("held-out"))) == (520, 42)
    short = Countdown(train=40, held_out=10)
    assert short.problems("train")[:] == TASK.problems("train")[:40]
    assert short.problems("held-out")[:] == TASK.problems("held-out")[:10]


def test_no_problems_at_all() -> None:
    with pytest.raises(LabError, match="no held-out problems with these options"):
        Countdown(numbers=2, max_number=1).problems("held-out")
