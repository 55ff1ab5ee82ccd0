"""Tables for people, JSON for scripts."""

import json
import math
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 10_000
"""What a pipe or a file is for is not read by eye: there a row is one line, however long."""
READABLE = 100
"""Columns: prose in longer lines is hard to read, however wide the terminal is."""
LAST_COLUMN = re.compile(r"^(?: +\w+: +|.{0,44}  +)(?=\S)")
"""What stands left of a line's last column: it ends in two blanks, or it is an indented name with a colon."""


def console(*, stderr: bool = False) -> "Console":
    """Where people read: a terminal's own width, or lines that are never folded."""
    from rich.console import Console

    found = Console(stderr=stderr)
    return found if found.is_terminal else Console(stderr=stderr, width=PIPED_WIDTH)


def print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Lines for people: in a terminal wrapped at words, going on under their own last column."""
    terminal = (sys.stderr if err else sys.stdout).isatty()
    width = min(shutil.get_terminal_size().columns, READABLE) if terminal else PIPED_WIDTH
    for line in (part for text in lines for part in text.split("\n")):
        for shown in wrapped(line, width):
            typer.echo(shown, err=err)


def wrapped(line: str, width: int) -> list[str]:
    """A line as lines of at most `width` columns, broken between words; a word that is longer stays whole."""
    if len(line) <= width:
        return [line]
    found = LAST_COLUMN.match(line)
    own = found.end() if found else len(line) - len(line.lstrip()) + 2
    hang = " " * (own if own <= width // 2 + 4 else 4)
    head, rest = (line[:own], line[own:]) if found else ("", line)
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(rest, width, initial_indent=head, subsequent_indent=hang, drop_whitespace=True, **options)


def print_json(data: Any) -> None:
    """Sorted, indented JSON; numbers that are not finite become null."""
    typer.echo(json.dumps(_plain(data), indent=2, sort_keys=True, ensure_ascii=False))


def print_either(as_json: bool, data: Any, lines: Iterable[str]) -> None:
    """The data as JSON for scripts, or else the lines for people."""
    if as_json:
        print_json(data)
    else:
        print_lines(lines)


def print_table(rows: Sequence[Mapping[str, Any]], *, empty: str, title: str | None = None) -> None:
    """A table of the rows, a column for every key that any of them has; numbers to the right, None as a dash."""
    if not rows:
        typer.echo(empty)
        return
    from rich.markup import escape
    from rich.table import Table

    from gspo_lab.progress import LOOKS

    table = Table(box=None, pad_edge=False, header_style="bold")
    for key in dict.fromkeys(key for row in rows for key in row):
        numbers = any(isinstance(row.get(key), int | float) for row in rows)
        table.add_column(key, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        cells = {key: escape(cell(row.get(key))) for key in (str(column.header) for column in table.columns)}
        if cells.get("state") in LOOKS:
            cells["state"] = f"[{LOOKS[cells['state']][2]}]{cells['state']}[/]"
        table.add_row(*cells.values())
    out = console()
    if title is not None:
        out.print(title, style="italic", markup=False, highlight=False, soft_wrap=True)
    out.print(table)


def cell(value: Any) -> str:
    """A value in one line; what is not known is a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else " ".join(str(value).splitlines())


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
