"""The page around the sections: its head with the policy, its bar with the switch of the x axis, its one library."""

import base64
import functools
import gzip
import hashlib
import importlib.resources
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from gspo_lab.report.chart import Chart
from gspo_lab.report.figures import Figures, figure, legend
from gspo_lab.report.markup import Html, h, join, slug, text
from gspo_lab.report.palette import variables
from gspo_lab.report.section import Section

PRINTED = {"together", "answer", "stability", "curves", "clipping", "claims", "limits"}
"""The sections that decide: what comes on paper where nobody asks for the whole page."""

INSPECTED = {
    *("pairs", "experts", "diagnostics", "gradients", "transcripts", "certificate", "calibration"),
    *("settings", "provenance"),
}
"""The sections that come folded: to look into, not to decide by."""

SCRIPTS = ("page.js", "charts.js", "tables.js", "transcripts.js", "downloads.js")

OFF_PAPER = "On paper stand the sections that decide; the button under Data prints the whole page with every table."

_LINK = re.compile(r'(<a href="#)([^"]+)("[^>]*>)(.*?)</a>', re.DOTALL)
_ID = re.compile(r'(?<= )id="([^"]+)"')
"""Sections write `href` first. No text from data looks like either: its quotes are escaped."""


@dataclass(frozen=True)
class Article:
    """One study's part of the page."""

    title: str
    question: str
    sections: tuple[Section, ...]


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
    style, script = variables() + _asset("page.css"), "".join(map(_asset, SCRIPTS))
    library, library_hash = plotly()
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
    shown = [_article(one, figures, f"{slug(one.title)}." if several else "") for one in articles]
    body = h(
        "body",
        h("a", "Skip to the answer", href="#_answer", class_="skip"),
        _bar(articles, front, arms),
        h("main", *(_section(section, figures) for section in front), *shown, id="_answer", tabindex="-1"),
        h(
            "footer",
            "Made by gspo-lab from the recorded runs; nothing on this page is loaded from a network.",
            h("span", f" {OFF_PAPER}", class_="paper"),
        ),
        figures.script(),
        h("script", Html(library), type="text/plain", id="plotly-gzip"),
        h("script", Html(script)),
        data_name=slug(name),
    )
    return f"<!doctype html>\n{h('html', head, body, lang='en', data_watch=watch_seconds)}\n"


def _bar(articles: Sequence[Article], front: Sequence[Section], arms: Mapping[str, int]) -> Html:
    """Links to all sections, or to all studies where there are several, the figures' legend and the switch of their x
    axis."""
    if len(articles) > 1:
        links = [h("a", section.title, href=f"#{section.id}") for section in front]
        links += [h("a", one.title, href=f"#{slug(one.title)}") for one in articles]
    else:
        links = _links(articles[0].sections)
    return h("header", h("nav", *links, aria_label="Contents"), legend(arms), _switch(articles), class_="top")


def _links(sections: Sequence[Section]) -> list[Html]:
    """To each section, by the first part of its title: they must fit beside the switch."""
    return [h("a", section.title.partition(" and ")[0], href=f"#{section.id}") for section in sections]


def _switch(articles: Sequence[Article]) -> Html | None:
    charts = (part for one in articles for section in one.sections for part in section.body if isinstance(part, Chart))
    others = dict.fromkeys(title for chart in charts for series in chart.series for title in series.at)
    if not others:
        return None
    choices = [
        h("label", h("input", type="radio", name="axis", value=value, checked=not value), title)
        for value, title in {"": "steps", **{one: one for one in others}}.items()
    ]
    return h("fieldset", h("legend", "x axis"), *choices, class_="axis", hidden=True)


def _article(article: Article, figures: Figures, prefix: str) -> Html:
    inner = join([_section(section, figures, prefix) for section in article.sections], "\n")
    title = h("h1", article.title, id=slug(article.title) if prefix else None)
    contents = h("nav", *_links(article.sections), aria_label=f"Sections of {article.title}") if prefix else ""
    linked = _linked(join([contents, inner]), prefix)
    return h("article", title, h("p", article.question, class_="question"), linked)


def _linked(markup: Html, prefix: str) -> Html:
    """Ids and the links to them with the study's prefix. A link to what the study does not show becomes its text."""
    known = set(_ID.findall(markup))

    def link(match: re.Match[str]) -> str:
        return f"{match[1]}{prefix}{match[2]}{match[3]}{match[4]}</a>" if match[2] in known else match[4]

    whole = _LINK.sub(link, markup)
    return Html(_ID.sub(rf'id="{prefix}\1"', whole) if prefix else whole)


def _section(section: Section, figures: Figures, prefix: str = "") -> Html:
    parts: list[Html] = [h("h2", section.title)]
    for (is_chart, small), group in groupby(
        section.body, key=lambda part: (isinstance(part, Chart), isinstance(part, Chart) and part.small)
    ):
        if is_chart:
            charts = [part for part in group if isinstance(part, Chart)]
            shown = (figure(chart, figures, prefix) for chart in charts)
            parts.append(h("div", *shown, class_="figures of-small" if small else "figures"))
        else:
            parts += [text(part) for part in group]
    if section.id in INSPECTED:
        folded = h("details", h("summary", parts[0]), join(parts[1:], "\n"), id=section.id, class_="inspect")
        return h("section", folded)
    return h("section", join(parts, "\n"), id=section.id, class_="printed" if section.id in PRINTED else None)


LIBRARY = "plotly-basic-4.1.1.min.js.gz"
"""The npm package plotly.js-basic-dist-min, MIT: the package's own file, packed. It draws lines and bars."""


@functools.cache
def plotly() -> tuple[str, str]:
    """The one copy of plotly.js, gzip and base64, and the hash under which the page's policy lets it run."""
    packed = importlib.resources.files("gspo_lab.report").joinpath("library", LIBRARY).read_bytes()
    return base64.b64encode(packed).decode(), _hash(gzip.decompress(packed))


def _asset(name: str) -> str:
    return importlib.resources.files("gspo_lab.report").joinpath(name).read_text(encoding="utf-8")


def _hash(source: str | bytes) -> str:
    data = source.encode() if isinstance(source, str) else source
    return "sha256-" + base64.b64encode(hashlib.sha256(data).digest()).decode()
