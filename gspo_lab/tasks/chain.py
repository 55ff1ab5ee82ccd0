r"""Chains of sums: a task whose answers are as long as one likes, and no harder for it.

    37 55:     145:92 144:47 143:39 142:86 ... 000:51\n     (length = 1024)

Each number is the sum of the two before it, modulo 10^digits, behind a counter that runs down to 0.
Cut at any limit (`rollout.max_tokens`) an answer is a shorter one of the same task, so that arms
may differ in the length alone.
"""

import re
from collections.abc import Iterator
from itertools import islice

from gspo_lab.tasks.base import Grade, Problem, integer_option
from gspo_lab.tasks.pools import Generated, shuffled

WORDS_TOKENS = 4
"""Tokens of a number and what separates it from the next, in the answer of a chat model."""


class Chain(Generated[tuple[int, int]]):
    """Chains of numbers of `digits` digits from two given ones, in at most `length` characters
    (tokens when embedded).

    At most `train` and `held_out` pairs to start from, fewer where there are no more.
    """

    name = "chain"
    grader = "chain/1"

    def __init__(
        self,
        length: int = 256,
        digits: int = 2,
        train: int = 20_000,
        held_out: int = 1_000,
        words: bool = False,
    ) -> None:
        self.digits = integer_option(self.name, "digits", digits, 1, 3)
        self.max_tokens = integer_option(self.name, "length", length, 16, 3072)
        self.modulus = 10**digits
        self.width = next(width for width in (1, 2, 3) if self._fitting(width) <= 10**width)
        self.count = self._fitting(self.width)
        """Numbers of a whole answer; the counter has `width` digits."""
        super().__init__(train, held_out, words, self.count * WORDS_TOKENS + WORDS_TOKENS)

    def _fitting(self, width: int) -> int:
        """How many items `145:92 ` the length holds whose counter has so many digits."""
        return self.max_tokens // (width + self.digits + 2)

    def make(self, split: str, place: str, start: tuple[int, int]) -> Problem:
        """`"chain2-train-5"`: the same problem whatever the answers' length."""
        numbers = list(islice(chain(*start, self.modulus), self.count))
        name = f"chain{self.digits}-{place}"
        low, high = start
        if self.words:
            digits = "the last digit" if self.digits == 1 else f"the last {self.digits} digits"
            question = (
                f"A sequence begins with {low}, {high}. Each next number is the sum of the two"
                f" numbers before it, of which only {digits} are kept. Write the next {self.count}"
                " numbers, separated by commas, nothing else."
            )
            return Problem(name, question, str(numbers[-1]), ", ".join(map(str, numbers)))
        width = self.digits
        items = [
            f"{self._counter(place)}:{number:0{width}d}" for place, number in enumerate(numbers)
        ]
        return Problem(
            name,
            f"{low:0{width}d} {high:0{width}d}:",
            items[-1][-width:],
            f"{' '.join(items)}\n",
        )

    def grade(self, problem: Problem, answer: str) -> Grade:
        """The reward is the share of right items; right is an answer without a wrong one.

        An item is right if its counter is and its number is the sum of the two that the answer
        itself has before it. An item of another form is wrong and passed over; the last one, where
        it was cut in the middle, is left out. With `words` an item is a number alone, and numbers
        beyond those asked for are wrong.
        """
        previous = [int(number) for number in re.findall("[0-9]+", problem.prompt)[:2]]
        if self.words:
            items = [str(int(number)) for number in re.findall("[0-9]+", answer)]
        else:
            items = answer.rstrip("\n").removesuffix(" ").split(" ")
            if len(items[-1]) < self.width + 1 + self.digits:
                items.pop()
        if not items:
            return Grade(0.0, False, None, "no number")
        right = 0
        for place, item in enumerate(items):
            match = re.fullmatch(
                "()([0-9]+)" if self.words else f"([0-9]+):([0-9]{{{self.digits}}})", item
            )
            if match is not None:
                due = place < self.count and match[1] == (
                    "" if self.words else self._counter(place)
                )
                right += due and int(match[2]) == sum(previous) % self.modulus
                previous = [previous[1], int(match[2])]
        share = right / len(items) if self.words else 1 - (len(items) - right) / len(items)
        kind = "numbers" if self.words else "items"
        return Grade(
            share, right == len(items), items[-1][-20:], f"{right} of {len(items)} {kind} are right"
        )

    def _counter(self, place: int) -> str:
        return f"{self.count - 1 - place:0{self.width}d}"

    def generate(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Every ordered pair once; both orders of a pair are on the same side."""
        for index in shuffled(self.modulus**2, seed=self.digits):
            low, high = divmod(index, self.modulus)
            key = f"{min(low, high)}:{max(low, high)}"
            yield key, (low, high)


def chain(previous: int, current: int, modulus: int) -> Iterator[int]:
    """Each the sum of the two before it: `chain(37, 55, 100)` gives 92, 47, 39, 86, ..."""
    while True:
        following = (previous + current) % modulus
        previous = current
        current = following
        yield current
