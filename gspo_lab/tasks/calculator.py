r"""A calculator: sums and products of several numbers, worked out by calling a tool for one step at a time.

    47*36+12=47*36\n     the model's call
    =1692\n1692+12\n     the tool's result; the model's next call
    =1704\n#1704\n       and its answer

Expressions are worked out from left to right, whatever the operators are. A turn with the marker `#` is the answer.
"""

import random
import re
from collections.abc import Iterator, Sequence

from gspo_lab.tasks.base import Grade, Problem, Turn, integer_option, number_option
from gspo_lab.tasks.pools import SLACK_TOKENS, Generated, number_grade, shuffled

MARKER = "#"
OPERATORS = "+*"
LONGEST = 12
"""Digits of a number that the calculator takes."""

WORDS_TOKENS = 64
"""Of a turn in words with the reply behind it and the marks of the chat template."""

QUESTION = (
    "Work out {}, from left to right, with a calculator that takes one step at a time. Write one step, such as 12*34, "
    "and nothing else: its result comes back. When you know the result, write # and the number, such as #408."
)


class Calculator(Generated[tuple[tuple[int, ...], str]]):
    """Expressions of `terms` numbers of at most `digits` digits: a call for each operator, an answer, a turn to spare.

    `hasty`: the share of training demonstrations that answer at once, with a made-up number of the right length.
    """

    name = "calculator"
    grader = "calculator/1"

    def __init__(
        self,
        digits: int = 2,
        terms: int = 2,
        train: int = 20_000,
        held_out: int = 1_000,
        hasty: float = 0.0,
        words: bool = False,
    ) -> None:
        self.digits = integer_option(self.name, "digits", digits, 1, 3)
        self.terms = integer_option(self.name, "terms", terms, 2, 4)
        self.hasty = number_option(self.name, "hasty", hasty, 1, zero=True)
        self.max_turns = terms + 1
        longest = demonstration([10**digits - 1] * terms, OPERATORS[-1] * (terms - 1))
        self.max_tokens = sum(map(len, longest)) + 2 * terms * digits + SLACK_TOKENS
        super().__init__(train, held_out, words, self.max_turns * WORDS_TOKENS)

    def make(self, split: str, place: str, item: tuple[tuple[int, ...], str]) -> Problem:
        """`"calc2x2-train-5"`, its demonstration in haste or not."""
        name, text, value = f"calc{self.digits}x{self.terms}-{place}", expression(*item), str(result(*item))
        calls = demonstration(*item)
        if self.words:
            parts = tuple(part.removesuffix("\n") for part in calls)
            return Problem(name, QUESTION.format(text), value, demonstrated_turns=parts)
        source = random.Random(f"{text}=")
        hurried = split == "train" and source.random() < self.hasty
        made_up = f"{MARKER}{source.randrange(10 ** len(value)):0{len(value)}}\n"
        return Problem(name, f"{text}=", value, demonstrated_turns=(made_up,) if hurried else calls)

    def reply(self, problem: Problem, turns: Sequence[Turn]) -> str | None:
        """The result of two numbers and an operator between them; `?` to anything else; None to an answer."""
        text = turns[-1].text
        if MARKER in text:
            return None
        text = re.sub(r"\s", "", text) if self.words else text
        call = re.fullmatch(rf"([0-9]{{1,{LONGEST}}})([+*])([0-9]{{1,{LONGEST}}})", text)
        reply = "?" if call is None else f"={result((int(call[1]), int(call[3])), call[2])}"
        return reply if self.words else f"{reply}\n"

    def grade(self, problem: Problem, answer: str) -> Grade:
        """Right is the right number behind the marker, and nothing else, in the last turn."""
        before, marker, extracted = (re.sub(r"\s", "", answer) if self.words else answer).partition(MARKER)
        if before or not marker:
            return Grade(0.0, False, None, "no answer marker found at the beginning of the last turn")
        return number_grade(extracted, problem.reference)

    def generate(self) -> Iterator[tuple[str, tuple[tuple[int, ...], str]]]:
        """Every expression once; it is its own key."""
        side, kinds = 10**self.digits, len(OPERATORS)
        for index in shuffled(side**self.terms * kinds ** (self.terms - 1), seed=self.digits):
            numbers, operators = [], ""
            for _ in range(self.terms):
                index, number = divmod(index, side)
                numbers.append(number)
            for _ in range(self.terms - 1):
                index, kind = divmod(index, kinds)
                operators += OPERATORS[kind]
            yield expression(numbers, operators), (tuple(numbers), operators)


def expression(numbers: Sequence[int], operators: str) -> str:
    """`expression([47, 36, 12], "*+") == "47*36+12"`."""
    return str(numbers[0]) + "".join(f"{sign}{number}" for sign, number in zip(operators, numbers[1:], strict=True))


def result(numbers: Sequence[int], operators: str) -> int:
    """From left to right: `result([1, 2, 3], "+*") == 9`."""
    value = numbers[0]
    for sign, number in zip(operators, numbers[1:], strict=True):
        value = value + number if sign == "+" else value * number
    return value


def demonstration(numbers: Sequence[int], operators: str) -> tuple[str, ...]:
    r"""Every call with its result, then the answer: `("47*36\n", "=1692\n", ..., "#1704\n")`."""
    turns, value = [], numbers[0]
    for sign, number in zip(operators, numbers[1:], strict=True):
        call, value = f"{value}{sign}{number}\n", result((value, number), sign)
        turns += [call, f"={value}\n"]
    return (*turns, f"{MARKER}{value}\n")
