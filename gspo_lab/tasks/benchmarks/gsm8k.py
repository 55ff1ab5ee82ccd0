"""GSM8K (arXiv 2110.14168): 1,319 problems of grade-school arithmetic to be asked, 7,473 more to
train on.
"""

import functools
import re
from decimal import Decimal
from fractions import Fraction

from gspo_lab.common.errors import LabError
from gspo_lab.tasks.base import Defaults, Grade, Problem, Problems
from gspo_lab.tasks.benchmarks import published_benchmark as published
from gspo_lab.tasks.benchmarks.datasets import GSM8K, find_files
from gspo_lab.tasks.benchmarks.final_answers import (
    NoAnswer,
    Unclosed,
    last_box,
    read_number,
    without_thinking,
)
from gspo_lab.tasks.pools import known_split

MARK = "####"
STEMS = {"train": ("gsm8k_train",), "held-out": ("gsm8k_test", "gsm8k")}

_CALCULATOR = re.compile(r"<<[^<>]*>>")


class Gsm8k(published.Published):
    """The number of the last box or behind the last `####`, whichever comes later, must equal the
    gold number.

    `data` and `train_data` name files of the user's for the two splits instead of the Hub.
    """

    name = "gsm8k"
    grader = "gsm8k-number/5"
    prompt_version = published.PROMPT_VERSION
    # No paper on GSPO asks it; one greedy answer is what evaluation harnesses do.
    defaults = Defaults(samples=1, temperature=0.0, top_p=1.0, max_tokens=32_768)
    max_tokens = 2_048
    trains = True

    def __init__(self, data: str | None = None, train_data: str | None = None) -> None:
        self.files = {"held-out": data, "train": train_data}

    def read(self) -> tuple[Problem, ...]:
        """The held-out problems."""
        return self._read_split("held-out")

    def problems(self, split: str) -> Problems:
        """The problems of a split."""
        return self._train if known_split(self.name, split) == "train" else self._held_out

    @functools.cached_property
    def _train(self) -> tuple[Problem, ...]:
        return self._read_split("train")

    def _read_split(self, split: str) -> tuple[Problem, ...]:
        source = GSM8K[split]
        files = find_files(f"{self.name} ({split})", STEMS[split], source, self.files[split])
        items = published.read_items(
            self.name, files, source.rows, self.enough if split == "held-out" else None
        )
        label = {"train": "train", "held-out": "test"}[split]
        return tuple(
            _problem(f"{self.name}-{label}-{place}", item)
            for place, item in enumerate(items, start=1)
        )

    def extract(self, answer: str) -> str:
        """What stands in the last box or behind the last mark, whichever comes later."""
        text = without_thinking(answer)
        _, mark, last = text.rpartition(MARK)
        try:
            return last_box(last)
        except NoAnswer as error:
            if not mark or isinstance(error, Unclosed):
                raise
        line = re.split("[\n<]", last.strip())[0]  # no answer holds "<": a mark of the end does
        if not line:
            raise NoAnswer(f"nothing behind {MARK}")
        return line

    def grade_stated(self, problem: Problem, extracted: str) -> Grade:
        """Compared as numbers: `1,080`, `1080.00`, `$1080` and `1080 dollars` are equal."""
        reference = problem.reference
        gold = int(reference) if reference.isdecimal() else Fraction(Decimal(reference))
        return published.compared(extracted, read_number(extracted), gold, "number")


def _problem(name: str, item: published.DatasetProblem) -> Problem:
    steps, mark, gold = item.gold.rpartition(MARK)
    value = read_number(gold)
    if not mark or value is None:
        raise LabError(f"{item.where}: the answer must end in '{MARK} NUMBER'")
    explained = _CALCULATOR.sub("", steps).rstrip()
    demonstration = f"{explained}\n\\boxed{{{value}}}"
    return Problem(name, published.prompt(item.problem), str(value), demonstration)
