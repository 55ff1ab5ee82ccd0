"""A section of the report. What the page and the Markdown both say is stated once, as a `Both`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gspo_lab.analysis.readings import Source
from gspo_lab.report.chart import Chart
from gspo_lab.report.markup import Html, h, markdown_table, plain, table


class Both(NamedTuple):
    """A part of the page, and the same as Markdown."""

    html: Html
    markdown: str


def paragraph(line: str, class_: str | None = None) -> Both:
    """One paragraph; `class_` is its look on the page."""
    return Both(h("p", line, class_=class_), plain(line))


def bullets(lines: Sequence[str]) -> Both:
    """A list with an entry for each line."""
    return Both(
        h("ul", *(h("li", line) for line in lines)), "\n".join(f"- {plain(line)}" for line in lines)
    )


def grid(
    head: Sequence[Any],
    rows: Iterable[Sequence[Any]],
    caption: str | None = None,
    *,
    fold: str = "",
    class_: str | None = None,
) -> Both:
    """A table below its caption. With `fold` the page shows it after a click on that title."""
    listed = list(rows)
    shown = table(head, listed, caption=caption, class_=class_)
    above = [plain(caption)] if caption else []
    return Both(
        folded(fold, shown) if fold else shown, "\n\n".join([*above, markdown_table(head, listed)])
    )


def folded(title: str, *inner: Html) -> Html:
    """Details in small print that a click on their title shows."""
    return h("details", h("summary", title), *inner)


@dataclass(frozen=True)
class CollapsibleSection:
    """What is shown by a click on its title. Figures in it are drawn when it is opened."""

    title: str
    body: tuple[Html | Both | Chart, ...]


Part = Html | Both | Chart | CollapsibleSection


@dataclass(frozen=True)
class Section:
    """One heading.

    The page shows every part of `body`, the Markdown each `Both`; `data` is for the .json.
    """

    id: str
    title: str
    body: tuple[Part, ...]
    data: dict[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    """The gist for a terminal; only the answer has one."""

    @property
    def _parts(self) -> Iterator[Html | Both | Chart]:
        """Its parts, folded ones too."""
        for part in self.body:
            yield from part.body if isinstance(part, CollapsibleSection) else (part,)

    @property
    def charts(self) -> Iterator[Chart]:
        """All figures."""
        return (part for part in self._parts if isinstance(part, Chart))

    @property
    def markdown(self) -> str:
        """What the Markdown has under this heading."""
        return "\n\n".join(
            part.markdown for part in self._parts if isinstance(part, Both) and part.markdown
        )


SectionWriter = Callable[[Source], Section | None]
"""Writes one section of what was found in a study; None where it has nothing to say under this
heading.
"""
