"""Tables for people, JSON for scripts."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 10_000
"""What a pipe or a file is for is not read by eye: there a row is one line, however long."""


def console(*, stderr: bool = False) -> "Console":
    """Where people read: a terminal's own width, or lines that are never folded."""
    from rich.console import Console

    found = Console(stderr=stderr)
    return found if found.is_terminal else Console(stderr=stderr, width=PIPED_WIDTH)


def print_json(data: Any) -> None:
    """Sorted, indented JSON; numbers that are not finite become null."""
    typer.echo(json.dumps(_plain(data), indent=2, sort_keys=True, ensure_ascii=False))


def print_table(rows: Sequence[Mapping[str, Any]], *, empty: str, title: str | None = None) -> None:
    """A table of the rows, a column for every key that any of them has; numbers to the right, None as a dash."""
    if not rows:
        typer.echo(empty)
        return
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for key in dict.fromkeys(key for row in rows for key in row):
        numbers = any(isinstance(row.get(key), int | float) for row in rows)
        table.add_column(key, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell(row.get(str(column.header)))) for column in table.columns))
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
