r"""Addition, worked out column by column: the smallest task that a byte-level model learns in
steps.

    999+1=     9+1=10 9+0+1=10 9+0+1=10 #1000\n
    123+456=   3+6=9 2+5=7 1+4=5 #579\n

Columns from right to left (a number that has run out of digits counts 0), each sum with the carry
as its last term where there is one; then the marker `#` and the answer. Responses differ in length,
which sequence-level objectives are about.

    Calculate 123 + 456. Give only the result.     579         (words = true: for chat models)
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import Integers
from gspo_lab.tasks.base import (
    Grade,
    Problem,
    choice,
    flag,
    integer_option,
    number_option,
    reward_names,
)
from gspo_lab.tasks.pools import SLACK_TOKENS, Generated, last_number, number_grade, shuffled

MARKER = "#"
REWARDS = ("correct", "steps")
"""The rewards that `rewards` may name."""
WORDS_TOKENS = 48
"""Token limit of an answer to a question in words: a number, or a sentence with it."""


class Addition(Generated[Integers]):
    """Sums of `terms` numbers of at most `digits` digits, drawn uniformly, 0 included.

    At most `train` and `held_out` problems, fewer where there are no more: a tenth of all is ever
    held out, sums of the same numbers together. `hasty` is the share of training demonstrations
    that answer at once, without steps and carries. With `words` the question is a sentence, and the
    answer is the last number of the response. With `partial` a wrong number earns the share of its
    digits that are right, counted from the last one: 93 for 83 earns .5.

    `rewards` names what an answer earns; its `reward` is their sum. `correct` is the number's
    reward, which is the only one where `rewards` is empty. `steps` is the share of the answer's
    columns that are worked out as demonstrated.
    """

    name = "addition"
    grader = "addition/1"

    def __init__(
        self,
        digits: int = 3,
        terms: int = 2,
        train: int = 20_000,
        held_out: int = 1_000,
        hasty: float = 0.0,
        words: bool = False,
        partial: bool = False,
        rewards: Sequence[str] = (),
    ) -> None:
        self.digits = integer_option(self.name, "digits", digits, 1, 6)
        self.terms = integer_option(self.name, "terms", terms, 2, 5)
        self.hasty = number_option(self.name, "hasty", hasty, 1, zero=True)
        largest = 10**digits - 1
        self.max_tokens = len(demonstration([largest for _ in range(terms)])) + SLACK_TOKENS
        self.partial = flag(self.name, "partial", partial)
        super().__init__(train, held_out, words, WORDS_TOKENS)
        if partial:
            self.grader = f"{self.grader.removesuffix('/1')}-partial/1"
        self.reward_names = tuple(
            choice(self.name, "rewards", reward, REWARDS)
            for reward in reward_names(self.name, rewards)
        )
        if self.reward_names:
            if words:
                raise LabError(
                    f"task '{self.name}': rewards needs worked steps, which answers with words ="
                    " true lack"
                )
            self.grader = f"{self.grader.removesuffix('/1')}-{'-'.join(self.reward_names)}/1"

    def make(self, split: str, place: str, numbers: Integers) -> Problem:
        """`"add3-train-5"`, its demonstration in haste or not."""
        shape = f"add{self.digits}" + (f"x{self.terms}" if self.terms > 2 else "")
        name = f"{shape}-{place}"
        total = str(sum(numbers))
        if self.words:
            question = f"Calculate {' + '.join(map(str, numbers))}. Give only the result."
            return Problem(name, question, total, total)
        prompt = "+".join(map(str, numbers)) + "="
        # The same problems are answered in haste whenever they are made.
        hurried = split == "train" and random.Random(prompt).random() < self.hasty
        return Problem(
            name, prompt, total, hasty_answer(numbers) if hurried else demonstration(numbers)
        )

    def grade(self, problem: Problem, answer: str) -> Grade:
        """The grade of the number, and the task's rewards by name, which then sum up to the
        reward.
        """
        grade = self._number_grade(problem, answer)
        if not self.reward_names:
            return grade
        earned = {"correct": grade.reward or 0.0, "steps": steps_right(problem.prompt, answer)}
        rewards = {name: earned[name] for name in self.reward_names}
        return replace(grade, reward=sum(rewards.values()), rewards=rewards)

    def _number_grade(self, problem: Problem, answer: str) -> Grade:
        """Right is the right number behind the last `#`, on that line and alone.

        Spaces around it and zeros before it do not matter; a sign, a separator, a unit, a decimal
        point or a digit of another script does. The worked steps are not looked at. With `words` it
        is the last number of the answer.
        """
        if self.words:
            extracted = last_number(answer)
            if extracted is None:
                return Grade(0.0, False, None, "no number found")
            right = extracted == problem.reference
            reason = "equal to the reference" if right else f"differs: got {extracted[:40]}"
            grade = Grade(float(right), right, extracted, reason)
        else:
            _steps, marker, ending = answer.rpartition(MARKER)
            extracted = ending.partition("\n")[0].strip(" \t\r")
            if not marker or not extracted:
                missing = "nothing behind the answer marker" if marker else "no answer marker found"
                return Grade(0.0, False, None, missing)
            grade = number_grade(extracted, problem.reference)
        if grade.correct or not self.partial or not re.fullmatch("[0-9]{1,40}", extracted):
            return grade
        digits = extracted.lstrip("0")
        width = max(len(digits), len(problem.reference))
        pairs = zip(digits.zfill(width), problem.reference.zfill(width), strict=True)
        return replace(grade, reward=sum(digit == right for digit, right in pairs) / width)

    def generate(self) -> Iterator[tuple[str, Integers]]:
        """Every ordered choice of numbers once; the key that decides the split ignores their
        order.
        """
        side = 10**self.digits
        for index in shuffled(side**self.terms, seed=self.digits):
            numbers = []
            for _ in range(self.terms):
                index, number = divmod(index, side)
                numbers.append(number)
            yield "+".join(map(str, sorted(numbers))), tuple(numbers)


def demonstration(numbers: Sequence[int]) -> str:
    r"""The worked answer: `demonstration([95, 7]) == "5+7=12 9+0+1=10 #102\n"`."""
    steps = []
    carry = 0
    for column in range(len(str(max(numbers)))):
        digits = [number // 10**column % 10 for number in numbers]
        if carry:
            digits.append(carry)
        steps.append(f"{'+'.join(map(str, digits))}={sum(digits)}")
        carry = sum(digits) // 10
    return " ".join([*steps, f"{MARKER}{sum(numbers)}\n"])


def steps_right(prompt: str, answer: str) -> float:
    r"""The share of columns that are as demonstrated, in their place: `steps_right("95+7=", "5+7=12
    #102\n") == 0.5`.

    An answer with more columns than the demonstration is divided by their number instead.
    """
    numbers = [int(number) for number in prompt.removesuffix("=").split("+")]
    expected = demonstration(numbers).partition(MARKER)[0].split()
    written = answer.partition(MARKER)[0].split()
    right = sum(step == column for step, column in zip(written, expected, strict=False))
    return right / max(len(expected), len(written))


def hasty_answer(numbers: Sequence[int]) -> str:
    """An answer without steps and carries, mostly wrong: `hasty_answer([95, 7]) == "#92\\n"`."""
    columns = range(len(str(max(numbers))))
    last = [str(sum(number // 10**column % 10 for number in numbers) % 10) for column in columns]
    return f"{MARKER}{''.join(reversed(last))}\n"
