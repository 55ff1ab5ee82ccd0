"""Pools of generated problems, equal on every machine, split into train and held-out by a hash of
the problem.

The split depends only on the problem, never on the pool's size or a task's options. So a longer
pool begins with the shorter one, and a benchmark with other options contains no problem of the
training split.
"""

import functools
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import Strings
from gspo_lab.tasks.base import Grade, Problem, Problems, Task, flag, integer_option

SPLITS = ("train", "held-out")
HELD_OUT_SHARE = 0.1
WORDED = "words/1"
"""The `prompt_version` of questions in sentences."""
SLACK_TOKENS = 8
"""Tokens by which an answer may exceed the longest demonstration."""

T = TypeVar("T")


def hash_fraction(key: str) -> float:
    """A number in [0, 1) that depends only on the text, in every process."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=6).digest(), "big") / 2**48


def shuffled(count: int, seed: int = 0) -> Iterator[int]:
    """0 .. count - 1 in a fixed pseudo-random order, without storing them.

    A full-period linear congruential generator over the next power of two (Hull and Dobell 1962:
    multiplier 1 mod 4, odd increment), whose output is scrambled by invertible steps, because its
    low bits alone have short periods.
    """
    bits = max(1, (count - 1).bit_length())
    mask = (1 << bits) - 1
    half = max(1, bits // 2)
    state = seed & mask
    for _ in range(mask + 1):
        state = (state * 0x5851F42D4C957F2D + 0x14057B7EF767814F) & mask
        out = state ^ (state >> half)
        out = (out * 0x9E3779B97F4A7C15) & mask
        out ^= out >> half
        out = (out * 0xD1342543DE82EF95) & mask
        out ^= out >> half
        if out < count:
            yield out


def deal(pairs: Iterable[tuple[str, T]], train: int, held_out: int) -> dict[str, list[T]]:
    """Split `(key, item)` pairs by their keys until both splits are full or no pair is left."""
    sizes = {"train": train, "held-out": held_out}
    dealt: dict[str, list[T]] = {split: [] for split in SPLITS}
    for key, item in pairs:
        split = "held-out" if hash_fraction(key) < HELD_OUT_SHARE else "train"
        if len(dealt[split]) < sizes[split]:
            dealt[split].append(item)
            if all(len(dealt[name]) == sizes[name] for name in SPLITS):
                break
    return dealt


def known_split(task: str, split: str) -> str:
    """`split`, or LabError."""
    if split not in SPLITS:
        raise LabError(f"task '{task}': no split '{split}'; there are 'train' and 'held-out'")
    return split


class Pool(Problems, Generic[T]):
    """A sequence that creates each problem at access, from a small item."""

    def __init__(self, items: Sequence[T], make: Callable[[int, T], Problem]) -> None:
        self._items = items
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        return self._make(position, self._items[position])


class Generated(Task, ABC, Generic[T]):
    """A task with at most `train` and `held_out` generated problems.

    `words`: questions are sentences for chat models, with at most `words_tokens` tokens per answer.
    """

    stop: Strings = ("\n",)

    def __init__(self, train: int, held_out: int, words: bool, words_tokens: int) -> None:
        self.train = integer_option(self.name, "train", train, 1, 1_000_000)
        self.held_out = integer_option(self.name, "held_out", held_out, 1, 100_000)
        self.words = flag(self.name, "words", words)
        if words:
            self.grader = f"{self.name}-words/1"
            self.stop = ()
            self.chat = True
            self.prompt_version = WORDED
            self.max_tokens = words_tokens

    def problems(self, split: str) -> Problems:
        """The pool of a split; a problem's name does not depend on the pool's size."""
        label = {"train": "train", "held-out": "held"}[known_split(self.name, split)]
        return Pool(
            self._dealt[split], lambda index, item: self.make(split, f"{label}-{index}", item)
        )

    @abstractmethod
    def generate(self) -> Iterator[tuple[str, T]]:
        """Each problem's (key, item) once, in a fixed order; the key decides the split."""

    @abstractmethod
    def make(self, split: str, place: str, item: T) -> Problem:
        """The problem of an item; `place` is its name in the split, `"train-5"` or `"held-5"`."""

    @functools.cached_property
    def _dealt(self) -> dict[str, list[T]]:
        return deal(self.generate(), self.train, self.held_out)


def number_grade(extracted: str, reference: str) -> Grade:
    """Correct: exactly the digits of the reference, with optional leading zeros."""
    if not re.fullmatch("[0-9]+", extracted):
        return Grade(0.0, False, extracted or None, f"not a whole number: {extracted[:40]!r}")
    # Compared as text: int() of thousands of digits is slow, and refused by Python.
    if (extracted.lstrip("0") or "0") == reference:
        return Grade(1.0, True, extracted, "equal to the reference")
    return Grade(0.0, False, extracted, f"differs: got {extracted[:40]}")


def last_number(text: str) -> str | None:
    """The last number of a text without thousands separators and leading zeros; None if there is
    none.

    `last_number("7 plus 9 is 16.") == "16"`, `last_number("1,234") == "1234"`, `last_number("-07")
    == "-7"`, `last_number("2.5") == "2.5"`.
    """
    numbers = re.findall(
        r"(?<![0-9.,])-?[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|-?[0-9]+(?:\.[0-9]+)?", text
    )
    if not numbers:
        return None
    digits = numbers[-1].removeprefix("-")
    sign = "-" if digits != numbers[-1] else ""
    integer, point, decimals = digits.replace(",", "").partition(".")
    return f"{sign}{integer.lstrip('0') or '0'}{point}{decimals}"
