"""Answers to AIME problems, graded by hand: what a careful person would say of each, and why the grader says so."""

import time

import pytest

from gspo_lab.tasks.base import Problem, grade_answer
from gspo_lab.tasks.benchmarks.aime import Aime24, read_integer

GOLD = Problem("aime24-x", "?", "25")

RIGHT = {
    "the plain case": r"So the answer is $\boxed{25}$.",
    "zero-padded, as the answer sheet wants it": r"\boxed{025}",
    "a framed box is a box": r"\fbox{25}",
    "space before the brace": r"\boxed {25}",
    "the last box counts, not the first": r"First \boxed{24}, but no: \boxed{25}",
    "boxes that stand close together are not joined": r"\boxed{24} \boxed{25}",
    "prose behind the box, with the word boxed": r"\boxed{25}. I have boxed the answer, not 24.",
    "prose behind the box, with the instruction": r"\boxed{25}, within \boxed{} as asked.",
    "a box in closed thinking, another behind it": r"<think>\boxed{24}</think> It is \boxed{25}.",
    "thinking opened by the prompt and closed here": r"maybe \boxed{24}</think>\boxed{25}",
    "a box within a box": r"\boxed{\boxed{25}}",
    "a font": r"\boxed{\mathbf{25}}",
    "text": r"\boxed{\text{25}}",
    "text in a box within a box": r"\boxed{\boxed{\text{25}}}",
    "underlined": r"\boxed{\underline{25}}",
    "a unit in roman with a thin space": r"\boxed{25\mathrm{\,cm}}",
    "the remainder of a division": r"\boxed{25 \bmod 1000}",
    "what was rounded": r"\boxed{\lfloor 25.7 \rfloor = 25}",
    "a product beside it": r"\boxed{5 \cdot 5 = 25}",
    "a product and a power beside it": r"\boxed{025 = 2(3 + 4) + 11 = 3^{2} + 4^2}",
    "dollars inside": r"\boxed{$25$}",
    "dollars and a font": r"\boxed{$\mathbf{25}$}",
    "braces inside": r"\boxed{{25}}",
    "a full stop inside": r"\boxed{25.}",
    "a comma behind": r"\boxed{25,}",
    "decimals that are zero": r"\boxed{25.0}",
    "a plus sign": r"\boxed{+25}",
    "blanks and line breaks": "\\boxed{\n  25\n}",
    "thin space before a unit": r"\boxed{25\,\text{cm}}",
    "a unit as text": r"\boxed{25\text{ units}}",
    "a squared unit": r"\boxed{25\text{ cm}^2}",
    "a unit in roman": r"\boxed{25\ \mathrm{cm}}",
    "a unit in prose": r"\boxed{25 square units}",
    "degrees": r"\boxed{25^\circ}",
    "degrees, braced": r"\boxed{25^{\circ}}",
    "degrees as a character": "\\boxed{25°}",
    "dollars as money": r"\boxed{\$25}",
    "the name of what was asked": r"\boxed{n = 25}",
    "a sum of names": r"\boxed{m+n=025}",
    "a sum that is worked out": r"\boxed{p+q = 12+13 = 25}",
    "how it came about, behind it": r"\boxed{25 = 5^2}",
    "a colour": r"\boxed{\color{red}{25}}",
    "a colour of text": r"\boxed{\textcolor{red}{25}}",
    "a full stop as text": r"\boxed{25\text{.}}",
    "an angle": r"\boxed{\angle ABC = 25^\circ}",
    "the residue of a division": r"\boxed{25 \pmod{1000}}",
    "full-width digits": "\\boxed{２５}",
    "bold digits of Unicode": "\\boxed{𝟐𝟓}",
    "a minus sign of Unicode in what it is the value of": "\\boxed{m − n = 25}",
    "grouped digits": r"\boxed{0{,}025}",
    "an escaped brace before the box is no brace": r"\{1, 2\} gives \boxed{25}",
    "an earlier box that never closes is not the last word": r"\boxed{24 is wrong. \boxed{25}",
}

WRONG = {
    "another number": (r"\boxed{24}", "differs: 24"),
    "no box at all": ("The answer is 25.", "no complete box"),
    "bold is no box": ("**25**", "no complete box"),
    "the words 'Answer:' are no box": ("Answer: 25", "no complete box"),
    "nothing": ("", "no complete box"),
    "only the instruction's empty box": (r"put it within \boxed{}", "no complete box"),
    "cut off inside the box": (r"\boxed{25", "the last box is not closed"),
    "cut off inside the last box, an earlier one whole": (r"\boxed{25} hence \boxed{2", "the last box is not closed"),
    "cut off behind the word": (r"\boxed{25} hence \boxed", "the last box is not closed"),
    "the right box comes first": (r"\boxed{25}, no, \boxed{24}", "differs: 24"),
    "thinking that never ends": (r"<think> I get \boxed{25}", "the thinking does not end"),
    "thinking begun anew and not ended": (r"<think>a</think>\boxed{25}<think>hm", "the thinking does not end"),
    "a box only within the thinking": (r"<think>\boxed{25}</think> It is 25.", "no complete box"),
    "a decimal comma is no grouping": (r"\boxed{2,5}", "not a whole number"),
    "nearly": (r"\boxed{24.9999999}", "not a whole number"),
    "a half": (r"\boxed{25.5}", "not a whole number"),
    "negative": (r"\boxed{-25}", "not a whole number"),
    "negative, by a minus sign of Unicode": ("\\boxed{−25}", "not a whole number"),
    "a power is not computed": (r"\boxed{5^2}", "not a whole number"),
    "a fraction is not computed": (r"\boxed{\frac{50}{2}}", "not a whole number"),
    "a sum is not computed": (r"\boxed{24+1}", "not a whole number"),
    "another base": (r"\boxed{25_{10}}", "not a whole number"),
    "a raised digit is no digit": ("\\boxed{2５²}", "not a whole number"),
    "digits of another script": ("\\boxed{٢٥}", "not a whole number"),
    "an underscore in a number": (r"\boxed{2_5}", "not a whole number"),
    "per cent": (r"\boxed{25\%}", "not a whole number"),
    "two answers": (r"\boxed{24, 25}", "not a whole number"),
    "two answers in words": (r"\boxed{25\text{ or }26}", "not a whole number"),
    "two equations": (r"\boxed{x=24, y=25}", "not a whole number"),
    "two numbers in one chain": (r"\boxed{x = 24 = 25}", "not a whole number"),
    "a sum that is not equal to it": (r"\boxed{25 = 24+2}", "not a whole number"),
    "a power that is not equal to it": (r"\boxed{5^3 = 25}", "not a whole number"),
    "a decimal that is not equal to it": (r"\boxed{25.7 = 25}", "not a whole number"),
    "a remainder that is still to be taken": (r"\boxed{25 \bmod 7}", "not a whole number"),
    "a chain without its number": (r"\boxed{x = 5^2 = y}", "not a whole number"),
    "a set": (r"\boxed{\{25\}}", "not a whole number"),
    "a list": (r"\boxed{[25]}", "not a whole number"),
    "imaginary": (r"\boxed{25i}", "not a whole number"),
    "a factorial": (r"\boxed{25!}", "not a whole number"),
    "a factor of a hundred": (r"\boxed{0.25}", "not a whole number"),
    "another factor of a hundred": (r"\boxed{2500}", "not a whole number"),
    "apart": (r"\boxed{2 5}", "not a whole number"),
    "a word": (r"\boxed{\text{twenty-five}}", "not a whole number"),
    "a wrong number in a font": (r"\boxed{\mathbf{52}}", "differs: 52"),
    "a part of the outer box": (r"\boxed{20 + \fbox{25}}", "not a whole number"),
    "a tower that nobody may compute": (r"\boxed{9^{9^{9^9}}}", "not a whole number"),
}


@pytest.mark.parametrize("case", RIGHT)
def test_right(case: str) -> None:
    grade = Aime24().grade(GOLD, RIGHT[case])
    assert (grade.correct, grade.reward, grade.error) == (True, 1.0, None), grade.reason
    assert grade.reason == "equal to the reference"


@pytest.mark.parametrize("case", WRONG)
def test_wrong(case: str) -> None:
    answer, reason = WRONG[case]
    grade = Aime24().grade(GOLD, answer)
    assert (grade.correct, grade.reward, grade.error) == (False, 0.0, None)
    assert grade.reason.startswith(reason)


def test_a_cut_answer_is_wrong_with_a_whole_box_in_it() -> None:
    task, answer = Aime24(), r"I get \boxed{25}, but let me check"
    assert grade_answer(task, GOLD, answer, truncated=False).correct is True
    assert grade_answer(task, GOLD, answer, truncated=True).correct is False


def test_the_grade_shows_what_was_graded() -> None:
    grade = Aime24().grade(GOLD, r"\boxed{ \text{about  24} }")
    assert grade.extracted == r"\text{about 24}"
    assert Aime24.grader == "aime-integer/4"


@pytest.mark.parametrize("number", [0, 1, 7, 10, 99, 100, 999])
def test_every_form_of_a_number_reads_as_it(number: int) -> None:
    forms = (
        f"{number}",
        f"{number:03d}",
        f"{number}.",
        f"{number}.00",
        f"x={number}",
        rf"\text{{{number}}}",
        f"${number}$",
    )
    assert [read_integer(form) for form in forms] == [number] * len(forms)


@pytest.mark.parametrize(
    "text", ["1000", "0999.5", "1e2", "", " ", ".", "+", "= 25", "--1", "25 26", "∞", "x=", "1" * 5000]
)
def test_what_is_no_number_up_to_999(text: str) -> None:
    assert read_integer(text) is None


def test_grading_is_quick_whatever_the_length() -> None:
    """No longer than Python counts to 10,000, about 0.1 ms; long ones, full of braces, and unterminated ones too."""
    long = "Let x be {a} and so on, $\\frac{1}{2}$. " * 1_000
    answers = [r"\boxed{025}", long + r"\boxed{25}", long + r"\boxed{m+n=\text{25 cm}}", r"\boxed{24}" * 5_000, long]
    task = Aime24()
    grading, counting = [], []
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
