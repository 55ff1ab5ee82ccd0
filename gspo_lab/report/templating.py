"""The templates of the report: one set of names for the page and for the Markdown.

`templates/NAME.j2` renders a view for both, `NAME.html.j2` and `NAME.md.j2` for one of them. What
sections are made of (`table`, `paragraph`, `fold`, ...) are the macros of html.j2 and markdown.j2.
What is stated of a verdict, an answer or a decision are the macros of text.j2, which every output
quotes: `statements`.
"""

import functools
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
from gspo_lab.report.formats import (
    FILTERS,
    NONE,
    NOT_MEASURED,
    html_text,
    is_numeric,
    markdown_cell,
    markdown_text,
    written,
)

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
    written = [[text(getter(row)) for getter in getters] for row in rows]
    titles = [column if isinstance(column, str) else column[0] for column in columns]
    head = []
    for place, title in enumerate(titles):
        head.append((title, bool(written) and all(is_numeric(row[place]) for row in written)))
    return Grid(head, written)


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
        path = self._path(bucket)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path, shared=True, lasting=False) as draft:
                draft.write_bytes(bucket.bytecode_to_string())


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
    """The same as one text."""
    return " ".join(statements(name, *about, **options))
