"""How the report writes numbers and text: filters of its templates, so that a number looks the same
everywhere.

What was not measured is `NOT_MEASURED`: no "nan" and no "None" can reach a page.
"""

import functools
import html
import json
import math
import re
from collections.abc import Iterable
from typing import Any

from markupsafe import Markup

from gspo_lab.common.plain_data import OptionalFloat
from gspo_lab.common.text import (
    UNSEEN,
    capital,
    counted,
    difference,
    level,
    listed,
    setting_name,
    tenth_percent,
    visible,
)
from gspo_lab.common.text import between as interval_of
from gspo_lab.common.text import percent as whole_percent
from gspo_lab.common.text import signed as difference_of

NOT_MEASURED = "not measured"
NOT_RECORDED = "not recorded"
"""Stands for what an engine does not record."""
NONE = "–"
"""Stands in a table where there is nothing to measure."""


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN or infinite."""
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def format_number(value: Any, digits: int = 3) -> str:
    """A number with `digits` significant digits; what was not measured says so."""
    if is_missing(value):
        return NOT_MEASURED
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    value = float(value)
    if value == 0:
        return "0"
    if abs(value) < 1e-3 or abs(value) >= 1e6:
        return f"{value:.{digits - 1}e}".replace("e-0", "e-").replace("e+0", "e+").replace("-", "−")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}".replace("-", "−")


def percent(value: Any, digits: int = 3) -> str:
    """A share in per cent, with `digits` significant digits."""
    if is_missing(value):
        return NOT_MEASURED
    return f"{format_number(100 * value, digits)} %"


def signed(value: OptionalFloat, low: OptionalFloat = None, high: OptionalFloat = None) -> str:
    """A difference with the decimals that its interval asks for."""
    if value is None or is_missing(value):
        return NOT_MEASURED
    width = None if low is None or high is None else high - low
    return difference_of(float(value), width)


def between(
    low: OptionalFloat, high: OptionalFloat, reason: str | None = None, margin: OptionalFloat = None
) -> str:
    """An interval of differences beside its margin; without one the reason."""
    if low is None or high is None:
        return reason or NOT_MEASURED
    return interval_of(low, high, margin)


def limits(ends: Iterable[float] | None, reason: str | None = None) -> str:
    """An interval of numbers that are no differences; without one the reason."""
    if ends is None:
        return reason or NOT_MEASURED
    low, high = ends
    return f"{format_number(low)} to {format_number(high)}"


def setting(value: Any, absent: str = "unset") -> str:
    """A setting or a recorded fact in a table's cell."""
    if value is None:
        return absent
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def blank(value: Any) -> str:
    """A value that stands for nothing where it is None: a step that was not reached."""
    return "" if value is None else str(value)


def is_numeric(cell: Any) -> bool:
    """Whether a cell's text is a number, or says that there is none."""
    text = str(cell)
    if text in ("", NONE, NOT_MEASURED, NOT_RECORDED, "no clip"):
        return True
    return (
        re.fullmatch(r"[+−±-]?[\d.,]+(e[+−]?\d+)?([ \u00a0]([a-zA-Z%]+|of \d+))?", text) is not None
    )


LONG = 200
"""Texts of so many characters or more come once."""
_UNIT = re.compile(r"(?<=\d) (?=%|(?:s|min|h|GiB|M|nats)\b)")


def html_text(value: Any) -> Markup:
    """A value as inert HTML text, in which no line breaks between a number and its unit."""
    if isinstance(value, Markup):
        return value
    text = written(value)
    return _inert(text) if len(text) < LONG else _inert.__wrapped__(text)


@functools.lru_cache(maxsize=2**14)  # names and numbers come again in every table
def _inert(text: str) -> Markup:
    return Markup(_UNIT.sub("\u00a0", html.escape(visible(text))))


def markdown_text(value: Any) -> Markup:
    """A value as inert text of a Markdown line."""
    return value if isinstance(value, Markup) else Markup(plain(written(value)))


def written(value: Any) -> str:
    """A value as text: numbers formatted, what is missing as `NOT_MEASURED`."""
    if isinstance(value, float) or value is None:
        return format_number(value)
    return str(value)


def verbatim(value: str) -> Markup:
    """A text as inert HTML, with each of its spaces: for code."""
    return Markup(html.escape(visible(value)))


def marked(value: str) -> Markup:
    """A text as inert HTML in which what cannot be seen stands as a mark that no text can
    imitate.
    """
    pieces = []
    end = 0
    for match in UNSEEN.finditer(value):
        pieces.append(html.escape(value[end : match.start()]))
        pieces.append(f'<i class="unseen">U+{ord(match.group()):04X}</i>')
        end = match.end()
    pieces.append(html.escape(value[end:]))
    return Markup("".join(pieces))


def unbroken(value: str) -> Markup:
    """A text as inert HTML that no line breaks at a hyphen of a word, such as an arm's name."""
    pieces = []
    for place, piece in enumerate(re.split(r"(\S*\w-\w\S*)", value)):
        text = html_text(piece)
        pieces.append(f'<span class="unbroken">{text}</span>' if place % 2 else str(text))
    return Markup("".join(pieces))


def slug(value: str) -> str:
    """A text as part of an id or a file name."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", value).strip("-")


_SYNTAX = re.compile(r"[\\`*\[\]|~]|(?<!\w)_|_(?!\w)")
_REFERENCE = re.compile(r"[@#!$%~^]\w|:(//|[\w+-]+:)|\bGH-\d|\bwww\.|\b[0-9a-f]{7,}\b")
"""A mention, an issue, a merge request, a snippet, a label, an emoji's name, an address, a commit's
digest.
"""
_LINE_START = re.compile(r"^(\d+)(?=[.)](\s|$))|^(?=[#>=]|[+-](\s|$|-))")


def plain(value: Any) -> str:
    """A text of a Markdown line, inert as HTML too: nothing that a forge makes into markup, a link,
    a mention or an image. A word that a forge would link becomes code, which can be copied."""
    return _LINE_START.sub(r"\1\\", markdown_cell(value))


def markdown_cell(value: Any, pipe: str = "|") -> str:
    """A text within a Markdown line or a table's cell, where no block can begin; `pipe` is how
    code writes a `|` there."""
    words = " ".join(visible(value).split("\n")).strip().split(" ")
    return " ".join(_markdown_word(word, pipe) for word in words)


def _markdown_word(word: str, pipe: str) -> str:
    if not _REFERENCE.search(word):
        return _SYNTAX.sub(r"\\\g<0>", word.replace("&", "&amp;").replace("<", "&lt;"))
    code = word.lstrip("(")
    ending = ".,;"
    if code[0] != ":":  # ":tada:" is whole
        ending += ":"
    if code != word:
        ending += ")"
    code = code.rstrip(ending)
    opening, _, closing = word.partition(code)
    fence = "`" * (1 + max(map(len, re.findall("`+", code)), default=0))
    padding = " " if "`" in code else ""
    quoted = f"{fence}{padding}{code}{padding}{fence}".replace("|", pipe)
    return f"{opening}{quoted}{closing}"


HEAD = 2_400
TAIL = 1_200
"""Characters of a longer text that are shown: its beginning and its end, where answers use to
stand.
"""
SHORT = 200
"""The same of what was extracted, of reasons and references."""


def cut_text(text: str) -> tuple[str, str, str]:
    """A text's beginning, what is said of the characters that are left out, and its end."""
    if len(text) <= HEAD + TAIL:
        return text, "", ""
    omitted = len(text) - HEAD - TAIL
    gap = f" … {omitted:,} of {len(text):,} characters left out … "
    return text[:HEAD], gap, text[-TAIL:]


def short_text(text: Any) -> str:
    """A text of a few words, or its beginning with its length."""
    written = str(text)
    if len(written) <= SHORT:
        return written
    return f"{written[:SHORT]} … ({len(written):,} characters)"


def turns_text(turns_json: str) -> str:
    """What the model wrote by turns, each with its reward where it has one: the text has the
    replies among them.
    """
    texts = []
    for turn in json.loads(turns_json):
        reward = f" ({turn['reward']:g})" if "reward" in turn else ""
        texts.append(f"{turn['text']}{reward}")
    return " · ".join(texts)


def fenced(lines: Iterable[str]) -> Markup:
    """Lines as a block of code, in a fence that none of them can close, inert as HTML too."""
    code = "\n".join(visible(line).replace("<", "&lt;") for line in lines)
    fence = "`" * (1 + max(2, *map(len, re.findall("`+", code)), 2))
    return Markup(f"{fence}\n{code}\n{fence}")


FILTERS = {
    "between": between,
    "blank": blank,
    "capital": capital,
    "counted": counted,
    "difference": difference,
    "general": "{:g}".format,
    "level": level,
    "listed": listed,
    "number": format_number,
    "percent": percent,
    "whole_percent": whole_percent,
    "tenth_percent": tenth_percent,
    "setting": setting,
    "setting_name": setting_name,
    "signed": signed,
    "limits": limits,
    "marked": marked,
    "verbatim": verbatim,
    "unbroken": unbroken,
    "slug": slug,
    "fenced": fenced,
    "cut_text": cut_text,
    "short_text": short_text,
    "turns": turns_text,
}
"""The filters of every template."""
