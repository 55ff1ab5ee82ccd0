r"""AIME 2024 and 2025: parts I and II, 30 problems each, whose answers are whole numbers from 0 to
999.

The number is read, never computed: `5^2` and `\frac{50}{2}` are no answers. Sums and powers of
digits beside it are computed, to see that they are equal to it. The table in
tests/tasks/test_aime_grader.py shows each rule at work.
"""

import ast
import operator
import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction

from gspo_lab.common.errors import LabError
from gspo_lab.tasks.base import Defaults, Grade, Problem
from gspo_lab.tasks.benchmarks.datasets import AIME24, AIME25, DatasetSource, find_files
from gspo_lab.tasks.benchmarks.published_benchmark import (
    PROMPT_VERSION,
    Published,
    closing_brace,
    compared,
    prompt,
    read_items,
)

SHOWN = 60


class _Aime(Published):
    """The last complete box must state the gold number.

    `data`: a file or folder of the user's instead of the Hub.
    """

    grader = "aime-integer/4"
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
            gold = read_integer(item.gold)
            if gold is None:
                raise LabError(
                    f"{item.where}: the gold {item.gold!r:.40} is not a whole number from 0 to 999"
                )
            problems.append(Problem(f"{self.name}-{item.id}", prompt(item.problem), str(gold)))
        return tuple(problems)

    def judged(self, problem: Problem, stated: str) -> Grade:
        """Right is the gold number; see `read_integer`."""
        return compared(
            stated,
            read_integer(stated),
            int(problem.reference),
            "whole number from 0 to 999",
            SHOWN,
        )


class Aime24(_Aime):
    """The 30 problems of 2024."""

    name = "aime24"
    source = AIME24


class Aime25(_Aime):
    """The 30 problems of 2025."""

    name = "aime25"
    source = AIME25


LONGEST = 200
"""A box longer than this holds no number of three digits."""

_FONT = r"\\(?:text|textbf|textrm|textit|mathbf|mathrm|mathit|mathsf|boldsymbol|bm|mbox|boxed|fbox|underline|emph)\s*"  # noqa: E501
_WRAPPED = re.compile(_FONT + r"\{")
_COLOUR = re.compile(r"\\(?:text)?color\s*\{[a-zA-Z]+\}")
_SIZES = re.compile(
    r"\\(?:(?:displaystyle|textstyle|bf|rm|left|right|quad|qquad)(?![A-Za-z])|[!,;: ])"
)
_DEGREES = re.compile(r"(?:\^\{?\s*(?:\\circ|°)\s*\}?|°|\\degree|\\circ)$")
_STOP = re.compile(_FONT + r"\{\s*[.,;]\s*\}$")
_MODULO = re.compile(r"\\pmod\s*\{?\s*[0-9]+\s*\}?$")
_REMAINDER = re.compile(r"(?P<number>[0-9]+)\s*\\(?:b?mod)\s*\{?\s*(?P<modulus>[0-9]+)\s*\}?")
_TERM = re.compile(r"[A-Za-z0-9.+\-*/^_(){}|\\ ]+")
"""What may stand beside the number in a chain of equalities: a name, or how it came about."""
_GROUPED = re.compile(r"\+?[0-9]{1,3}(?:(?:,|\{,\})[0-9]{3})+(?:\.0*)?")
_WHOLE = re.compile(r"\+?0*(?P<digits>[0-9]{1,3})(?:\.0*)?")
_UNIT_WORDS = (
    "mm cm m km meters metres centimeters kilometers miles mile inches inch in feet foot ft yards"
    " units unit square cubic degrees degree radians seconds second minutes minute min hours hour"
    " days day weeks dollars cents points people ways students coins marbles integers pairs triples"
    " squares triangles"
)
_UNIT = r"(?:" + "|".join(_UNIT_WORDS.split()) + r")"
_UNITS = re.compile(
    rf"(?P<number>.*[0-9])\s*(?:(?P<font>{_FONT}\{{)|(?<=\s))\s*{_UNIT}(?:[ ~]+{_UNIT})*\.?\s*"
    r"(?(font)\}(?:\s*\^\{?[23]\}?)?|(?:\s*\^\{?[23]\}?)?)"
)
_MATH = (("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("{", "}"), ("**", "**"))
LAYERS = 4
"""Fonts and boxes within each other that are taken off."""
MOST_POWER = 20
OPERATIONS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_OTHER_FORMS = ("<super>", "<sub>", "<fraction>")


def read_integer(content: str) -> int | None:
    r"""The number that the content of a box states, or None where it states no whole number from 0
    to 999.

    All of these are 25: `025`, `25.`, `25.0`, `+25`, `25^\circ`, `25\text{ cm}`, `m+n = 25`,
    `\text{25}`, `２５`, `25 \pmod{1000}`, `\color{red}{25}`, `12+13 = 25`, `25 = 5^2`, `25 \bmod
    1000`. `25 = 24+2` states no number.
    """
    if len(content) > LONGEST:
        return None
    text = _plain(content)
    if text is None:
        return None
    before = None
    while text != before:
        before = text
        text = _peeled(text)
    if _GROUPED.fullmatch(text):
        text = text.replace("{,}", "").replace(",", "")
    whole = _WHOLE.fullmatch(text)
    return int(whole["digits"]) if whole else None


def _plain(content: str) -> str | None:
    """Full-width and bold digits, and the minus sign, as plain ones; None with raised, lowered or
    split digits.

    NFKC would make 252 of 25².
    """
    if content.isascii():
        return content
    content = content.replace("º", "°").replace("−", "-")
    if any(unicodedata.decomposition(character).startswith(_OTHER_FORMS) for character in content):
        return None
    return unicodedata.normalize("NFKC", content)


def _peeled(text: str) -> str:
    """One layer less around the number; the text itself where nothing is left to take off."""
    text = (
        _SIZES.sub(" ", _COLOUR.sub(" ", text))
        .replace("~", " ")
        .strip()
        .removeprefix(r"\$")
        .rstrip(".,;")
        .strip()
    )
    for opening, closing in _MATH:
        inner = text[len(opening) : len(text) - len(closing)]
        around = (
            text.startswith(opening)
            and text.endswith(closing)
            and len(text) >= len(opening + closing)
        )
        if around and opening not in inner and closing not in inner:
            return inner
    wrapped = _WRAPPED.match(text)
    if (
        wrapped
        and text.count("{") <= LAYERS
        and closing_brace(text, wrapped.end()) == len(text) - 1
    ):
        return text[wrapped.end() : -1]
    remainder = _REMAINDER.fullmatch(text)
    if remainder and int(remainder["number"]) < int(remainder["modulus"]):
        return remainder["number"]
    for ending in (_DEGREES, _MODULO, _STOP):
        shorter = ending.sub("", text)
        if shorter != text:
            return shorter
    units = _UNITS.fullmatch(text)
    if units:
        return units["number"]
    return _of_a_chain(text)


def _of_a_chain(text: str) -> str:
    """`m+n = 12+13 = 25` and `25 = 5^2` state one number, `x = 24 = 25` states two."""
    *terms, last = (part.strip() for part in text.split("="))
    numbers = {part for part in (*terms, last) if _WHOLE.fullmatch(part)}
    if not terms or len({part.lstrip("+0") for part in numbers}) > 1:
        return text
    if not numbers:  # what is last may have more around it: units, degrees
        return (
            last
            if all(map(_TERM.fullmatch, terms)) and re.search("[A-Za-z]", "".join(terms))
            else text
        )
    number = min(numbers)
    beside = {*terms, last} - numbers
    equal = all(
        _TERM.fullmatch(term) and _value(term) in (None, Fraction(number.strip("+.")))
        for term in beside
    )
    return number if equal else text


def _value(term: str) -> Fraction | None:
    """What a term of digits, `+ - * / ^` and brackets comes to; None for a term with more in it, or
    a large power.
    """
    for written, meant in (("\\cdot", "*"), ("\\times", "*"), ("^", "**"), ("{", "("), ("}", ")")):
        term = term.replace(written, meant)
    try:
        return _computed(
            ast.parse(re.sub(r"(?<![0-9.])0+(?=[0-9])", "", term.strip()), mode="eval").body
        )
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _computed(node: ast.expr) -> Fraction:
    """Of a sum, a product or a small power of numbers; ValueError for anything else."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return Fraction(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_computed(node.operand)
    if not isinstance(node, ast.BinOp):
        raise ValueError
    left = _computed(node.left)
    right = _computed(node.right)
    if isinstance(node.op, ast.Pow):
        if not (right in range(MOST_POWER) and abs(left) < 10**6):
            raise ValueError
        return left ** int(right)
    operation = OPERATIONS.get(type(node.op))
    if operation is None:
        raise ValueError
    return operation(left, right)
