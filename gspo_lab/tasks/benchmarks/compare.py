"""Whether a program's output is the expected one: three rules, of which each takes all that the one before it takes.

`strict`: the same bytes but for newlines at the end; a function's value of the same types throughout.
`lcb`: LiveCodeBench's own rule (lcb_runner/evaluation/testing_util.py), less what is no number in ASCII. Output is
stripped, split into lines, each stripped; as many lines; each the same text, or the same decimal numbers in order. A
function's value is equal as Python sees it, but a bool is no number.
`tolerant`: blanks and line breaks of any kind, any case, numbers within 1e-6 (absolute or relative), bools as numbers.
"""

import json
import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

Rule = Literal["strict", "lcb", "tolerant"]
RULES: tuple[Rule, ...] = ("strict", "lcb", "tolerant")

TOLERANCE = 1e-6

VALUE_BYTES = 1 << 20
"""JSON this much longer than 64 times the expected one states another value. Read, it would take ten times its size.

Likewise of an output no more lines and words are looked at than were expected, and one more.
"""

_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")


def same_output(rule: Rule, expected: bytes, got: bytes) -> bool:
    """Whether the bytes on stdout are the expected ones by `rule`."""
    if rule == "strict":
        return expected.rstrip(b"\n") == got.rstrip(b"\n")
    if rule == "lcb":
        wanted = expected.strip().split(b"\n")
        lines = got.strip().split(b"\n", len(wanted))
        return len(wanted) == len(lines) and all(map(_same_line, wanted, lines))
    words = expected.split()
    others = got.split(None, len(words))
    return len(words) == len(others) and all(map(_close_word, words, others))


def same_value(rule: Rule, expected: bytes, got: bytes | None, exact: bool) -> bool:
    """Whether the JSON text `got` of what a function returned states the expected value by `rule`.

    `exact` False: it returned something that JSON can only say roughly (a tuple within a list); None: nothing.
    """
    if got is None or len(got) > VALUE_BYTES + 64 * len(expected) or (rule != "tolerant" and not exact):
        return False
    if expected.strip() == got.strip():  # also whole numbers longer than Python would read
        return True
    try:
        return _same(rule, json.loads(expected), json.loads(got))
    except (ValueError, RecursionError):
        return False


def _same_line(expected: bytes, got: bytes) -> bool:
    expected, got = expected.strip(), got.strip()
    if expected == got:
        return True
    wanted = expected.split()
    words = got.split(None, len(wanted))
    return len(wanted) == len(words) and all(map(_same_number, wanted, words))


def _same_number(expected: bytes, got: bytes) -> bool:
    wanted = _number(expected)
    return wanted is not None and wanted == _number(got)


def _number(word: bytes) -> Decimal | None:
    # In ASCII, without underscores, NaN and infinity: Decimal itself would read digits of any script.
    if not _NUMBER.fullmatch(word):
        return None
    try:
        return Decimal(word.decode("ascii"))
    except InvalidOperation:
        return None


def _close_word(expected: bytes, got: bytes) -> bool:
    if expected.lower() == got.lower():
        return True
    wanted, number = _number(expected), _number(got)
    if wanted is None or number is None:
        return False
    return wanted == number or _close(float(wanted), float(number))


def _close(expected: float, got: float) -> bool:
    return math.isclose(expected, got, rel_tol=TOLERANCE, abs_tol=TOLERANCE) and math.isfinite(expected - got)


def _same(rule: Rule, expected: Any, got: Any) -> bool:
    if isinstance(expected, list):
        return (
            isinstance(got, list)
            and len(got) == len(expected)
            and all(_same(rule, *two) for two in zip(expected, got, strict=True))
        )
    if isinstance(expected, dict):
        return (
            isinstance(got, dict)
            and got.keys() == expected.keys()
            and all(_same(rule, value, got[key]) for key, value in expected.items())
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
