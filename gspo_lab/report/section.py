"""What a section of the report is, and what may stand in it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gspo_lab.readings import Source
from gspo_lab.report.chart import Chart
from gspo_lab.report.markup import Html


@dataclass(frozen=True)
class Fold:
    """What is shown by a click on its title. Figures in it are drawn when it is opened."""

    title: str
    body: tuple[Html | Chart, ...]


Part = Html | Chart | Fold


@dataclass(frozen=True)
class Section:
    """One heading: prose and charts for the page, the same as `data` for the .json, `markdown` for the .md."""

    id: str
    title: str
    body: tuple[Part, ...]
    data: dict[str, Any] = field(default_factory=dict)
    markdown: str = ""
    lines: tuple[str, ...] = ()
    """The gist for a terminal; only the answer has one."""

    @property
    def charts(self) -> Iterator[Chart]:
        """All figures, folded ones too."""
        for part in self.body:
            parts = part.body if isinstance(part, Fold) else (part,)
            yield from (chart for chart in parts if isinstance(chart, Chart))


Writer = Callable[[Source], Section | None]
"""Writes one section of what was found in a study; None where it has nothing to say under this heading."""
