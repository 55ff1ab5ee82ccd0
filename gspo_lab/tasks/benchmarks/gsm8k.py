"""GSM8K (arXiv 2110.14168): 1,319 problems of grade-school arithmetic to be asked, 7,473 more to
train on.
"""

import functools
import re
from collections.abc import Sequence
from decimal import Decimal

from gspo_lab.common.errors import LabError
from gspo_lab.tasks.base import Defaults, Grade, Problem
from gspo_lab.tasks.benchmarks import published_benchmark as published
from gspo_lab.tasks.benchmarks.datasets import GSM8K, find_files
from gspo_lab.tasks.pools import known_split

MARK = "####"
LONGEST = 100
STEMS = {"train": ("gsm8k_train",), "held-out": ("gsm8k_test", "gsm8k")}

_CALCULATOR = re.compile(r"<<[^<>]*>>")
_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(?:\.[0-9]+)?")
_AROUND = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\s*\{([^{}]*)\}|\\[!,;: ]|\\%|[$%*\\{}]")
_SENTENCE = re.compile(
    r"(?:.*=)?\s*(?P<number>[-+]?[0-9.,]*[0-9][0-9.,]*)\s*[A-Za-z ./]*", re.DOTALL
)


class Gsm8k(published.Published):
    """The number of the last box or behind the last `####`, whichever comes later, must equal the
    gold number.

    `data` and `train_data` name files of the user's for the two splits instead of the Hub.
    """

    name = "gsm8k"
    grader = "gsm8k-number/2"
    prompt_version = published.PROMPT_VERSION
    # No paper on GSPO asks it; one greedy answer is what evaluation harnesses do.
    defaults = Defaults(samples=1, temperature=0.0, top_p=1.0, max_tokens=32_768)
    max_tokens = 2_048
    trains = True

    def __init__(self, data: str | None = None, train_data: str | None = None) -> None:
        self.files = {"held-out": data, "train": train_data}

    def read(self) -> tuple[Problem, ...]:
        """The held-out problems."""
        return self._read("held-out")

    def problems(self, split: str) -> Sequence[Problem]:
        """The problems of a split."""
        return self._train if known_split(self.name, split) == "train" else self._held_out

    @functools.cached_property
    def _train(self) -> tuple[Problem, ...]:
        return self._read("train")

    def _read(self, split: str) -> tuple[Problem, ...]:
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

    def stated(self, answer: str) -> str:
        """What stands in the last box or behind the last mark, whichever comes later."""
        text = published.spoken(answer)
        marked = text.rfind(MARK)
        behind = text[marked + len(MARK) :] if marked >= 0 else text
        try:
            return published.last_box(behind)
        except published.NoAnswer as error:
            if marked < 0 or isinstance(error, published.Unclosed):
                raise
        line = behind.strip().partition("\n")[0]
        if not line:
            raise published.NoAnswer(f"nothing behind {MARK}")
        return line

    def judged(self, problem: Problem, stated: str) -> Grade:
        """Compared as numbers:

        `1,080`, `1080.00`, `$1080` and `1080 dollars` are equal; 18.5 is not 18.
        """
        return published.compared(
            stated, read_number(stated), Decimal(problem.reference), "number", LONGEST
        )


def read_number(text: str) -> Decimal | None:
    """The one number that `text` states, its thousands commas removed; None where it states
    none.
    """
    if len(text) > LONGEST:
        return None
    text = _AROUND.sub(
        lambda font: font[1] or "", text.replace("{,}", ",").replace("−", "-")
    ).strip()
    stated = _SENTENCE.fullmatch(text)
    number = (stated["number"] if stated else text).rstrip(".,")
    if not _NUMBER.fullmatch(number) or not any(character.isdigit() for character in number):
        return None
    return Decimal(number.replace(",", ""))


def _problem(name: str, item: published.DatasetProblem) -> Problem:
    steps, mark, gold = item.gold.rpartition(MARK)
    value = read_number(gold)
    if not mark or value is None:
        raise LabError(f"{item.where}: the answer must end in '{MARK} NUMBER'")
    shown = _CALCULATOR.sub("", steps).rstrip()
    return Problem(name, published.prompt(item.problem), str(value), f"{shown}\n\\boxed{{{value}}}")
