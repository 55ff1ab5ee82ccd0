"""Answers to AIME problems, graded by hand.

Each case states a careful person's grade and why the grader agrees.
"""

import time

import pytest
from assertions import assert_fields

from gspo_lab.tasks.base import Problem, grade_answer
from gspo_lab.tasks.benchmarks.aime import Aime24

GOLD = Problem("aime24-x", "?", "25")

# what is around the number in a box: zeros, fonts, boxes, dollars, braces, signs, blanks,
BOXES = r"""
25
025
25.
25,
25.0
+25
{25}
$25$
$\mathbf{25}$
0{,}025
２５
𝟐𝟓
\boxed{25}
\mathbf{25}
\text{25}
\boxed{\text{25}}
\underline{25}
25\text{.}
\$25
\color{red}{25}
\textcolor{red}{25}
25\mathrm{\,cm}
25\,\text{cm}
25\text{ units}
25\text{ cm}^2
25\ \mathrm{cm}
25 square units
25^\circ
25^{\circ}
25°
\angle ABC = 25^\circ
25 \bmod 1000
25 \pmod{1000}
n = 25
m+n=025
m − n = 25
\lfloor 25.7 \rfloor = 25
p+q = 12+13 = 25
5 \cdot 5 = 25
025 = 2(3 + 4) + 11 = 3^{2} + 4^2
25 = 5^2
""".strip().splitlines()
BOXES += ["\n  25\n"]
RIGHT = [
    *(rf"\boxed{{{content}}}" for content in BOXES),
    r"So the answer is $\boxed{25}$.",
    r"\fbox{25}",
    r"\boxed {25}",
    r"First \boxed{24}, but no: \boxed{25}",
    r"\boxed{24} \boxed{25}",
    r"\boxed{25}. I have boxed the answer, not 24.",
    r"\{1, 2\} gives \boxed{25}",
    r"\boxed{25}, within \boxed{} as asked.",
    r"\boxed{24 is wrong. \boxed{25}",
    r"<think>\boxed{24}</think> It is \boxed{25}.",
    r"maybe \boxed{24}</think>\boxed{25}",
]
# contents of boxes that state none: nothing is computed, and two numbers are no answer
NO_NUMBERS = r"""
2,5
24.9999999
25.5
-25
−25
2５²
٢٥
2_5
25\%
25i
25!
0.25
2500
2 5
5^2
\frac{50}{2}
24+1
25_{10}
9^{9^{9^9}}
\text{twenty-five}
\{25\}
[25]
24, 25
25\text{ or }26
x=24, y=25
x = 24 = 25
20 + \fbox{25}
25 = 24+2
5^3 = 25
25.7 = 25
25 \bmod 7
x = 5^2 = y
""".strip().splitlines()
WRONG = [
    *((rf"\boxed{{{content}}}", "not a whole number") for content in NO_NUMBERS),
    (r"\boxed{24}", "differs: 24"),
    (r"\boxed{25}, no, \boxed{24}", "differs: 24"),
    (r"\boxed{\mathbf{52}}", "differs: 52"),
    *(
        (answer, "no complete box")
        for answer in ("The answer is 25.", "**25**", "Answer: 25", "", r"put it in \boxed{}")
    ),
    (r"<think>\boxed{25}</think> It is 25.", "no complete box"),
    (r"\boxed{25", "the last box is not closed"),
    (r"\boxed{25} hence \boxed{2", "the last box is not closed"),
    (r"\boxed{25} hence \boxed", "the last box is not closed"),
    (r"<think> I get \boxed{25}", "the thinking does not end"),
    (r"<think>a</think>\boxed{25}<think>hm", "the thinking does not end"),
]


@pytest.mark.parametrize("answer", RIGHT)
def test_right(answer: str) -> None:
    grade = Aime24().grade(GOLD, answer)
    assert (grade.correct, grade.reward, grade.error) == (True, 1.0, None), grade.reason
    assert grade.reason == "equal to the reference"


@pytest.mark.parametrize(("answer", "reason"), WRONG)
def test_wrong(answer: str, reason: str) -> None:
    grade = Aime24().grade(GOLD, answer)
    assert_fields(grade, correct=False, reward=0.0, error=None)
    assert grade.reason.startswith(reason)


def test_a_cut_answer_is_wrong_with_a_whole_box_in_it() -> None:
    task = Aime24()
    answer = r"I get \boxed{25}, but let me check"
    assert grade_answer(task, GOLD, answer, truncated=False).correct is True
    assert grade_answer(task, GOLD, answer, truncated=True).correct is False


def test_the_grade_shows_what_was_graded() -> None:
    grade = Aime24().grade(GOLD, r"\boxed{ \text{about  24} }")
    assert grade.extracted == r"\text{about 24}"
    assert Aime24.grader == "aime-integer/7"


def test_grading_is_quick_whatever_the_length() -> None:
    """The grader takes no longer than Python needs to count to 10,000, about 0.1 ms.

    Long answers, full of braces, and unterminated ones do not either.
    """
    long = "Let x be {a} and so on, $\\frac{1}{2}$. " * 1_000
    answers = [
        r"\boxed{025}",
        long + r"\boxed{25}",
        long + r"\boxed{m+n=\text{25 cm}}",
        r"\boxed{24}" * 5_000,
        long,
    ]
    task = Aime24()
    grading = []
    counting = []
    for _ in range(10):
        start = time.process_time()
        for answer in answers * 20:
            task.grade(GOLD, answer)
        between = time.process_time()
        for _ in range(20 * len(answers) * 10_000):
            pass
        grading.append(between - start)
        counting.append(time.process_time() - between)
    assert min(grading) < min(counting)


HOSTILE = {
    "openings": "\\boxed{" * 20_000,
    "braces": "\\boxed{" + "{" * 200_000,
    "words": "\\boxed x" * 20_000,
    "blanks": ("\\boxed" + " " * 500 + "x") * 200,
    "empty boxes": "\\boxed{}" * 20_000,
    "nested boxes": "\\boxed{" * 5_000 + "25" + "}" * 5_000,
    "thinking": "</think><think>" * 20_000,
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_hostile_answers_end_soon(answer: str) -> None:
    start = time.process_time()
    assert Aime24().grade(GOLD, answer).correct is False
    assert time.process_time() - start < 1.0
