"""Text into HTML and Markdown.

Whatever comes from data is escaped here, and nowhere else is markup made from it.
"""

import html
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from gspo_lab.common.text import UNSEEN, visible
from gspo_lab.common.text import between as interval_of
from gspo_lab.common.text import signed as difference_of

NOT_MEASURED = "not measured"
NONE = "–"
"""Stands in a table where there is nothing to measure."""

_VOID = {"meta", "br", "hr", "img"}


class Html(str):
    """Markup that is finished; any other text is escaped when it becomes part of a page."""

    __slots__ = ()


_UNIT = re.compile(r"(?<=\d) (?=%|(?:s|min|h|GiB|M|nats)\b)")


def text(value: Any) -> Html:
    """`value` as inert HTML text, in which no line breaks between a number and its unit."""
    return (
        value if isinstance(value, Html) else Html(_UNIT.sub("\u00a0", html.escape(visible(value))))
    )


def marked(value: str) -> Html:
    """`value` as inert HTML text in which what cannot be seen stands as a mark that no text can
    imitate.
    """
    parts: list[Html] = []
    end = 0
    for match in UNSEEN.finditer(value):
        parts += [
            Html(html.escape(value[end : match.start()])),
            h("i", f"U+{ord(match.group()):04X}", class_="unseen"),
        ]
        end = match.end()
    return join([*parts, Html(html.escape(value[end:]))])


def unbroken(value: str) -> Html:
    """`value` as inert HTML text that no line breaks at a hyphen of a word, such as an arm's
    name.
    """
    parts = re.split(r"(\S*\w-\w\S*)", value)
    return join(
        h("span", part, class_="unbroken") if place % 2 else part
        for place, part in enumerate(parts)
    )


def slug(value: str) -> str:
    """`value` as part of an id or a file name."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", value).strip("-")


def h(tag: str, *children: Any, **attributes: Any) -> Html:
    """One element.

    `class_` stands for `class`, `_` for `-`; None and False leave an attribute out, True is bare.
    """
    parts = [tag]
    for key, value in attributes.items():
        name = key.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(name)
        elif value is not None and value is not False:
            parts.append(f'{name}="{html.escape(visible(value))}"')
    opening = f"<{' '.join(parts)}>"
    return Html(opening if tag in _VOID else f"{opening}{join(children)}</{tag}>")


def join(parts: Iterable[Any], between: str = "") -> Html:
    """The parts, each escaped unless it is markup already, one after the other."""
    return Html(between.join(text(part) for part in parts if part is not None))


def table(
    head: Sequence[Any],
    rows: Iterable[Sequence[Any]],
    *,
    caption: str | None = None,
    class_: str | None = None,
) -> Html:
    """A table whose first column names its rows; columns of numbers are set to the right. Wider
    than a phone it scrolls in its own box, below its caption. Rows of class prose become blocks
    there, and each cell names its column.
    """
    listed = [tuple(row) for row in rows]
    numeric = [
        bool(listed) and all(map(_numeric, cells)) for cells in zip(*listed, strict=True)
    ] or [False] * len(head)
    look = ["n" if right else None for right in numeric]
    body = []
    for first, *rest in listed:
        named = zip(
            head[1:] if class_ == "prose" else [None] * len(rest), rest, look[1:], strict=True
        )
        cells = (h("td", cell, class_=align, data_head=name) for name, cell, align in named)
        body.append(h("tr", h("th", first, scope="row"), *cells))
    columns = (
        h("th", cell, scope="col", class_=align) if cell else h("td")
        for cell, align in zip(head, look, strict=True)
    )
    inner = h(
        "table", h("thead", h("tr", *columns)), h("tbody", *body), class_=class_, aria_label=caption
    )
    above = h("p", caption, class_="caption") if caption is not None else None
    return h("div", above, h("div", inner, class_="scroll", tabindex="0"), class_="table")


def format_number(value: Any, digits: int = 3) -> str:
    """A number with `digits` significant digits; what was not measured says so."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
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
    shown = format_number(None if value is None else 100 * value, digits)
    return shown if shown == NOT_MEASURED else f"{shown} %"


def signed(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """`common.text.signed`, with the decimals that its interval asks for; what was not measured says
    so.
    """  # noqa: E501
    width = None if low is None or high is None else high - low
    return (
        NOT_MEASURED
        if format_number(value) == NOT_MEASURED
        else difference_of(float(value or 0.0), width)
    )


def between(low: float | None, high: float | None, reason: str | None, margin: float | None) -> str:
    """An interval of differences beside its margin; without one the reason."""
    if low is None or high is None:
        return reason or NOT_MEASURED
    return interval_of(low, high, margin)


_SYNTAX = re.compile(r"[\\`*\[\]|~]|(?<!\w)_|_(?!\w)")
_REFERENCE = re.compile(r"[@#!$%~^]\w|:(//|[\w+-]+:)|\bGH-\d|\bwww\.|\b[0-9a-f]{7,}\b")
"""A mention, an issue, a merge request, a snippet, a label, an emoji's name, an address, a commit's
digest.
"""
_LINE_START = re.compile(r"^(\d*)([#>+=.)-])")


def plain(value: Any) -> str:
    """`value` as text of a Markdown line, inert as HTML too: nothing that a forge makes into
    markup, a link, a mention or an image. A word that a forge would link becomes code, so that it
    can be copied as it is."""
    return _LINE_START.sub(r"\1\\\2", _inline(value))


def _inline(value: Any, pipe: str = "|") -> str:
    """`plain` within a line or a table's cell, where no block can begin; `pipe` is how code writes
    a `|` there. Of markup the text alone."""
    if isinstance(value, Html):
        value = html.unescape(re.sub("<[^>]*>", "", value))
    words = " ".join(visible(value).split("\n")).strip().split(" ")
    for place, word in enumerate(words):
        if _REFERENCE.search(word):
            code = word.lstrip("(")
            code = code.rstrip(
                ".,;" + ":" * (code[0] != ":") + ")" * (code != word)
            )  # ":tada:" is whole
            before, _, after = word.partition(code)
            fence = "`" * (1 + max(map(len, re.findall("`+", code)), default=0))
            code = (f"{fence} {code} {fence}" if "`" in code else f"`{code}`").replace("|", pipe)
            words[place] = f"{before}{code}{after}"
        else:
            words[place] = _SYNTAX.sub(r"\\\g<0>", word.replace("&", "&amp;").replace("<", "&lt;"))
    return " ".join(words)


def fenced(lines: Iterable[str]) -> str:
    """Lines as a block of code, in a fence that none of them can close, inert as HTML too."""
    code = "\n".join(visible(line).replace("<", "&lt;") for line in lines)
    fence = "`" * (1 + max(2, *map(len, re.findall("`+", code)), 2))
    return f"{fence}\n{code}\n{fence}"


def markdown_table(head: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    """A GitHub table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(_inline(cell, r"\|") for cell in line) + " |" for line in lines
    )


def _numeric(cell: Any) -> bool:
    """Whether a cell holds a number, or says that there is none."""
    blank = str(cell) in ("", NONE, NOT_MEASURED, "no clip")
    return blank or bool(
        re.fullmatch(r"[+−±-]?[\d.,]+(e[+−]?\d+)?( ([a-zA-Z%]+|of \d+))?", str(cell))
    )
