"""Tables for people, JSON for scripts."""

import json
import math
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import typer

from gspo_lab.common.plain_data import JsonMapping
from gspo_lab.common.text import UNSEEN, visible

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 10_000
"""In a pipe or a file a row is one line, however long."""
READABLE = 100
"""Columns: prose in longer lines is hard to read, however wide the terminal is."""
LAST_COLUMN = re.compile(r"^(?: +\w+: +|.{0,44}  +)(?=\S)")
"""The text left of a line's last column: it ends in two blanks, or it is an indented name with a
colon.
"""


def console(*, stderr: bool = False) -> "Console":
    """A console with the terminal's width, or one that never folds lines."""
    from gspo_lab.running.progress import VisibleConsole

    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    size = shutil.get_terminal_size()
    width = size.columns if terminal else PIPED_WIDTH
    return VisibleConsole(stderr=stderr, width=width, height=size.lines)


def print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print lines for people: a terminal wraps them at words, aligned with their last column."""
    terminal = (sys.stderr if err else sys.stdout).isatty()
    width = min(shutil.get_terminal_size().columns, READABLE) if terminal else PIPED_WIDTH
    for text in lines:
        for line in text.split("\n"):
            for part in wrapped(visible(line), width):
                typer.echo(part, err=err)


def wrapped(line: str, width: int) -> list[str]:
    """A line as lines of at most `width` columns, broken between words; a word that is longer stays
    whole.
    """
    if len(line) <= width:
        return [line]
    match = LAST_COLUMN.match(line)
    indent = match.end() if match else len(line) - len(line.lstrip()) + 2
    hang = " " * (indent if indent <= width // 2 + 4 else 4)
    head, text = (line[:indent], line[indent:]) if match else ("", line)
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(
        text, width, initial_indent=head, subsequent_indent=hang, drop_whitespace=True, **options
    )


def print_json(data: Any) -> None:
    """Sorted, indented JSON; numbers that are not finite become null."""
    text = json.dumps(_plain(data), indent=2, sort_keys=True, ensure_ascii=False)
    typer.echo(UNSEEN.sub(_escape, text))


def _escape(match: re.Match[str]) -> str:
    """A character that cannot be seen, as JSON writes it in ASCII."""
    return json.dumps(match.group())[1:-1]


def print_either(as_json: bool, data: Any, lines: Iterable[str]) -> None:
    """The data as JSON for scripts, or else the lines for people."""
    if as_json:
        print_json(data)
    else:
        print_lines(lines)


MOST_ROWS = 40
"""The most rows that a terminal shows of a table."""


def print_table(rows: Sequence[JsonMapping], *, empty: str, title: str | None = None) -> None:
    """A table of the first rows, a column for every key that any of them has; numbers to the right,
    None as a dash. Only for commands with `--json`, which shows all rows.
    """
    if not rows:
        print_lines([empty])
        return
    from rich.markup import escape
    from rich.table import Table

    from gspo_lab.running.progress import LOOKS

    table = Table(box=None, pad_edge=False, header_style="bold")
    keys = dict.fromkeys(chain.from_iterable(rows))
    for key in keys:
        numbers = any(isinstance(row.get(key), int | float) for row in rows)
        table.add_column(escape(key), justify="right" if numbers else "left", overflow="fold")
    for row in rows[:MOST_ROWS]:
        cells = {key: escape(cell(row.get(key))) for key in keys}
        if cells.get("state") in LOOKS:
            cells["state"] = f"[{LOOKS[cells['state']][1]}]{cells['state']}[/]"
        table.add_row(*cells.values())
    out = console()
    if title is not None:
        out.print(title, style="italic", markup=False, highlight=False, soft_wrap=True)
    out.print(table)
    if len(rows) > MOST_ROWS:
        print_lines([f"... and {len(rows) - MOST_ROWS} more: --json shows all"])


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
