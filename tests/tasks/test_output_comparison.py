import functools
import json
import math
import tracemalloc
from collections.abc import Callable

import pytest

from gspo_lab.tasks.benchmarks.output_comparison import ComparisonRule, output_rule, value_rule

OUTPUTS: dict[
    ComparisonRule | None, list[tuple[bytes, bytes]]
] = {  # by the strictest rule: expected, got
    "strict": [(b"YES\n", b"YES\n"), (b"YES\n", b"YES"), (b"", b"")],
    "lcb": [
        (b"YES", b"  YES \n\n"),
        (b"1\n2\n", b" 1\n 2 \n"),
        (b"3", b"3.0"),
        (b"3", b"3e0"),
        (b"1 2", b"1  2"),
        (b"1e400", b"10e399"),
        (b"1\r\n2\r\n", b"1\n2\n"),
    ],
    "tolerant": [
        (b"a b", b"a  b"),
        (b"YES", b"Yes"),
        (b"1\n2", b"1 2"),
        (b"1\n\n2", b"1\n2"),
        (b"1 a", b"1.0 a"),
        (b"0.333333333", b"0.333333334"),
    ],
    None: [
        (b"0.3333", b"0.3334"),
        (b"YES", b"NO"),
        (b"1", b""),
        (b"1", b"1\n1"),
        (b"10", b"1_0"),
        (b"1", b"1\x00"),
        *((b"10", text.encode()) for text in ("１０", "١٠", "𝟏𝟎")),
        *((b"1", got) for got in (b"\xff1", b"NaN", b"Infinity", b"1e999999999", b"0x1")),
    ],
}


@pytest.mark.parametrize("rule", OUTPUTS)
def test_outputs(rule: ComparisonRule | None) -> None:
    for expected, got in OUTPUTS[rule]:
        assert output_rule(expected, got) == rule, (expected, got)


VALUES: dict[
    ComparisonRule | None, list[tuple[object, object]]
] = {  # by the strictest rule: expected, returned
    "strict": [(3, 3), (True, True), ([1, [2, "x"]], [1, [2, "x"]]), (None, None)],
    "lcb": [(3, 3.0), ({"a": 1}, {"a": 1.0})],
    "tolerant": [(1, True), (True, 1), ("ab", "AB"), (0.1, 0.1 + 1e-9)],
    None: [
        ([1, 2], [2, 1]),
        ([1, 2], [1]),
        ({"a": 1}, {"a": 1, "b": 2}),
        ("1", 1),
        (None, 0),
        (0.1, 0.2),
        (1, math.nan),
        (1, math.inf),
        (10**400, 10**400 + 1),
    ],
}


@pytest.mark.parametrize("rule", VALUES)
def test_values(rule: ComparisonRule | None) -> None:
    for expected, got in VALUES[rule]:
        assert (
            value_rule(json.dumps(expected).encode(), json.dumps(got).encode(), exact=True) == rule
        ), (expected, got)


def test_a_value_that_json_cannot_say_exactly_is_equal_to_none_but_by_the_tolerant_rule() -> None:
    assert value_rule(b"[[1, 2]]", b"[[1, 2]]", exact=False) == "tolerant"


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
    lists = b"[" + b"[1]," * (len(got) // 4) + b"1]"
    for compare in (
        lambda: output_rule(b"1", got + b"2"),
        lambda: value_rule(b"[1]", lists, exact=True),
    ):
        rule, most = most_memory(compare)
        assert (rule, most < 5 * len(got)) == (
            None,
            True,
        ), "its numbers alone would take fifty times that"


def most_memory(compare: Callable[[], ComparisonRule | None]) -> tuple[ComparisonRule | None, int]:
    tracemalloc.start()
    try:
        return compare(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_many_equal_lines_are_compared_one_by_one() -> None:
    """The comparison by each rule needs no object for each line.

    Equal pairs of lines are read as numbers once.
    """
    for line, rule in (
        (b"1", "strict"),
        (b" 1", "lcb"),
        (b"1.0", "lcb"),
        (b"1.0000001", "tolerant"),
        (b"2", None),
    ):
        expected = b"1\n" * 200_000
        got = (line + b"\n") * 200_000
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
    assert (strictest, most < 3 * len(got)) == (
        None,
        True,
    ), "its lists would take twenty times its bytes"
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
