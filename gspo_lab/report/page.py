"""From sections to files: one page that needs nothing but itself, its numbers as JSON, its gist as Markdown.

The same evidence gives the same bytes: ids are fixed, keys are sorted, and nothing says when it was rendered.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from gspo_lab.readings import Source
from gspo_lab.report.chart import Chart, numbers
from gspo_lab.report.document import Article, document
from gspo_lab.report.figures import rounded
from gspo_lab.report.markup import plain, slug
from gspo_lab.report.section import Section, Writer
from gspo_lab.report.sections import SECTIONS
from gspo_lab.report.together import together

GIST = 8
"""Lines of a study's answer that stand above the fold of the .md."""

FORMAT = 1
"""Version of the .json; it rises when a key changes its meaning."""


@dataclass(frozen=True)
class Report:
    """A finished report: its file name without ending, and the text of its three files."""

    name: str
    html: str
    json: str
    markdown: str
    lines: tuple[str, ...] = ()
    """The answer, for a terminal."""


def render(sources: Sequence[Source], *, watch_seconds: int | None = None) -> Report:
    """One page of all studies, of several databases too; their labels differ. Arms of one name have one colour.

    With `watch_seconds` the open page looks that often whether it was written anew.
    """
    several = len(sources) > 1
    written = {one.label: _sections(SECTIONS, one) for one in sources}
    colours = _colours(sources)
    front = [together(sources)] if several else []
    articles = [
        Article(
            one.label,
            one.declaration.question,
            tuple(_recoloured(section, colours, one) if several else section for section in written[one.label]),
        )
        for one in sources
    ]
    data: dict[str, Any] = {
        "format": FORMAT,
        "studies": {label: _data(sections) for label, sections in written.items()},
    }
    if several:
        data["together"] = _data(front)["together"]
    name = "+".join(map(slug, written))
    return Report(
        name=name,
        html=document(name, articles, front, arms=colours, watch_seconds=watch_seconds),
        json=json.dumps(data, indent=1, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n",
        markdown=_markdown(name, articles, front),
        lines=tuple(line for article in articles for line in _told(article, several)),
    )


def _sections(writers: Sequence[Writer], source: Source) -> list[Section]:
    found = (write(source) for write in writers)
    return [section for section in found if section is not None]


def _colours(sources: Sequence[Source]) -> dict[str, int]:
    """Arm -> colour, over all studies: an arm of two studies looks the same in both."""
    names = [arm for one in sources for arm in one.arms]
    return {name: colour for colour, name in enumerate(dict.fromkeys(names))}


def _recoloured(section: Section, colours: dict[str, int], source: Source) -> Section:
    def repainted(chart: Chart) -> Chart:
        series = (replace(s, colour=colours[s.label]) if s.label in source.arms else s for s in chart.series)
        return replace(chart, series=tuple(series))

    return section.redrawn(repainted)


def _told(article: Article, several: bool) -> list[str]:
    return [f"{article.title}: {line}" for line in _gist(article)] if several else _gist(article)


def _gist(article: Article) -> list[str]:
    return [line for section in article.sections if section.id == "answer" for line in section.lines]


def _data(sections: list[Section]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for section in sections:
        charts: dict[str, Any] = {}
        for chart in section.charts:
            head, rows, caption = numbers(chart)
            charts[chart.id] = {"columns": head, "rows": rows, "caption": caption}
        out[section.id] = {**section.data, **({"figures": charts} if charts else {})}
    clean: dict[str, Any] = tidy(out)
    return clean


def tidy(data: Any) -> Any:
    """Nested data with every float at six significant digits, and None for what is not finite."""
    if isinstance(data, dict):
        return {str(key): tidy(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [tidy(value) for value in data]
    return rounded(data)


def _markdown(name: str, articles: Sequence[Article], front: Sequence[Section]) -> str:
    """The answer in few lines, as it stands in the description of a pull request; the rest is folded."""
    parts = [f"# {', '.join(plain(article.title) for article in articles)}"]
    several = len(articles) > 1
    for article in articles:
        told = _told(article, several)
        more = [] if len(told) <= GIST else [f"and {len(told) - GIST + 1} more lines below"]
        shown = [*told[: GIST - len(more)], *more]
        parts += [] if several else [plain(article.question)]
        parts.append("\n".join(f"- {plain(line)}" for line in shown))
    parts.append(f"[The report]({quote(name)}.html) and [its numbers]({quote(name)}.json)")
    parts.append("<details><summary>Everything else</summary>")
    parts += [f"## {section.title}\n\n{section.markdown}" for section in front]
    for article in articles:
        parts += [f"# {plain(article.title)}\n\n{plain(article.question)}"] if several else []
        parts += [f"## {section.title}\n\n{section.markdown}" for section in article.sections if section.markdown]
    return "\n\n".join([*parts, "</details>"]) + "\n"
