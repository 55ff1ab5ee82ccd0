r"""Countdown: reach a target with given numbers, + - * and even divisions.

    7 3 12=33:     7*3=21 21+12=33 #7*3+12\n

Every given number is used exactly once (`use_all = false`: at most once, as in the television game). Many answers are
right; the reference is the one that the problem was made from.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from gspo_lab.errors import LabError
from gspo_lab.tasks.base import Grade, Problem, flag, integer_option
from gspo_lab.tasks.pools import SLACK_TOKENS, Generated, shuffled

MARKER = "#"
WORDS_TOKENS = 256
"""Token limit of an answer to a question in words: some attempts, and the expression."""
LONGEST_EXPRESSION = 120
DRAWS = 400_000
"""Draws after which a pool stays as long as it is: small families of problems repeat themselves for ever."""

PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2}
SIGN: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


class Refused(ValueError):
    """An expression that cannot be an answer; the message says why, as the grade's reason."""


@dataclass(frozen=True, slots=True)
class Solution:
    """One way to the target: `Solution((7, 3, 12), 33, ("7*3=21", "21+12=33"), "7*3+12")`."""

    numbers: tuple[int, ...]
    target: int
    steps: tuple[str, ...]
    expression: str


class Countdown(Generated[Solution]):
    """`numbers` numbers from 1 to `max_number`, targets from 1 to `max_target`; every problem has a solution.

    Problems are told apart by their numbers, whatever their order, and their target; a tenth is ever held out. At most
    `train` and `held_out` of them, fewer where no more are found: about 16,000 of 3 numbers up to 20.
    """

    name = "countdown"
    grader = "countdown/1"

    def __init__(
        self,
        numbers: int = 3,
        max_number: int = 20,
        max_target: int = 100,
        operators: str = "+-*/",
        use_all: bool = True,
        train: int = 10_000,
        held_out: int = 500,
        words: bool = False,
    ) -> None:
        self.numbers = integer_option(self.name, "numbers", numbers, 2, 6)
        self.max_number = integer_option(self.name, "max_number", max_number, 1, 100)
        self.max_target = integer_option(self.name, "max_target", max_target, 1, 1_000)
        if not isinstance(operators, str) or not operators or not set(operators) <= PRECEDENCE.keys():
            raise LabError(f"task 'countdown': operators = {operators!r} must be some of '+-*/'")
        self.operators = "".join(sign for sign in PRECEDENCE if sign in operators)
        self.use_all = flag(self.name, "use_all", use_all)
        # Values on the way stay under ten targets, so that a demonstration has a longest form: n - 1 steps "a*b=c ",
        # then "#", n numbers, n - 1 signs, n - 2 pairs of parentheses and the newline.
        self._largest = 10 * max_target
        step = 3 * len(str(max(self._largest, max_number))) + 3
        answer = numbers * len(str(max_number)) + (numbers - 1) + 2 * (numbers - 2) + 2
        self.max_tokens = (numbers - 1) * step + answer + SLACK_TOKENS
        super().__init__(train, held_out, words, WORDS_TOKENS)
        self.grader = "countdown/1"  # the same in symbols and in words

    def problems(self, split: str) -> Sequence[Problem]:
        """The pool. LabError where these options leave nothing."""
        pool = super().problems(split)
        if not pool:
            raise LabError(f"task 'countdown': no {split} problems with these options; raise max_number or max_target")
        return pool

    def make(self, split: str, place: str, solution: Solution) -> Problem:
        """`"countdown3-train-5"`."""
        name = f"countdown{self.numbers}-{place}"
        if self.words:
            numbers = ", ".join(map(str, solution.numbers))
            question = (
                f"Reach {solution.target} from the numbers {numbers} with +, -, * and /. Use each of the numbers "
                f"{'exactly' if self.use_all else 'at most'} once. End your answer with a line that holds {MARKER} and "
                f"the expression alone, such as: {MARKER}(1+2)*3"
            )
            return Problem(name, question, solution.expression, f"{MARKER}{solution.expression}")
        prompt = f"{' '.join(map(str, solution.numbers))}={solution.target}:"
        shown = " ".join([*solution.steps, f"{MARKER}{solution.expression}\n"])
        return Problem(name, prompt, solution.expression, shown)

    def grade(self, problem: Problem, answer: str) -> Grade:
        """Right is an expression behind the last `#`, on that line and alone, that has the target's value.

        It may hold the given numbers, binary + - * /, parentheses and spaces: no sign before a number, no power, no
        "= 33". Divisions must come out even; values below zero on the way are allowed. The steps are not looked at.
        """
        try:
            given_tree = _parsed(problem.reference)
            target = _value(given_tree)
        except Refused as error:
            return Grade(None, None, error=f"the reference {problem.reference!r}: {error}")
        _steps, marker, after = answer.rpartition(MARKER)
        if not marker:
            return Grade(0.0, False, None, "no answer marker found")
        extracted = after.partition("\n")[0].strip(" \t\r")
        try:
            tree = _parsed(extracted)
            self._check_numbers(_numbers(given_tree), _numbers(tree))
            value = _value(tree)
        except Refused as error:
            return Grade(0.0, False, extracted or None, str(error))
        if value != target:
            return Grade(0.0, False, extracted, f"differs: got {value}, wanted {target}")
        return Grade(1.0, True, extracted, f"reaches {target}")

    def _check_numbers(self, numbers: list[int], used: list[int]) -> None:
        remaining = list(numbers)
        for number in used:
            if number not in numbers:
                raise Refused(f"uses {str(number)[:20]}, which is not given")
            if number not in remaining:
                raise Refused(f"uses {number} too often")
            remaining.remove(number)
        if remaining and self.use_all:
            raise Refused(f"leaves out {', '.join(map(str, remaining))}")

    def generate(self) -> Iterator[tuple[str, Solution]]:
        """Solvable problems, each once: an index stands for the numbers and for what is done with them."""
        count = self.max_number**self.numbers
        for size in range(self.numbers, 1, -1):
            count *= size * (size - 1) * len(self.operators)
        keys = set()
        for index in islice(shuffled(count, seed=self.numbers), DRAWS):
            solution = self._decoded(index)
            if solution is None:
                continue
            key = f"{' '.join(map(str, sorted(solution.numbers)))}={solution.target}"
            if key not in keys:
                keys.add(key)
                yield key, solution

    def _decoded(self, index: int) -> Solution | None:
        """The solution that an index stands for, digit by digit in a mixed radix; None where a step is not allowed."""
        numbers = []
        for _ in range(self.numbers):
            index, number = divmod(index, self.max_number)
            numbers.append(number + 1)
        parts = [(number, str(number), 3) for number in numbers]
        steps = []
        while len(parts) > 1:
            index, first = divmod(index, len(parts))
            left, left_text, left_rank = parts.pop(first)
            index, second = divmod(index, len(parts))
            right, right_text, right_rank = parts.pop(second)
            index, choice = divmod(index, len(self.operators))
            sign = self.operators[choice]
            value = _combined(left, sign, right)
            if value is None or not 1 <= value <= self._largest:
                return None
            rank = PRECEDENCE[sign]
            if left_rank < rank:
                left_text = f"({left_text})"
            if right_rank < rank or (right_rank == rank and sign in "-/"):
                right_text = f"({right_text})"
            steps.append(f"{left}{sign}{right}={value}")
            parts.append((value, f"{left_text}{sign}{right_text}", rank))
        target, expression, _ = parts[0]
        return Solution(tuple(numbers), target, tuple(steps), expression) if target <= self.max_target else None


def _combined(left: int, sign: str, right: int) -> int | None:
    """`left sign right`, None where a division is by zero or leaves a remainder."""
    if sign == "/":
        return None if right == 0 or left % right else left // right
    return {"+": left + right, "-": left - right, "*": left * right}[sign]


def _parsed(text: str) -> ast.expr:
    """The tree of an expression of whole numbers, + - * / and parentheses; Refused for anything else. Runs nothing."""
    if not text:
        raise Refused("nothing behind the answer marker")
    if len(text) > LONGEST_EXPRESSION:
        raise Refused(f"longer than {LONGEST_EXPRESSION} characters")
    # Before Python's parser sees it: no names, calls on names, attributes, strings, floats, underscores, other scripts.
    odd = re.search(r"[^0-9+\-*/() ]", text)
    if odd:
        raise Refused(f"{odd[0]!r} is no part of an expression of whole numbers and + - * / ( )")
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise Refused("not an expression") from error
    for node in ast.walk(tree):
        allowed = isinstance(node, ast.Constant | ast.operator) or (
            isinstance(node, ast.BinOp) and type(node.op) in SIGN
        )
        if not allowed:
            raise Refused("more than whole numbers and + - * / ( )")
    return tree


def _numbers(tree: ast.expr) -> list[int]:
    """The numbers of an expression, from left to right."""
    leaves = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [int(str(leaf.value)) for leaf in sorted(leaves, key=lambda leaf: leaf.col_offset)]


def _value(tree: ast.expr) -> int:
    """The value in whole numbers. Bounded, because the numbers were found to be given ones before."""
    if isinstance(tree, ast.BinOp):
        left, right = _value(tree.left), _value(tree.right)
        sign = SIGN[type(tree.op)]
        value = _combined(left, sign, right)
        if value is None:
            raise Refused("divides by zero" if right == 0 else f"{left}/{right} leaves a remainder")
        return value
    assert isinstance(tree, ast.Constant)
    return int(str(tree.value))
