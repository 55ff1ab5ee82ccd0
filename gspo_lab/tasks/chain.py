r"""Chains of sums: a task whose answers are as long as one likes, and no harder for it.

    37 55:     145:92 144:47 143:39 142:86 ... 000:51\n     (length = 1024)

Each number is the sum of the two before it, modulo 10^digits, behind a counter that runs down to 0: what the next
number needs stands right before it, wherever in the answer it is. Cut at any limit (`rollout.max_tokens`) an answer is
a shorter one of the same task, so that arms may differ in the length of their answers and share everything else, the
starting model included.
"""

import re
from collections.abc import Iterator
from itertools import islice

from gspo_lab.tasks.base import Grade, Problem, integer_option
from gspo_lab.tasks.pools import Generated, shuffled

WORDS_TOKENS = 4
"""Tokens of a number and what separates it from the next, in the answer of a chat model."""


class Chain(Generated[tuple[int, int]]):
    """Chains of numbers of `digits` digits from two given ones; the whole answer has at most `length` characters, which
    are tokens of the embedded models.

    At most `train` and `held_out` pairs to start from, fewer where there are no more: a tenth is ever held out (about
    1,000 of the 10,000 pairs of two digits).
    """

    name = "chain"
    grader = "chain/1"

    def __init__(
        self, length: int = 256, digits: int = 2, train: int = 20_000, held_out: int = 1_000, words: bool = False
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
        if self.words:
            shown = ", ".join(map(str, numbers))
            return Problem(name, self._question(start), str(numbers[-1]), shown)
        prompt = " ".join(map(self._number, start)) + ":"
        items = [f"{self._counter(at)}:{self._number(number)}" for at, number in enumerate(numbers)]
        return Problem(name, prompt, self._number(numbers[-1]), f"{' '.join(items)}\n")

    def grade(self, problem: Problem, answer: str) -> Grade:
        """The reward is the share of right items; right is an answer without a wrong one.

        An item is right if its counter is and its number is the sum of the two that the answer itself has before it: an
        error costs its own item and none of those behind it. An item of another form is wrong, and the next one is held
        against what stands before both. The last item of an answer that was cut short in the middle of it is left out.
        With `words` an item is a number alone, and numbers beyond those asked for are wrong.
        """
        if self.words:
            return self._grade_words(problem, answer)
        items = answer.rstrip("\n").removesuffix(" ").split(" ")
        if len(items[-1]) < self.width + 1 + self.digits:
            items.pop()
        if not items:
            return Grade(0.0, False, None, "no number")
        before = [int(start) for start in problem.prompt.removesuffix(":").split(" ")]
        wrong: list[int] = []
        for place, item in enumerate(items):
            match = re.fullmatch(f"([0-9]+):([0-9]{{{self.digits}}})", item)
            if match is None or match[1] != self._counter(place) or int(match[2]) != sum(before) % self.modulus:
                wrong.append(place)
            if match is not None:
                before = [before[1], int(match[2])]
        share = 1 - len(wrong) / len(items)
        return Grade(share, not wrong, items[-1][-20:], f"{len(items) - len(wrong)} of {len(items)} items are right")

    def _question(self, start: tuple[int, int]) -> str:
        digits = "the last digit" if self.digits == 1 else f"the last {self.digits} digits"
        return (
            f"A sequence begins with {start[0]}, {start[1]}. Each next number is the sum of the two numbers before it, "
            f"of which only {digits} are kept. Write the next {self.count} numbers, separated by commas, nothing else."
        )

    def _grade_words(self, problem: Problem, answer: str) -> Grade:
        before = [int(number) for number in re.findall("[0-9]+", problem.prompt)[:2]]
        numbers = [int(number) for number in re.findall("[0-9]+", answer)]
        right = 0
        for place, number in enumerate(numbers):
            right += place < self.count and number == sum(before) % self.modulus
            before = [before[1], number]
        if not numbers:
            return Grade(0.0, False, None, "no number")
        reason = f"{right} of {len(numbers)} numbers are right"
        return Grade(right / len(numbers), right == len(numbers), str(numbers[-1])[-20:], reason)

    def _counter(self, place: int) -> str:
        return f"{self.count - 1 - place:0{self.width}d}"

    def _number(self, number: int) -> str:
        return f"{number:0{self.digits}d}"

    def generate(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Every ordered pair once; both orders of a pair are on the same side."""
        for index in shuffled(self.modulus**2, seed=self.digits):
            first, second = divmod(index, self.modulus)
            yield "{}:{}".format(*sorted((first, second))), (first, second)


def chain(first: int, second: int, modulus: int) -> Iterator[int]:
    """Each the sum of the two before it: `chain(37, 55, 100)` gives 92, 47, 39, 86, ..."""
    while True:
        first, second = second, (first + second) % modulus
        yield second
