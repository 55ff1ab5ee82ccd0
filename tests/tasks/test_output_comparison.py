import functools
import json
import math
import tracemalloc
from collections.abc import Callable

import pytest

from gspo_lab.tasks.benchmarks.output_comparison import RULES, ComparisonRule, output_rule, value_rule


def takes(strictest: ComparisonRule | None) -> list[bool]:
    """Which rules take it: the strictest that does, and each later one."""
    return [strictest is not None and RULES.index(strictest) <= RULES.index(rule) for rule in RULES]


OUTPUTS = [
    # expected, got, strict, lcb, tolerant
    (b"YES\n", b"YES\n", True, True, True),
    (b"YES\n", b"YES", True, True, True),
    (b"YES", b"  YES \n\n", False, True, True),
    (b"1\n2\n", b" 1\n 2 \n", False, True, True),
    (b"3", b"3.0", False, True, True),
    (b"3", b"3e0", False, True, True),
    (b"1 2", b"1  2", False, True, True),
    (b"a b", b"a  b", False, False, True),
    (b"YES", b"Yes", False, False, True),
    (b"1\n2", b"1 2", False, False, True),
    (b"1\n\n2", b"1\n2", False, False, True),
    (b"0.333333333", b"0.333333334", False, False, True),
    (b"0.3333", b"0.3334", False, False, False),
    (b"YES", b"NO", False, False, False),
    (b"1", b"", False, False, False),
    (b"", b"", True, True, True),
    (b"1", b"1\n1", False, False, False),
    (b"10", b"1_0", False, False, False),
    (b"10", "１０".encode(), False, False, False),
    (b"10", "١٠".encode(), False, False, False),
    (b"10", "𝟏𝟎".encode(), False, False, False),
    (b"1", b"1\x00", False, False, False),
    (b"1", b"\xff1", False, False, False),
    (b"1", b"NaN", False, False, False),
    (b"1", b"Infinity", False, False, False),
    (b"1", b"1e999999999", False, False, False),
    (b"1e400", b"10e399", False, True, True),
    (b"1", b"0x1", False, False, False),
    (b"1 a", b"1.0 a", False, False, True),
    (b"1\r\n2\r\n", b"1\n2\n", False, True, True),
]


@pytest.mark.parametrize(("expected", "got", "strict", "lcb", "tolerant"), OUTPUTS)
def test_outputs(expected: bytes, got: bytes, strict: bool, lcb: bool, tolerant: bool) -> None:
    assert takes(output_rule(expected, got)) == [strict, lcb, tolerant]


VALUES = [
    # expected, returned, strict, lcb, tolerant
    (3, 3, True, True, True),
    (3, 3.0, False, True, True),
    (1, True, False, False, True),
    (True, 1, False, False, True),
    (True, True, True, True, True),
    ([1, [2, "x"]], [1, [2, "x"]], True, True, True),
    ([1, 2], [2, 1], False, False, False),
    ([1, 2], [1], False, False, False),
    ({"a": 1}, {"a": 1.0}, False, True, True),
    ({"a": 1}, {"a": 1, "b": 2}, False, False, False),
    ("ab", "AB", False, False, True),
    ("1", 1, False, False, False),
    (None, None, True, True, True),
    (None, 0, False, False, False),
    (0.1, 0.1 + 1e-9, False, False, True),
    (0.1, 0.2, False, False, False),
    (1, math.nan, False, False, False),
    (1, math.inf, False, False, False),
    (10**400, 10**400 + 1, False, False, False),
]


@pytest.mark.parametrize(("expected", "got", "strict", "lcb", "tolerant"), VALUES)
def test_values(expected: object, got: object, strict: bool, lcb: bool, tolerant: bool) -> None:
    texts = json.dumps(expected).encode(), json.dumps(got).encode()
    assert takes(value_rule(*texts, exact=True)) == [strict, lcb, tolerant]


def test_a_value_that_json_cannot_say_exactly_is_equal_to_none_but_by_the_tolerant_rule() -> None:
    assert takes(value_rule(b"[[1, 2]]", b"[[1, 2]]", exact=False)) == [False, False, True]


@pytest.mark.parametrize("got", [None, b"", b"[1, 2", b"object at 0x1", b"[" * 100_000])
def test_what_is_no_value_is_equal_to_none(got: bytes | None) -> None:
    assert value_rule(b"[1]", got, exact=True) is None


def test_numbers_longer_than_python_reads_are_compared_as_text() -> None:
    long = b"9" * 6_000
    assert value_rule(long, long + b" ", exact=True) == "strict"
    assert output_rule(long, long + b".0") == "lcb"
    assert output_rule(long, long[:-1] + b"8") is None


@pytest.mark.parametrize("got", [b"1 " * 1_000_000, b"1\n" * 1_000_000], ids=["words", "lines"])
def test_more_than_was_expected_is_never_taken_apart(got: bytes) -> None:
    tracemalloc.start()
    try:
        assert output_rule(b"1", got + b"2") is None
        assert value_rule(b"[1]", b"[" + b"[1]," * (len(got) // 4) + b"1]", exact=True) is None
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 5 * len(got), "its numbers alone would take fifty times that"


def most_memory(compare: Callable[[], ComparisonRule | None]) -> tuple[ComparisonRule | None, int]:
    tracemalloc.start()
    try:
        return compare(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_many_equal_lines_are_compared_one_by_one() -> None:
    """By each rule, without an object for each line; equal pairs of lines are read as numbers once."""
    for line, rule in ((b"1", "strict"), (b" 1", "lcb"), (b"1.0", "lcb"), (b"1.0000001", "tolerant"), (b"2", None)):
        expected, got = b"1\n" * 200_000, (line + b"\n") * 200_000
        strictest, most = most_memory(functools.partial(output_rule, expected, got))
        assert strictest == rule
        assert most < 3 * len(got), "an object for each line takes forty bytes a line"


def test_words_are_the_same_wherever_the_text_is_cut() -> None:
    numbers = b" ".join(b"%d" % number for number in range(20_000))
    assert output_rule(numbers, numbers.replace(b" ", b"  ")) == "lcb"
    assert output_rule(numbers, numbers.replace(b" ", b"\n \t")) == "tolerant"
    assert output_rule(numbers, numbers.replace(b" ", b"  ") + b" 1") is None


def test_a_value_of_empty_lists_is_not_read_where_fewer_are_expected() -> None:
    got = b"[" + b"[]," * 1_000_000 + b"[]]"
    expected = b"[" + b" " * 300_000 + b"1]"
    strictest, most = most_memory(lambda: value_rule(expected, got, exact=True))
    assert (strictest, most < 3 * len(got)) == (None, True), "its lists would take twenty times its bytes"
    escaped = rb'["\u005b\u005b,", []]'
    assert value_rule(escaped, b'["[[,", []]', exact=True) == "strict"


def test_a_value_is_read_once_for_all_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[bytes] = []

    def loads(text: bytes) -> object:
        reads.append(text)
        return json.JSONDecoder().decode(text.decode())

    monkeypatch.setattr("gspo_lab.tasks.benchmarks.output_comparison.json.loads", loads)
    assert value_rule(b"[1]", b"[2]", exact=True) is None
    assert reads == [b"[1]", b"[2]"]
