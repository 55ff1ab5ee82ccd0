"""A view: what one section of the report shows, as plain data.

Its JSON is the view itself (`to_json`); the page and the Markdown are templates of it, named by its
id (`templates/`).
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, ClassVar, TypeVar

from gspo_lab.analysis.readings import Source
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.report.chart import Chart, numbers


@dataclass(frozen=True)
class View:
    """What one section shows. Its fields are numbers, texts, charts, and rows of these."""

    id: ClassVar[str]
    """The anchor of the section, its key in the JSON, and the name of its templates."""
    title: ClassVar[str]


ViewWriter = Callable[[Source], View | None]
"""Finds out what one section shows of a study; None where it has nothing to show."""


T = TypeVar("T")
PAGE_ONLY = "page only"
INLINE = "inline"
PageOnly = Annotated[T, PAGE_ONLY]
"""A field that the page shows and the JSON leaves out: sentences, and drawings."""
Inlined = Annotated[T, INLINE]
"""A field whose keys stand beside the view's other fields in the JSON."""


def to_json(part: Any, *, exact: bool = False) -> Any:
    """Any view as the report's JSON has it: floats with six significant digits, None for what is
    not finite; `exact`: numbers as they are.
    """
    write = functools.partial(to_json, exact=exact)
    if isinstance(part, Chart):
        columns, rows, caption = numbers(part)
        table = {"columns": columns, "rows": rows, "caption": caption, "reading": part.reading}
        return write(table)
    if is_dataclass(part):
        data: JsonObject = {}
        for entry in fields(part):
            marks = getattr(entry.type, "__metadata__", ())
            if INLINE in marks:
                data |= write(getattr(part, entry.name)) or {}
            elif PAGE_ONLY not in marks:
                data[entry.name] = write(getattr(part, entry.name))
        return data
    if isinstance(part, Mapping):
        return {str(key): write(value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return list(map(write, part))
    return part if exact else rounded(part)


@functools.lru_cache(maxsize=2**16, typed=True)  # places on axes come again with every series
def rounded(value: Any) -> Any:
    """A value with six significant digits; whole numbers lose their `.0`; what is not finite is
    None.
    """
    if not isinstance(value, float):
        return value
    if value != value or value in (float("inf"), float("-inf")):
        return None
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def figures_of(view: View) -> Mapping[str, Chart]:
    """A view's charts by their ids; empty for a view without any."""
    figures: Mapping[str, Chart] = getattr(view, "figures", {})
    return figures


def by_id(*charts: Chart | None) -> dict[str, Chart]:
    """Charts by their ids, in this order; None is left out."""
    return {chart.id: chart for chart in charts if chart is not None}
