r"""Guess the number: a range in, and a hint after each guess. The smallest task whose later turns
depend on replies.

    12-42:27\n         the model's guess
    >28-42:35\n        the environment: it is greater, and between 28 and 42; the model again
    <28-34:...

A reply begins with how the number compares and repeats what the model knows by now, so that every
turn asks the same.
"""

import random
import re
from collections.abc import Iterator, Sequence

from gspo_lab.tasks.base import Grade, Problem, Turn, integer_option, number_option
from gspo_lab.tasks.pools import SLACK_TOKENS, Generated, last_number, shuffled

WASTED = -0.1
"""What a turn earns that cannot be right: outside of what is left, or no number."""

WORDS_TOKENS = 64
"""Tokens for a turn in words, with the reply behind it and the template's marks."""


class Guess(Generated[tuple[int, int, int]]):
    """A whole number of a range of `width` numbers at most (and more than half as many), in
    `max_turns` guesses.

    The range lies below 10^`digits`. `hasty` is the share of training demonstrations that guess
    anywhere in the first range, whatever they were told; the others take the middle of what is
    left, which finds each of `width` numbers within log2(width + 1) guesses. A tenth of the ranges
    is held out, with all their numbers.
    """

    name = "guess"
    grader = "guess/1"

    def __init__(
        self,
        digits: int = 2,
        width: int = 31,
        max_turns: int = 5,
        train: int = 20_000,
        held_out: int = 1_000,
        hasty: float = 0.0,
        words: bool = False,
    ) -> None:
        self.digits = integer_option(self.name, "digits", digits, 1, 4)
        self.width = integer_option(self.name, "width", width, 2, 10**digits)
        self.max_turns = integer_option(self.name, "max_turns", max_turns, 2, 100)
        self.hasty = number_option(self.name, "hasty", hasty, 1, zero=True)
        self.max_tokens = (
            max_turns * (digits + 1) + (max_turns - 1) * (2 * digits + 3) + SLACK_TOKENS
        )
        super().__init__(train, held_out, words, max_turns * WORDS_TOKENS)

    def make(self, split: str, place: str, item: tuple[int, int, int]) -> Problem:
        """A range and one of its numbers, `"guess-12-42-35"`."""
        low, high, number = item
        name = f"guess-{low}-{high}-{number}"
        if self.words:
            question = (
                f"I think of a whole number from {low} to {high}. Guess it. Answer with the number"
                " only."
            )
            return Problem(name, question, str(number), demonstrated_turns=(str(number),))
        demonstrated = tuple(self._demonstration(low, high, number, hasty=split == "train"))
        return Problem(name, f"{low}-{high}:", str(number), demonstrated_turns=demonstrated)

    def reply(self, problem: Problem, turns: Sequence[Turn]) -> str | None:
        """How the number compares with the last guess, and what is left; None where it is found."""
        low, high = self._remaining_ranges(problem, turns)[-1]
        guess = self._guess(turns[-1].text)
        number = int(problem.reference)
        if guess == number:
            return None
        if guess is None:
            sign = "?"
            compared = "That is no number"
        elif number > guess:
            sign = ">"
            compared = "It is greater"
        else:
            sign = "<"
            compared = "It is less"
        if self.words:
            return (
                f"{compared}. It lies from {low} to {high}. Guess again. Answer with the number"
                " only."
            )
        return f"{sign}{low}-{high}:"

    def grade(self, problem: Problem, answer: str) -> Grade:
        """The grade of a response of one turn."""
        return self.grade_turns(problem, [Turn(answer)])

    def grade_turns(self, problem: Problem, turns: Sequence[Turn]) -> Grade:
        """Right is a number that was found, for which its turn earns 1; a turn that could not find
        it earns -0.1.
        """
        earned = []
        ranges = self._remaining_ranges(problem, turns)
        for turn, (low, high) in zip(turns, ranges, strict=False):
            guess = self._guess(turn.text)
            possible = guess is not None and low <= guess <= high
            earned.append(float(guess == int(problem.reference)) if possible else WASTED)
        right = earned[-1] == 1.0
        found = "found" if right else "not found"
        reason = f"{found} in {len(turns)} turns"
        return Grade(sum(earned), right, turns[-1].text or None, reason, turn_rewards=tuple(earned))

    def _remaining_ranges(self, problem: Problem, turns: Sequence[Turn]) -> list[tuple[int, int]]:
        """What the number may be, from the first to the last: before any turn, and after each."""
        ranges = [_range(problem.prompt)]
        number = int(problem.reference)
        for turn in turns:
            low, high = ranges[-1]
            guess = self._guess(turn.text)
            if guess is not None and guess < number:
                low = max(low, guess + 1)
            elif guess is not None and guess > number:
                high = min(high, guess - 1)
            ranges.append((low, high))
        return ranges

    def _guess(self, text: str) -> int | None:
        """The number that a turn is, and nothing else, or with `words` its last number; None where
        it has none.
        """
        number = last_number(text) if self.words else text
        return int(number) if number is not None and re.fullmatch("[0-9]{1,9}", number) else None

    def generate(self) -> Iterator[tuple[str, tuple[int, int, int]]]:
        """Every number of every range once; the key that decides the split is the range's."""
        numbers = 10**self.digits
        for index in shuffled(numbers * self.width * self.width, seed=self.digits):
            start, offset = divmod(index, self.width)
            low = start // self.width
            width = start % self.width + 1
            if offset < width and 2 * width > self.width and low + width <= numbers:
                yield f"{low}-{low + width - 1}", (low, low + width - 1, low + offset)

    def _demonstration(self, low: int, high: int, number: int, *, hasty: bool) -> Iterator[str]:
        """What is said and replied, by turns, until the number is found or no turn is left."""
        source = random.Random(f"{low}-{high}-{number}")
        anywhere = hasty and source.random() < self.hasty
        problem = Problem("", f"{low}-{high}:", str(number))
        turns = []
        remaining = (low, high)
        for turn in range(self.max_turns):
            guess = source.randint(low, high) if anywhere else sum(remaining) // 2
            yield f"{guess}\n"
            turns.append(Turn(str(guess)))
            reply = self.reply(problem, turns)
            if reply is None or turn + 1 == self.max_turns:
                return
            yield reply
            remaining = _range(reply[1:])


def _range(text: str) -> tuple[int, int]:
    low, high = re.findall("[0-9]+", text)[:2]
    return int(low), int(high)
