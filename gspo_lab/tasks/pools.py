"""Pools of generated problems: the same on every machine, dealt into train and held-out by a hash of the problem.

Whether a problem is held out depends on the problem alone, never on a pool's size or a task's options: a longer pool
begins with the shorter one, and a benchmark with other options still asks nothing that was trained on.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar, overload

from gspo_lab.errors import LabError
from gspo_lab.tasks.base import Problem

SPLITS = ("train", "held-out")
HELD_OUT_SHARE = 0.1

T = TypeVar("T")


def place(key: str) -> float:
    """A number in [0, 1) that depends on the text alone, in every process alike."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=6).digest(), "big") / 2**48


def shuffled(count: int, seed: int = 0) -> Iterator[int]:
    """0 .. count - 1 in a fixed pseudo-random order, one at a time and without holding them.

    A full-period linear congruential generator over the next power of two (Hull and Dobell 1962: multiplier 1 mod 4,
    odd increment), whose output is scrambled by invertible steps, because its low bits alone have short periods.
    """
    bits = max(1, (count - 1).bit_length())
    mask, half = (1 << bits) - 1, max(1, bits // 2)
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


def deal(drawn: Iterable[tuple[str, T]], train: int, held_out: int) -> dict[str, list[T]]:
    """The items of `(key, item)` by split, which the key decides, until both have what they want or nothing is left."""
    wanted = {"train": train, "held-out": held_out}
    dealt: dict[str, list[T]] = {split: [] for split in SPLITS}
    for key, item in drawn:
        split = "held-out" if place(key) < HELD_OUT_SHARE else "train"
        if len(dealt[split]) < wanted[split]:
            dealt[split].append(item)
            if all(len(dealt[one]) == wanted[one] for one in SPLITS):
                break
    return dealt


def known_split(task: str, split: str) -> str:
    """`split`, or LabError."""
    if split not in SPLITS:
        raise LabError(f"task '{task}': no split '{split}'; there are 'train' and 'held-out'")
    return split


class Pool(Sequence[Problem], Generic[T]):
    """Problems that are made when they are asked for, from the little that each of them needs."""

    def __init__(self, items: Sequence[T], make: Callable[[int, T], Problem]) -> None:
        self._items = items
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> list[Problem]: ...
    def __getitem__(self, index: int | slice) -> Problem | list[Problem]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        return self._make(position, self._items[position])
