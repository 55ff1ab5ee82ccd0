import collections
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from calling import lab_error
from hypothesis import given
from hypothesis import strategies as st

from gspo_lab.tasks.addition import Addition
from gspo_lab.tasks.base import Problem
from gspo_lab.tasks.pools import HELD_OUT_SHARE, Pool, deal, hash_fraction, shuffled

DIGEST = """
import hashlib, sys
from gspo_lab.tasks.addition import Addition
from gspo_lab.tasks.guess import Guess
for task in (Addition(digits=2, train=500, held_out=100), Guess(train=300, held_out=50)):
    text = repr([list(task.problems(split)) for split in ("train", "held-out")])
    print(hashlib.sha256(text.encode()).hexdigest())
heavy = {"torch", "numpy", "pandas", "transformers", "plotly", "sqlite_utils"} & set(sys.modules)
assert not heavy, heavy
"""


@given(st.integers(1, 5000), st.integers(0, 100))
def test_shuffled_is_a_permutation(count: int, seed: int) -> None:
    assert sorted(shuffled(count, seed)) == list(range(count))


@pytest.mark.parametrize(("digits", "terms"), [(2, 2), (6, 5)])
def test_operands_are_uniform_and_unrelated(digits: int, terms: int) -> None:
    task = Addition(digits=digits, terms=terms, train=5000, held_out=10)
    rows = [
        [int(text) for text in problem.prompt[:-1].split("+")] for problem in task.problems("train")
    ]
    side = 10**digits
    for term in range(terms):
        column = [row[term] / (side - 1) for row in rows]
        assert (
            abs(sum(column) / len(column) - 0.5) < 0.025
        )  # standard error 0.29 / sqrt(5000) = 0.0041
        for shift in (
            0,
            1,
        ):  # against the next term of the same problem, and of the problem after it
            other = [row[(term + 1) % terms] / (side - 1) for row in rows[shift:]]
            covariance = sum(
                (a - 0.5) * (b - 0.5) for a, b in zip(column, other, strict=False)
            ) / len(other)
            assert abs(covariance * 12) < 0.07  # correlation; standard error 0.014
        last = collections.Counter(row[term] % 10 for row in rows)
        assert all(400 < last[digit] < 600 for digit in range(10))


def test_place_is_a_hash_of_the_text() -> None:
    expected = int(hashlib.blake2b(b"1+2", digest_size=6).hexdigest(), 16) / 2**48
    assert hash_fraction("1+2") == expected
    places = [hash_fraction(str(number)) for number in range(5000)]
    assert (
        abs(sum(one < HELD_OUT_SHARE for one in places) / 5000 - HELD_OUT_SHARE) < 0.017
    )  # four standard errors


def test_deal_stops_drawing_when_both_are_full() -> None:
    drawn = 0

    def draw() -> Iterator[tuple[str, int]]:
        nonlocal drawn
        for number in range(100_000):
            drawn += 1
            yield str(number), number

    dealt = deal(draw(), train=5, held_out=2)
    assert len(dealt["train"]) == 5
    assert len(dealt["held-out"]) == 2
    assert drawn == max(dealt["train"][-1], dealt["held-out"][-1]) + 1


def test_pool_is_a_lazy_sequence() -> None:
    made = []

    def make(index: int, item: int) -> Problem:
        made.append(index)
        return Problem(f"p{index}", str(item), str(item))

    pool = Pool([10, 20, 30], make)
    assert len(pool) == 3
    assert made == []
    assert pool[-1] == Problem("p2", "30", "30")
    assert made == [2]
    assert [one.id for one in pool[1:]] == ["p1", "p2"]
    assert [one.prompt for one in pool] == ["10", "20", "30"]
    with pytest.raises(IndexError):
        pool[3]


def test_pools_are_equal_in_every_process() -> None:
    outputs = []
    for seed in ("1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        outputs.append(subprocess.check_output([sys.executable, "-c", DIGEST], env=environment))
    assert outputs[0] == outputs[1]


def test_unknown_split() -> None:
    with lab_error("no split 'test'"):
        Addition(digits=1).problems("test")
