"""What a section of the report is, and what may stand in it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gspo_lab.report.chart import Chart
from gspo_lab.report.markup import Html

if TYPE_CHECKING:
    from gspo_lab.store import Evidence


@dataclass(frozen=True)
class Section:
    """One heading: prose and charts for the page, the same as `data` for the .json, `markdown` for the .md."""

    id: str
    title: str
    body: tuple[Html | Chart, ...]
    data: dict[str, Any] = field(default_factory=dict)
    markdown: str = ""
    lines: tuple[str, ...] = ()
    """The gist for a terminal; only the answer has one."""


Writer = Callable[["Evidence", str], Section | None]
"""Reads a study's evidence and writes one section; None where the study has nothing to say under this heading."""
