"""What a section of the report is, and what may stand in it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gspo_lab.findings import Findings
from gspo_lab.report.chart import Chart
from gspo_lab.report.markup import Html


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


Writer = Callable[[Findings], Section | None]
"""Writes one section of what was found in a study; None where it has nothing to say under this heading."""
