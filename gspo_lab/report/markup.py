"""Text into HTML and Markdown. Whatever comes from data is escaped here, and nowhere else is markup made from it."""

import html
import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

NOT_MEASURED = "not measured"

_VOID = {"meta", "br", "hr", "img"}
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
"""Controls, direction marks, separators of lines, spaces without width, tags, and halves of characters."""


class Html(str):
    """Markup that is finished; any other text is escaped when it becomes part of a page."""

    __slots__ = ()


def visible(value: Any) -> str:
    """Text in which control characters, direction marks and lone surrogates are spelt out, as `[U+202E]`."""
    return _UNSEEN.sub(lambda match: f"[U+{ord(match.group()):04X}]", str(value))


def text(value: Any) -> Html:
    """`value` as inert HTML text."""
    return value if isinstance(value, Html) else Html(html.escape(visible(value)))


def marked(value: str) -> Html:
    """`value` as inert HTML text in which what cannot be seen stands as a mark that no text can imitate."""
    parts: list[Html] = []
    end = 0
    for match in _UNSEEN.finditer(value):
        parts += [text(value[end : match.start()]), h("i", f"U+{ord(match.group()):04X}", class_="unseen")]
        end = match.end()
    return join([*parts, text(value[end:])])


def slug(value: str) -> str:
    """`value` as part of an id or a file name."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", value).strip("-")


def h(tag: str, *children: Any, **attributes: Any) -> Html:
    """One element. `class_` stands for `class`, `_` for `-`; None and False leave an attribute out, True is bare."""
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
    head: Sequence[Any], rows: Iterable[Sequence[Any]], *, caption: Any = None, class_: str | None = None
) -> Html:
    """A table whose first column names its rows. It may be wider than a phone: it scrolls inside its own box."""
    body = [
        h(
            "tr",
            h("th", row[0], scope="row"),
            *(h("td", cell, class_="n" if _numeric(cell) else None) for cell in row[1:]),
        )
        for row in rows
    ]
    inner = h(
        "table",
        h("caption", caption) if caption is not None else None,
        h("thead", h("tr", *(h("th", cell, scope="col") for cell in head))),
        h("tbody", *body),
        class_=class_,
    )
    return h("div", inner, class_="scroll", tabindex="0")


def number(value: Any, digits: int = 3) -> str:
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


def signed(value: Any) -> str:
    """A difference of scores, always with its sign: three decimals, more where they would all be zero."""
    if number(value) == NOT_MEASURED:
        return NOT_MEASURED
    shown = number(value, 2) if 0 < abs(value) < 5e-4 else f"{value:.3f}"
    return ("+" if value > 0 else "") + (shown.replace("-", "−") if value else "0")


def plain(value: Any) -> str:
    """`value` inside one cell of a Markdown table, inert as HTML too."""
    shown = visible(value).replace("&", "&amp;").replace("<", "&lt;")
    return shown.replace("\n", " ").replace("|", "\\|")


def markdown_table(head: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    """A GitHub table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(plain(cell) for cell in line) + " |" for line in lines)


def _numeric(cell: Any) -> bool:
    return bool(re.fullmatch(r"[+−-]?[\d.,]+(e[+−]?\d+)?( [a-z%]+)?", str(cell))) or cell == NOT_MEASURED


def setting(entry: Any, absent: str = "unset") -> str:
    """A setting or a fact in a table's cell."""
    if entry is None:
        return absent
    if isinstance(entry, bool):
        return "yes" if entry else "no"
    return f"{entry:g}" if isinstance(entry, float) else entry if isinstance(entry, str) else json.dumps(entry)
