"""Whether a program's output is the expected one: three rules, of which each takes all that the one
before it takes.

`strict`: the same bytes but for newlines at the end; a function's value of the same types
throughout. `lcb`: LiveCodeBench's own rule (lcb_runner/evaluation/testing_util.py), for numbers in
ASCII alone. Output is stripped, split into lines, each stripped; as many lines; each the same text,
or the same decimal numbers in order. A function's value is equal as Python sees it, but a bool
never equals a number. `tolerant`: blanks and line breaks of any kind, any case, numbers within 1e-6
(absolute or relative), bools as numbers.
"""

import io
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

ComparisonRule = Literal["strict", "lcb", "tolerant"]
RULES: tuple[ComparisonRule, ...] = ("strict", "lcb", "tolerant")

TOLERANCE = 1e-6

VALUE_BYTES = 1 << 20
"""JSON this much longer than 64 times the expected one states another value."""
STRUCTURE = (b"[", b"{", b",")
"""What JSON writes as itself, or behind a backslash. A text with more of these than the expected
one states another value, and to read it could take thirty times its size."""
REMEMBERED = 1000

_MANY_WORDS = re.compile(rb"\S.{,8192}\S*", re.DOTALL)
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")


def output_rule(expected: bytes, got: bytes) -> ComparisonRule | None:
    """The strictest rule by which the bytes on stdout are the expected ones; each later one takes
    them too.
    """
    if expected.rstrip(b"\n") == got.rstrip(b"\n"):
        return "strict"
    if _all_alike(_same_line, _lines(expected), _lines(got)):
        return "lcb"
    return "tolerant" if _all_alike(_close_word, _words(expected), _words(got)) else None


def value_rule(expected: bytes, got: bytes | None, exact: bool) -> ComparisonRule | None:
    """The strictest rule by which the JSON text `got` of what a function returned states the
    expected value.

    `exact` False: it returned something that JSON can only say roughly (a tuple within a list);
    None: nothing.
    """
    if got is None or len(got) > VALUE_BYTES + 64 * len(expected):
        return None
    rules = RULES if exact else RULES[-1:]
    if expected.strip() == got.strip():  # also whole numbers longer than Python would read
        return rules[0]
    if any(got.count(mark) > expected.count(mark) + expected.count(b"\\") for mark in STRUCTURE):
        return None
    try:
        reference = json.loads(expected)
        value = json.loads(got)
        return next((rule for rule in rules if _equal(rule, reference, value)), None)
    except (ValueError, RecursionError):
        return None


def _lines(text: bytes) -> Iterator[bytes]:
    return map(bytes.strip, io.BytesIO(text.strip()))


def _words(text: bytes) -> Iterator[bytes]:
    return itertools.chain.from_iterable(piece[0].split() for piece in _MANY_WORDS.finditer(text))


def _all_alike(
    alike: Callable[[bytes, bytes], bool], expected: Iterator[bytes], got: Iterator[bytes]
) -> bool:
    """Whether there are as many parts and each is equal to its counterpart, or `alike`. One by one:
    all of them as objects would take fifty times the text's memory. Of the pairs that are alike
    some are remembered.
    """
    compared: set[tuple[bytes, bytes]] = set()
    for expected_line, printed_line in itertools.zip_longest(expected, got):
        if expected_line is None or printed_line is None:
            return False
        if expected_line == printed_line or (expected_line, printed_line) in compared:
            continue
        if not alike(expected_line, printed_line):
            return False
        if len(compared) < REMEMBERED:
            compared.add((expected_line, printed_line))
    return True


def _same_line(expected: bytes, got: bytes) -> bool:
    """Whether two lines that differ hold the same numbers in order, and nothing else."""
    return all(
        itertools.starmap(
            _same_number, itertools.zip_longest(_words(expected), _words(got), fillvalue=b"")
        )
    )


def _same_number(expected: bytes, got: bytes) -> bool:
    if expected == got:
        return bool(_NUMBER.fullmatch(expected))
    reference = _number(expected)
    return reference is not None and reference == _number(got)


def _number(word: bytes) -> Decimal | None:
    # In ASCII, without underscores, NaN and infinity: Decimal itself would read digits of any
    # script.
    if not _NUMBER.fullmatch(word):
        return None
    try:
        return Decimal(word.decode("ascii"))
    except InvalidOperation:
        return None


def _close_word(expected: bytes, got: bytes) -> bool:
    if expected.lower() == got.lower():
        return True
    reference = _number(expected)
    number = _number(got)
    if reference is None or number is None:
        return False
    return reference == number or _close(float(reference), float(number))


def _close(expected: float, got: float) -> bool:
    return math.isclose(expected, got, rel_tol=TOLERANCE, abs_tol=TOLERANCE) and math.isfinite(
        expected - got
    )


def _equal(rule: ComparisonRule, expected: Any, got: Any) -> bool:
    if isinstance(expected, list):
        return (
            isinstance(got, list)
            and len(got) == len(expected)
            and all(_equal(rule, *two) for two in zip(expected, got, strict=True))
        )
    if isinstance(expected, dict):
        return (
            isinstance(got, dict)
            and got.keys() == expected.keys()
            and all(_equal(rule, value, got[key]) for key, value in expected.items())
        )
    if rule == "tolerant":
        if isinstance(expected, str) and isinstance(got, str):
            return expected.split() == got.split() or expected.lower() == got.lower()
        if isinstance(expected, int | float) and isinstance(got, int | float):
            return expected == got or _close(_float(expected), _float(got))
        return bool(expected == got)
    if rule == "strict" or isinstance(expected, bool) or isinstance(got, bool):
        return type(expected) is type(got) and bool(expected == got)
    return bool(expected == got)


def _float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf
