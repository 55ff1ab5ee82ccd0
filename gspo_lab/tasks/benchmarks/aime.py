"""AIME 2024 and 2025: parts I and II, 30 problems each, whose answers are whole numbers from 0 to
999.
"""

from gspo_lab.common.errors import LabError
from gspo_lab.tasks.base import Defaults, Grade, Problem
from gspo_lab.tasks.benchmarks.datasets import AIME24, AIME25, DatasetSource, find_files
from gspo_lab.tasks.benchmarks.final_answers import Number, read_number
from gspo_lab.tasks.benchmarks.published_benchmark import (
    PROMPT_VERSION,
    Published,
    compared,
    prompt,
    read_items,
)


class _Aime(Published):
    """The last complete box must state the gold number.

    `data`: a file or folder of the user's instead of the Hub.
    """

    grader = "aime-integer/7"
    prompt_version = PROMPT_VERSION
    # Samples are the GSPO paper's (avg@32); temperature, top-p and length Qwen3's for AIME when
    # thinking.
    defaults = Defaults(samples=32, temperature=0.6, top_p=0.95, max_tokens=38_912)
    max_tokens = 38_912
    source: DatasetSource

    def read(self) -> tuple[Problem, ...]:
        files = find_files(self.name, [self.name], self.source, self.data)
        problems = []
        for item in read_items(self.name, files, self.source.rows, self.enough):
            gold = _read_integer(item.gold)
            if gold is None:
                raise LabError(
                    f"{item.where}: the gold {item.gold!r:.40} is not a whole number from 0 to 999"
                )
            problems.append(Problem(f"{self.name}-{item.id}", prompt(item.problem), str(gold)))
        return tuple(problems)

    def grade_stated(self, problem: Problem, extracted: str) -> Grade:
        """Correct is the gold number."""
        gold = int(problem.reference)
        return compared(extracted, _read_integer(extracted), gold, "whole number from 0 to 999")


class Aime24(_Aime):
    """The 30 problems of 2024."""

    name = "aime24"
    source = AIME24


class Aime25(_Aime):
    """The 30 problems of 2025."""

    name = "aime25"
    source = AIME25


def _read_integer(content: str) -> Number | None:
    """The whole number from 0 to 999 that a box states; None where it states none."""
    number = read_number(content)
    if number is None or number.percent or number.value.denominator != 1:
        return None
    return number if 0 <= number.value < 1000 else None
