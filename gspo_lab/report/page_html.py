"""The page around the sections: its head with the policy, its bar with the switch of the x axis, its one library."""

import base64
import functools
import gzip
import hashlib
import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from gspo_lab.errors import LabError
from gspo_lab.report.chart import Chart, CollapsibleSection, Part, Section
from gspo_lab.report.figure_html import Figures, figure, legend
from gspo_lab.report.markup import Html, h, join, slug, text, unbroken
from gspo_lab.report.palette import variables

GROUPS = ("", "Believe", "Inspect")
"""Open on the page; folded, to doubt the answer by; folded, to look into."""

SCRIPTS = ("page.js", "charts.js", "tables.js", "transcripts.js", "downloads.js")

OFF_PAPER = "This print has the answer and its figures; the button under Data prints the whole page with every table."

_LINK = re.compile(r'(<a href="#)([^"]+)("[^>]*>)(.*?)</a>', re.DOTALL)
_ID = re.compile(r'(?<= )id="([^"]+)"')
"""Sections write `href` first. No text from data looks like either: its quotes are escaped."""


@dataclass(frozen=True)
class Article:
    """One study's part of the page."""

    title: str
    question: str
    sections: Mapping[str, tuple[Section, ...]]
    """By their group."""
    date: str = ""
    """The day on which the last of its records was written."""

    @property
    def every(self) -> tuple[Section, ...]:
        """The sections in their order on the page."""
        return tuple(section for group in GROUPS for section in self.sections.get(group, ()))


def document(
    name: str,
    articles: Sequence[Article],
    front: Sequence[Section] = (),
    *,
    arms: Mapping[str, int],
    watch_seconds: int | None = None,
) -> str:
    """The whole file. `front` comes before the studies; `arms`: their colours; with `watch_seconds` the page looks for
    a newer self."""
    style, script = variables(arms) + _asset("page.css"), "".join(map(_asset, SCRIPTS))
    library, library_hash, maps = plotly()
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}' '{library_hash}'; "
        # The empty style sheet is Plotly's, which fills it rule by rule.
        f"style-src '{_hash(style)}' '{_hash('')}'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    refresh = h("noscript", h("meta", http_equiv="refresh", content=watch_seconds)) if watch_seconds else None
    head = h(
        "head",
        h("meta", charset="utf-8"),
        h("meta", http_equiv="Content-Security-Policy", content=Html(policy)),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", name="color-scheme", content="light dark"),
        refresh,
        h("title", f"{', '.join(article.title for article in articles)} · gspo-lab"),
        h("style", Html(style)),
    )
    figures = Figures(arms)
    several = len(articles) > 1
    shown = [_article(article, figures, f"{slug(article.title)}." if several else "") for article in articles]
    body = h(
        "body",
        h("a", "Skip to the answer", href="#_answer", class_="skip"),
        _bar(articles, front, arms),
        h("main", *(_section(section, figures, "", "") for section in front), *shown, id="_answer", tabindex="-1"),
        h(
            "footer",
            "Made by gspo-lab from the recorded runs; nothing on this page is loaded from a network.",
            h("span", f" {OFF_PAPER}", class_="paper"),
        ),
        figures.script(),
        h("script", Html(library), type="text/plain", id="plotly-gzip"),
        h("template", id=maps),
        h("script", Html(script)),
        data_name=slug(name),
    )
    return f"<!doctype html>\n{h('html', head, body, lang='en', data_watch=watch_seconds)}\n"


def _bar(articles: Sequence[Article], front: Sequence[Section], arms: Mapping[str, int]) -> Html:
    """Links to all sections, or to all studies where there are several, the figures' legend and the switch of their x
    axis."""
    links = _links(articles[0])
    if len(articles) > 1:
        links = [h("a", section.title, href=f"#{section.id}") for section in front]
        links += [h("a", article.title, href=f"#{slug(article.title)}") for article in articles]
    charts = (chart for article in articles for section in article.every for chart in section.charts)
    axes = dict.fromkeys(title for chart in charts for series in chart.series for title in series.at)
    choices = [
        h("label", h("input", type="radio", name="axis", value=value, checked=not value), value or "steps")
        for value in ("", *axes)
    ]
    switch = h("fieldset", h("legend", "x axis"), *choices, class_="axis", hidden=True) if axes else None
    return h("header", h("nav", *links, aria_label="Contents"), switch, legend(arms), class_="top")


def _links(article: Article) -> list[Html]:
    links = {section.id: section.title for section in article.sections[""]}
    links |= {group.lower(): group for group in GROUPS[1:] if article.sections.get(group)}
    return [h("a", title, href=f"#{id}") for id, title in links.items()]


def _article(article: Article, figures: Figures, prefix: str) -> Html:
    parts = [h("nav", *_links(article), aria_label=f"Sections of {article.title}") if prefix else Html("")]
    for group in GROUPS:
        sections = article.sections.get(group, ())
        shown = [_section(section, figures, prefix, article.title, folded=bool(group)) for section in sections]
        if group and shown:
            shown = [h("div", h("h2", group), *shown, id=group.lower(), class_="group")]
        parts += shown
    title = h("h1", unbroken(article.title), id=slug(article.title) if prefix else None)
    date = h("time", article.date, class_="soft") if article.date else None
    head = h("p", unbroken(article.question), " ", date, class_="question")
    return h("article", title, head, _linked(join(parts, "\n"), prefix), data_date=article.date or None)


def _linked(markup: Html, prefix: str) -> Html:
    """Ids and the links to them with the study's prefix. A link to what the study does not show becomes its text."""
    known = set(_ID.findall(markup))

    def link(match: re.Match[str]) -> str:
        return f"{match[1]}{prefix}{match[2]}{match[3]}{match[4]}</a>" if match[2] in known else match[4]

    whole = _LINK.sub(link, markup)
    return Html(_ID.sub(rf'id="{prefix}\1"', whole) if prefix else whole)


def _section(section: Section, figures: Figures, prefix: str, study: str, *, folded: bool = False) -> Html:
    heading, inner = h("h2", section.title), _parts(section.body, figures, prefix, study)
    if folded:
        return h("section", h("details", h("summary", heading), inner, id=section.id, class_="folded"))
    return h("section", heading, inner, id=section.id, class_="printed")


def _parts(body: Sequence[Part], figures: Figures, prefix: str, study: str) -> Html:
    """Figures that follow each other stand side by side, large or small; what is folded under its title."""
    parts: list[Html] = []
    for small, group in groupby(body, key=lambda part: part.small if isinstance(part, Chart) else None):
        if small is not None:
            shown = (figure(part, figures, prefix, study) for part in group if isinstance(part, Chart))
            parts.append(h("div", *shown, class_="figures of-small" if small else "figures"))
            continue
        for part in group:
            if isinstance(part, CollapsibleSection):
                inner = _parts(part.body, figures, prefix, study)
                parts.append(h("details", h("summary", part.title), inner, class_="fold"))
            else:
                parts.append(text(part))
    return join(parts, "\n")


@functools.cache
def plotly() -> tuple[str, str, str]:
    """The installed package's plotly.js, gzip and base64; the hash under which the page's policy lets it run; the id of
    the style sheet for maps that it would add, which the policy forbids. It adds none where an element has that id."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise LabError("the report needs the package plotly: pip install 'plotly>=7.1'")
    library = Path(spec.origin).with_name("package_data").joinpath("plotly.min.js").read_bytes()
    maps = re.search(rb'getElementById\("([0-9a-f]{64})"\)', library)
    return (
        base64.b64encode(gzip.compress(library, 6, mtime=0)).decode(),
        _hash(library),
        maps[1].decode() if maps else "",
    )


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _hash(source: str | bytes) -> str:
    data = source.encode() if isinstance(source, str) else source
    return "sha256-" + base64.b64encode(hashlib.sha256(data).digest()).decode()
