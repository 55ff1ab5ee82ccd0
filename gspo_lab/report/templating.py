"""How the report writes: numbers and texts by the filters of its templates, and the templates
themselves, one set of names for the page and for the Markdown.

What was not measured is `NOT_MEASURED`: no "nan" and no "None" can reach a page.

`templates/NAME.j2` renders a view for both, `NAME.html.j2` and `NAME.md.j2` for one of them. What
sections are made of (`table`, `paragraph`, `fold`, ...) are the macros of html.j2 and markdown.j2.
What is stated of a verdict, an answer or a decision are the macros of text.j2, which every output
quotes: `statements`.
"""

import functools
import html
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jinja2 import (
    BytecodeCache,
    Environment,
    FileSystemLoader,
    StrictUndefined,
    Template,
    TemplateNotFound,
)
from jinja2.bccache import Bucket
from markupsafe import Markup

from gspo_lab.common.atomic_files import atomic_file
from gspo_lab.common.paths import cache_folder
from gspo_lab.common.plain_data import OptionalFloat, OptionalText
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
    low: OptionalFloat,
    high: OptionalFloat,
    reason: OptionalText = None,
    margin: OptionalFloat = None,
) -> str:
    """An interval of differences beside its margin; without one the reason."""
    if low is None or high is None:
        return reason or NOT_MEASURED
    return interval_of(low, high, margin)


def limits(ends: Iterable[float] | None, reason: OptionalText = None) -> str:
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
"""The most characters shown of an extracted answer, a reason or a reference."""


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

Output = Literal["html", "md", "text"]
LIBRARIES: dict[Output, str] = {"html": "html.j2", "md": "markdown.j2", "text": "text.j2"}
Column = str | tuple[str, str | int] | tuple[str, str | int, str]
"""A column of a table: its title, and where a row's value is not at the column's place, the path to
it ("1.final": of the row's second entry the field `final`) and the filter that formats it."""


@dataclass(frozen=True)
class Grid:
    """A table's cells as text. `head` has each column's title, and whether it holds numbers."""

    head: list[tuple[str, bool]]
    rows: list[list[Markup]]


def value_at(row: Any, path: str | int) -> Any:
    """What a dotted path leads to: keys of mappings, places of sequences, fields of others."""
    for name in str(path).split("."):
        if isinstance(row, Mapping):
            row = row[name]
        elif isinstance(row, list | tuple) and name.isdigit():
            row = row[int(name)]
        else:
            row = getattr(row, name)
    return row


def cells(rows: Iterable[Any], columns: Sequence[Column], *, text: Callable[[Any], Markup]) -> Grid:
    """A table of `rows`, formatted; `text` makes a cell inert."""
    getters = [_getter(column, place) for place, column in enumerate(columns)]
    texts = [[text(getter(row)) for getter in getters] for row in rows]
    titles = [column if isinstance(column, str) else column[0] for column in columns]
    head = []
    for place, title in enumerate(titles):
        head.append((title, bool(texts) and all(is_numeric(row[place]) for row in texts)))
    return Grid(head, texts)


def _getter(column: Column, place: int) -> Callable[[Any], Any]:
    """What reads a column's value of a row and formats it."""
    if isinstance(column, str):
        return lambda row: value_at(row, place)
    path = column[1]
    if len(column) == 2:
        return lambda row: value_at(row, path)
    write: Any = FILTERS[column[2]]
    return lambda row: write(value_at(row, path))


def _cell(value: Any) -> Markup:
    return value if isinstance(value, Markup) else Markup(markdown_cell(written(value), r"\|"))


class CompiledTemplates(BytecodeCache):
    """Compiled templates in the cache folder, so that a report need not compile them; without a
    folder that can be written it does."""

    def _path(self, bucket: Bucket) -> Path:
        return cache_folder() / "templates" / f"{bucket.key}.{bucket.checksum[:12]}"

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill the bucket if its template was compiled before."""
        with suppress(OSError), self._path(bucket).open("rb") as file:
            bucket.load_bytecode(file)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep what was compiled."""
        write_cached_file(self._path(bucket), bucket.bytecode_to_string())


def write_cached_file(path: Path, content: bytes) -> None:
    """Write a file of the cache folder, where that can be written."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path, shared=True) as draft:
            draft.write_bytes(content)


def cached_file(path: Path, make: Callable[[], bytes]) -> bytes:
    """The content of a file of the cache folder, made where it is missing."""
    with suppress(OSError):
        return path.read_bytes()
    content = make()
    write_cached_file(path, content)
    return content


@functools.cache
def environment(output: Output) -> Environment:
    """The templates of one output. Every text in them is made inert, and what is None or NaN says
    that it was not measured. Statements are plain text, which the other outputs make inert."""
    text: Callable[[Any], str] = {
        "html": html_text,
        "md": markdown_text,
        "text": written,
    }[output]
    jinja = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        bytecode_cache=CompiledTemplates(),
        autoescape=output != "text",
        finalize=text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    cell = html_text if output == "html" else _cell
    jinja.filters.update(FILTERS)
    jinja.globals.update(cells=functools.partial(cells, text=cell), nothing=NONE, zip=zip)
    jinja.globals.update(page=output == "html", not_measured=NOT_MEASURED)
    jinja.globals.update(statement=statement, statements=statements)
    library = jinja.get_template(LIBRARIES[output]).module
    macros = {name: value for name, value in vars(library).items() if not name.startswith("_")}
    jinja.globals.update(macros)
    return jinja


def template_of(name: str, output: Output) -> Template | None:
    """The template of a view's id for one output; None where that output leaves it out."""
    for candidate in (f"{name}.{output}.j2", f"{name}.j2"):
        try:
            return environment(output).get_template(candidate)
        except TemplateNotFound:
            continue
    return None


def statements(name: str, *about: Any, **options: Any) -> list[str]:
    """What a macro of text.j2 states about verdicts, answers or decisions, a line each."""
    macro: Any = environment("text").globals[name]
    lines = str(macro(*about, **options)).splitlines()
    return [" ".join(line.split()) for line in lines if line.strip()]


def statement(name: str, *about: Any, **options: Any) -> str:
    """A statement of `statements` as one text."""
    return " ".join(statements(name, *about, **options))
