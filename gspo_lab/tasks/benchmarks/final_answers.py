r"""The final answer of a response: what it states last, and the number that this is.

AIME, GSM8K and MATH read answers by these rules alone; MATH compares what is no number with
math-verify. A number is read, never computed: `5^2` and `\frac{50}{2}` state none. The table in
tests/tasks/test_final_answers.py shows each rule at work.
"""

import ast
import itertools
import operator
import re
import unicodedata
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from gspo_lab.tasks.base import THINKING_MARKS

OPENINGS = ("\\boxed", "\\fbox")
MAX_NESTED_BOXES = 8
"""Boxes around a box that are looked at."""
MAX_CHARACTERS = 200
"""A longer text states no number."""
MAX_NESTED_FONTS = 4
"""Font commands within each other that are taken off."""
MAX_POWER = 20

_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
_SPACE = re.compile(r"\s*")
_THINKING_TAG = re.compile(
    r"[<◁][/|]?(?:[a-z:_]*(?:think|thought|reasoning)|START_THINK|END_THINK|channel\|>[af])"
)
"""A text without it and without `THINK]` holds none of the marks around thinking."""
_PLACEHOLDER = re.compile(
    r"(?:\s|\.|…|_|\?|\$|[{}]|\\[lc]?dots|\\cdots|\\_|\\[,;:! ]|\\q?quad|\\square|\\Box"
    r"|(?:\\text\{)?\W*(?:(?:your|the|final)\s+)*(?:answer|number)\W*)*",
    re.IGNORECASE,
)
"""What a box holds that stands for an answer: nothing, dots, `your answer`."""


class NoAnswer(ValueError):
    """A response that holds no answer to compare; the message says why, as the grade's reason."""


class Unclosed(NoAnswer):
    """The last box is opened and never closed: whatever came before it was not the last word."""

    def __init__(self) -> None:
        super().__init__("the last box is not closed")


def without_thinking(response: str) -> str:
    """The response behind its thinking; NoAnswer where the thinking does not end."""
    angled = ("<" in response or "◁" in response) and _THINKING_TAG.search(response)
    if not angled and "THINK]" not in response:
        return response
    for opening, closing in THINKING_MARKS:
        response = response.rpartition(closing)[2]
        if opening in response:
            raise NoAnswer("the thinking does not end")
    return response


def last_box(text: str) -> str:
    r"""The content of the last complete box, the outermost where boxes are nested.

    An empty `\boxed{}` or `\boxed{...}` repeats the instruction and is passed over. NoAnswer
    without a box, Unclosed where the last one is not closed.
    """
    openings = _openings(text)
    for start in openings:
        stop = closing_brace(text, start)
        if stop is None:
            raise Unclosed
        if stop - start > MAX_CHARACTERS or not _PLACEHOLDER.fullmatch(text, start, stop):
            break
    else:
        raise NoAnswer("no complete box")
    for outer in itertools.islice(openings, MAX_NESTED_BOXES):
        outer_stop = closing_brace(text, outer)
        if outer_stop is None or outer_stop <= stop:
            break
        start = outer
        stop = outer_stop
    return text[start:stop]


def _openings(text: str) -> Iterator[int]:
    """Where the content of each box begins, from the last box to the first.

    Unclosed where the text ends before the content. A word without a brace is prose.
    """
    places = {word: text.rfind(word) for word in OPENINGS}
    while max(places.values()) >= 0:
        word = max(places, key=places.__getitem__)
        start = places[word]
        places[word] = text.rfind(word, 0, start)
        blank = _SPACE.match(text, start + len(word))
        assert blank is not None
        if blank.end() == len(text):
            raise Unclosed
        if text[blank.end()] == "{":
            yield blank.end() + 1


def closing_brace(text: str, start: int) -> int | None:
    """Where the brace stands that closes the one before `start`; None: nowhere.

    Braces behind a backslash do not count.
    """
    depth = 1
    for brace in _BRACES.finditer(text, start):
        if brace.group() == "{":
            depth += 1
        elif brace.group() == "}":
            depth -= 1
            if depth == 0:
                return brace.start()
    return None


class Number(NamedTuple):
    """The number that an answer states."""

    value: Fraction | int
    percent: bool = False
    """Whether a per cent sign stands behind it, which the value leaves out."""
    scaled: bool = False
    """Whether a word multiplies it, as in `70 thousand`."""

    def __str__(self) -> str:
        return str(Decimal(self.value.numerator) / self.value.denominator)


_FONT_WORDS = (
    "text textbf textit textrm texttt textsf textsc textsl textup textnormal mathbf mathrm mathit"
    " mathsf mathtt mathnormal boldsymbol bm pmb mbox hbox fbox boxed underline uline emph"
    " operatorname ensuremath bf rm it tt sf em"
)
_FONT = r"\\(?:" + "|".join(_FONT_WORDS.split()) + r")(?![A-Za-z])\s*"
_FONT_GROUP = re.compile(_FONT + r"\{([^{}]*)\}")
_FONT_ALONE = re.compile(_FONT)
_COLOUR = re.compile(
    r"\\(?:text|f)?color(?:box)?\s*\{[a-zA-Z]+\}|\\(?:display|text)style(?![A-Za-z])"
    r"|\\(?:therefore|checkmark|blacksquare|qed)(?![A-Za-z])"
    r"|\\(?:[hv]space\*?|[hv]?phantom|begin|end)\{[^{}]*\}|&(?==)"
)
_SPACING = re.compile(r"\\(?:(?:left|right|q?quad|large|Large|huge)(?![A-Za-z])|[!,;:> ])|~")
_LATEX_CHARACTERS = frozenset("\\^~")
"""A text without any of these holds no LaTeX command, no power and no hard space."""
_POWER = re.compile(r"\^\{\s*([23]|-[1-4])\s*\}")
_CURRENCY = re.compile(
    r"\\?\$|\\?\#|[€£¥₹¢₩₽]|\\(?:euro|pounds?|yen|text(?:euro|sterling|dollar))(?![A-Za-z])"
    r"|(?:(?:US|C|A)\s*(?=\$)|\b(?:USD|EUR|GBP|INR|CHF|CNY|JPY|AUD|CAD|Rs)\b\.?)(?=\s*[$0-9])"
)
_RAISED = re.compile(
    r"(?:\^?\{?\s*(?:\\circ|\\degree|°)(?![ABD-EG-Za-z])|\^\{?\s*(?:st|nd|rd|th)(?![a-z]))\s*\}?"
)
"""Degrees, and the ending of `25^{th}`."""
_MODULO = re.compile(r"(?:.*(?:\\equiv|≡))?(.*?)(?:\\pmod\s*\{?|\(\s*\\?mod)\s*[0-9]+\s*[})]?$")
_REMAINDER = re.compile(r"(.*?)([0-9]+)\s*\\?b?mod\s*\{?\s*([0-9]+)\s*\}?")
_THOUSANDS = re.compile(
    r"(?<![0-9.,])[0-9]{1,3}(?:(?:,[0-9]{3})+|(?:[ '’][0-9]{3})+)(?![0-9]|,[0-9])"
)
_ORDINARY = re.compile(
    r" *(?:[A-Za-z] *= *)?(?:\\?\$ *)?"
    r"((?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?)"
    r"([A-Za-z ]*)(?:\\text\{([A-Za-z ]*)\})?\.? *"
)
"""What most boxes hold: a number, a name or currency before it, words behind it."""
_NUMBER = re.compile(r"(?P<number>[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?P<unit>(?![0-9.,]).*)")
_UNIT = re.compile(
    r"(?:(?>[A-Za-zµΩ'’-]+)(?:\s*\^(?:[23]|-[1-4]))?|[\s./·%]|\\%|\\cdot|\([A-Za-z .'-]*\)"
    r"|\\[dt]?frac\{[A-Za-z ]+\}\{[A-Za-z ]+\}|(?![十百千万亿半多余几或非之])[\u4e00-\u9fff])*"
)
"""Words of a unit, among them Chinese ones that do not multiply."""
_WORD = re.compile(r"[A-Za-z]+")
_CHAIN = re.compile(
    r"=|\\(?:equiv|[Rr]ightarrow|Longrightarrow|longrightarrow|implies|to)(?![A-Za-z])|⇒|→|≡"
)
_LABEL = re.compile(r"[A-Za-z\u4e00-\u9fff ]+(?::| is )")
_TERM = re.compile(r"[A-Za-z0-9.+\-*/×÷·^_(){}|\\ ]+")
"""What may stand beside the number in a chain of equalities: a name, or how it came about."""
_COMMA = re.compile(r"\{,\}|\\!,|,\\!")
_DELIMITERS = ((r"\(", r"\)"), (r"\[", r"\]"), ("{", "}"), ("(", ")"))
_OPENING_CHARACTERS = frozenset(opening[0] for opening, _ in _DELIMITERS)
_RAISED_UNIT = re.compile(r"(?<=[A-Za-z])[²³](?![0-9])")
_RAISED_DIGIT = re.compile("[²³¹⁰-₎¼-¾⅐-⅟]")
"""Raised and lowered digits, from which NFKC would make other numbers: 252 of 25²."""
_SCALES = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 1000,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
_OTHER_WORDS = (
    "or and to not no wrong plus minus times more less than mod divided over remainder half"
    " i e x y z n"
)
_NO_UNITS = frozenset(_OTHER_WORDS.split())
"""Words behind a number that make another statement of it."""
_SHORT_UNITS = (
    "mm cm dm m km g kg mg s h hr hrs min l ml ft in yd mi lb lbs oz mph am pm st nd rd th"
)
_ATTACHED = frozenset(_SHORT_UNITS.split())
"""Units that may follow the digits at once."""
_PYTHON = str.maketrans({"^": "**", "{": "(", "}": ")", "÷": "/"})
OPERATIONS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def read_number(content: str) -> Number | None:
    r"""The number that the content of a box states; None where it states none, or two.

    All of these are 25: `025`, `25.`, `25.0`, `+25`, `25^\circ`, `25\text{ cm}^2`, `(25)`, `€25`,
    `m+n = 25`, `\mathbf 25`, `２５`, `25 \pmod{1000}`, `12+13 = 25`, `25 = 5^2`, `25 \bmod 1000`.
    `1025 \equiv 25 \pmod{1000}`. `25 = 24+2` states no number. `25 thousand` is 25,000.
    """
    if len(content) > MAX_CHARACTERS:
        return None
    if content.isdecimal() and content.isascii():
        return Number(int(content))
    ordinary = _ORDINARY.fullmatch(content)
    if ordinary is not None:
        digits, words, wrapped_words = ordinary.groups("")
        return _with_unit(digits.replace(",", ""), f"{words} {wrapped_words}")
    content = _RAISED_UNIT.sub("", content)
    if _RAISED_DIGIT.search(content):
        return None
    text = _COMMA.sub(",", plain_characters(content))
    if not _LATEX_CHARACTERS.isdisjoint(text):
        text = _without_fonts(text)
    text = _CURRENCY.sub("", text)
    if "\\" in text:
        text = _FONT_ALONE.sub("", text)
    text = _without_delimiters(text)
    text = _THOUSANDS.sub(lambda number: re.sub("[, '’]", "", number.group()), text)
    text = _RAISED.sub(" ", text)
    if "mod" in text:
        text = _without_modulus(_MODULO.sub(r"\1", text))
    return _number_of_chain(text)


def _without_fonts(text: str) -> str:
    """The text without LaTeX's commands for colours and spaces, and fonts around braces."""
    text = _COLOUR.sub(" ", text)
    text = _POWER.sub(r"^\1", _SPACING.sub(" ", text))
    for _ in range(MAX_NESTED_FONTS):
        text, changes = _FONT_GROUP.subn(_unwrap, text)
        if not changes:
            break
    return text


def _without_modulus(text: str) -> str:
    r"""The number before `\bmod 1000` where it is a remainder, else the text itself."""
    remainder = _REMAINDER.fullmatch(text)
    if remainder is None:
        return text
    beginning, number, modulus = remainder.groups()
    return beginning + number if int(number) < int(modulus) else text


def plain_characters(content: str) -> str:
    """Full-width and bold digits and the minus sign as plain ones; invisible characters go."""
    if content.isascii():
        return content
    content = content.replace("º", "°").replace("−", "-")
    visible = (character for character in content if unicodedata.category(character) != "Cf")
    return unicodedata.normalize("NFKC", "".join(visible))


def _unwrap(group: re.Match[str]) -> str:
    """The content of a font command: a word stays apart from the digits before it."""
    content = group[1]
    return f" {content} " if content[:1].isalpha() else content


def _without_delimiters(text: str) -> str:
    """The text without dots, commas, quotes, stars and pairs of delimiters around all of it."""
    while True:
        text = text.strip("\"'“”*`_ \n").rstrip(".,;?\\ ")
        if text[:1] not in _OPENING_CHARACTERS:
            return text
        for opening, closing in _DELIMITERS:
            inner = text[len(opening) : len(text) - len(closing)]
            around = text.startswith(opening) and text.endswith(closing)
            if around and inner and opening not in inner and closing not in inner:
                text = inner
                break
        else:
            return text


def _number_of_chain(text: str) -> Number | None:
    """The number of `m+n = 12+13 = 25` and `25 = 5^2`; `x = 24 = 25` states two, hence none."""
    label = _LABEL.match(text)
    if label is not None:
        text = text[label.end() :]
    terms = _CHAIN.split(text)
    numbers = [_number_with_unit(_without_delimiters(term)) for term in terms]
    present = [number for number in numbers if number is not None]
    if len({number.value for number in present}) != 1:
        return None
    for term, number in zip(terms, numbers, strict=True):
        if number is None and not _states_nothing_else(term, present[0].value):
            return None
    return present[-1]


def _states_nothing_else(term: str, value: Fraction | int) -> bool:
    """Whether a term of a chain is a name, or comes to `value`."""
    return bool(_TERM.fullmatch(term)) and _value(term) in (None, value)


def _number_with_unit(text: str) -> Number | None:
    """The number of `25`, `25 eggs`, `25 (eggs) / day`, `25 thousand`; None for anything else."""
    match = _NUMBER.fullmatch(text)
    if match is None or not _UNIT.fullmatch(match["unit"]):
        return None
    return _with_unit(match["number"].rstrip(".") or "0", match["unit"])


def _with_unit(digits: str, unit: str) -> Number | None:
    """The number of its digits and the words behind them; None where these are no unit."""
    value = int(digits) if digits.isdecimal() else Fraction(Decimal(digits))
    if not unit.strip():
        return Number(value)
    attached = _WORD.match(unit)
    if attached is not None:
        if attached.group() == "k":
            return Number(value * 1000, scaled=True)
        if attached.group() not in _ATTACHED:
            return None
    words = _WORD.findall(unit.lower())
    if not _NO_UNITS.isdisjoint(words):
        return None
    scaled = False
    for word in words:
        factor = _SCALES.get(word.removesuffix("s"))
        if factor is not None:
            value *= factor
            scaled = True
    return Number(value, percent="%" in unit, scaled=scaled)


def _value(term: str) -> Fraction | None:
    """What a term of digits, `+ - * / ^` and brackets comes to.

    None for a term with more in it, or a large power.
    """
    term = re.sub(r"\\cdot|\\times|×|·", "*", term).translate(_PYTHON)
    if re.search("[A-Za-z]", term):
        return None
    without_zeros = re.sub(r"(?<![0-9.])0+(?=[0-9])", "", term.strip())
    try:
        return _compute(ast.parse(without_zeros, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _compute(node: ast.expr) -> Fraction:
    """The value of a sum, a product or a small power of numbers; ValueError for anything else."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return Fraction(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_compute(node.operand)
    if not isinstance(node, ast.BinOp):
        raise ValueError
    operands = (_compute(node.left), _compute(node.right))
    if isinstance(node.op, ast.Pow):
        base, exponent = operands
        if not (exponent in range(MAX_POWER) and abs(base) < 10**6):
            raise ValueError
        return base ** int(exponent)
    operation = OPERATIONS.get(type(node.op))
    if operation is None:
        raise ValueError
    return operation(*operands)
