"""From sections to files: one page that needs nothing but itself, its numbers as JSON, its gist as
Markdown.

The same evidence gives the same bytes: ids are fixed, keys are sorted, and nothing says when it was
rendered.
"""

import base64
import functools
import gzip
import hashlib
import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gspo_lab.analysis.readings import Source
from gspo_lab.common.atomic_files import atomic_file
from gspo_lab.common.errors import LabError
from gspo_lab.report.chart import Chart, format_position, numbers, sentence
from gspo_lab.report.markup import NOT_MEASURED, Html, h, join, plain, slug, table, text, unbroken
from gspo_lab.report.plotly_json import DARK, LIGHT, arm_colours, dash, plot, template, variables
from gspo_lab.report.section import Both, CollapsibleSection, Part, Section
from gspo_lab.report.sections import SECTIONS
from gspo_lab.report.sections.scores import study_comparison

SHARED = 8
"""Lists of so many numbers or more that stand in several places of the page are written once."""


class Figures:
    """All figures of a page as Plotly JSON, for the page's script.

    `arms`: the colours of the page's arms.
    """

    def __init__(self, arms: Mapping[str, int]) -> None:
        self.arms = arms
        self._lists: dict[tuple[Any, ...], int] = {}
        self._plots: dict[str, Any] = {}

    def add(self, key: str, chart: Chart, study: str) -> None:
        """The figure of the element with this id."""
        heads = {
            "title": chart.title,
            "finding": chart.finding,
            "study": study,
            "focus": list(chart.focus),
        }
        self._plots[key] = self._packed(plot(chart, self.arms)) | heads

    def _packed(self, part: Any) -> Any:
        """`part` with its long lists by their place in the page's table of lists, as `{"$": 3}`."""
        if isinstance(part, dict):
            return {key: self._packed(value) for key, value in part.items()}
        if not isinstance(part, list):
            return rounded(part)
        if len(part) < SHARED or any(isinstance(entry, dict | list) for entry in part):
            return [self._packed(entry) for entry in part]
        return {"$": self._lists.setdefault(tuple(map(rounded, part)), len(self._lists))}

    def script(self) -> Html:
        """The script block that holds them all:

        `lists`, `figures`, and both schemes with their templates.
        """
        held = {
            "lists": [list(entries) for entries in self._lists],
            "figures": self._plots,
            "templates": {"light": template(LIGHT), "dark": template(DARK)},
            "dark": {LIGHT[name]: DARK[name] for name in LIGHT},
        }
        return h("script", script_json(held), type="application/json", id="figures")


def figure(chart: Chart, figures: Figures, prefix: str, study: str) -> Html:
    """One `<figure>` with a fixed id (`m-reward`), so that a link can lead to it. Without values:
    one line that says so. Without scripts the sentence stands in the drawing's place."""
    heading = h("h3", h("a", chart.finding or chart.title, href=f"#{chart.id}"))
    if not chart.values():
        return h(
            "figure", heading, h("p", NOT_MEASURED, class_="missing"), id=chart.id, class_="empty"
        )
    figures.add(prefix + chart.id, chart, study)
    head, rows, caption = numbers(chart)
    shown = [
        [
            format_position(row[0]),
            *(cell if isinstance(cell, str) else chart.format_value(cell) for cell in row[1:]),
        ]
        for row in rows
    ]
    words = sentence(chart)
    note = h("p", chart.note) if chart.note else None
    below = h("figcaption", chart.title) if chart.finding else None
    place = h("div", words, class_="plot", role="img", aria_label=words)
    about = h(
        "details", h("summary", "Method and numbers"), note, table(head, shown, caption=caption)
    )
    look = f"of-{chart.kind}" + (" small" if chart.small else "")
    return h("figure", heading, below, place, about, id=chart.id, class_=look)


def legend(arms: Mapping[str, int]) -> Html:
    """The page's one legend: each button hides an arm, or all seeds, in every figure."""
    buttons = []
    for arm, colour in arms.items():
        dashes = None if dash(colour) == "solid" else dash(colour).replace("px", "")
        line = h("line", x1="0", x2="30", y1="4", y2="4", stroke_dasharray=dashes)
        key = h("svg", line, class_="key", data_arm=arm, viewBox="0 0 30 8", aria_hidden="true")
        buttons.append(
            h(
                "button",
                key,
                arm,
                type="button",
                data_hide=f"arm {arm}",
                aria_pressed="true",
                title=arm,
            )
        )
    buttons.append(h("button", "seeds", type="button", data_hide="seeds", aria_pressed="true"))
    return h(
        "div", *buttons, class_="who", role="group", aria_label="Shown in all figures", hidden=True
    )


def script_json(data: Any) -> Html:
    """JSON for a `<script>` block: nothing in it can close the block or open a comment."""
    written = json.dumps(
        data, ensure_ascii=True, separators=(",", ":"), sort_keys=True, allow_nan=False
    )
    return Html(written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


@functools.lru_cache(maxsize=2**16, typed=True)  # places on axes come again with every series
def rounded(value: Any) -> Any:
    """`value` with six significant digits; whole numbers lose their `.0`; what is not finite is
    None.
    """
    if not isinstance(value, float):
        return value
    if value != value or value in (float("inf"), float("-inf")):
        return None
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


GROUPS = ("", "Believe", "Inspect")
"""Open on the page; folded, to doubt the answer by; folded, to look into."""

SCRIPTS = ("page.js", "charts.js", "tables.js", "transcripts.js", "downloads.js")

OFF_PAPER = (
    "This print has the answer and its figures; the button under Data prints the whole page with"
    " every table."
)

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
    """The whole file. `front` comes before the studies; `arms`: their colours; with `watch_seconds`
    the page looks for a newer self."""
    style = variables(arms) + _asset("page.css")
    script = "".join(map(_asset, SCRIPTS))
    library, library_hash, maps = plotly()
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}' '{library_hash}'; "
        # The empty style sheet is Plotly's, which fills it rule by rule.
        f"style-src '{_hash(style)}' '{_hash('')}'; img-src data: blob:; base-uri 'none';"
        " form-action 'none'"
    )
    refresh = (
        h("noscript", h("meta", http_equiv="refresh", content=watch_seconds))
        if watch_seconds
        else None
    )
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
    shown = [_section(section, figures, "", "") for section in front]
    shown += [
        _article(article, figures, f"{slug(article.title)}." if several else "")
        for article in articles
    ]
    made = "Made by gspo-lab from the recorded runs; nothing on this page is loaded from a network."
    body = h(
        "body",
        h("a", "Skip to the answer", href="#_answer", class_="skip"),
        _bar(articles, front, arms),
        h("main", *shown, id="_answer", tabindex="-1"),
        h("footer", made, h("span", f" {OFF_PAPER}", class_="paper")),
        figures.script(),
        h("script", Html(library), type="text/plain", id="plotly-gzip"),
        h("template", id=maps),
        h("script", Html(script)),
        data_name=slug(name),
    )
    return f"<!doctype html>\n{h('html', head, body, lang='en', data_watch=watch_seconds)}\n"


def _bar(articles: Sequence[Article], front: Sequence[Section], arms: Mapping[str, int]) -> Html:
    """Links to all sections, or to all studies where there are several, the figures' legend and the
    switch of their x axis."""
    links = _links(articles[0])
    if len(articles) > 1:
        links = [h("a", section.title, href=f"#{section.id}") for section in front]
        links += [h("a", article.title, href=f"#{slug(article.title)}") for article in articles]
    charts = (
        chart for article in articles for section in article.every for chart in section.charts
    )
    axes = dict.fromkeys(
        title for chart in charts for series in chart.series for title in series.at
    )
    choices = [
        h(
            "label",
            h("input", type="radio", name="axis", value=value, checked=not value),
            value or "steps",
        )
        for value in ("", *axes)
    ]
    switch = (
        h("fieldset", h("legend", "x axis"), *choices, class_="axis", hidden=True) if axes else None
    )
    return h("header", h("nav", *links, aria_label="Contents"), switch, legend(arms), class_="top")


def _links(article: Article) -> list[Html]:
    links = {section.id: section.title for section in article.sections[""]}
    links |= {group.lower(): group for group in GROUPS[1:] if article.sections.get(group)}
    return [h("a", title, href=f"#{id}") for id, title in links.items()]


def _article(article: Article, figures: Figures, prefix: str) -> Html:
    parts = [
        (
            h("nav", *_links(article), aria_label=f"Sections of {article.title}")
            if prefix
            else Html("")
        )
    ]
    for group in GROUPS:
        sections = article.sections.get(group, ())
        shown = [
            _section(section, figures, prefix, article.title, folded=bool(group))
            for section in sections
        ]
        if group and shown:
            shown = [h("div", h("h2", group), *shown, id=group.lower(), class_="group")]
        parts += shown
    title = h("h1", unbroken(article.title), id=slug(article.title) if prefix else None)
    date = h("time", article.date, class_="soft") if article.date else None
    head = h("p", unbroken(article.question), " ", date, class_="question")
    return h(
        "article", title, head, _linked(join(parts, "\n"), prefix), data_date=article.date or None
    )


def _linked(markup: Html, prefix: str) -> Html:
    """Ids and the links to them with the study's prefix.

    A link to what the study does not show becomes its text.
    """
    known = set(_ID.findall(markup))

    def link(match: re.Match[str]) -> str:
        return (
            f"{match[1]}{prefix}{match[2]}{match[3]}{match[4]}</a>"
            if match[2] in known
            else match[4]
        )

    whole = _LINK.sub(link, markup)
    return Html(_ID.sub(rf'id="{prefix}\1"', whole) if prefix else whole)


def _section(
    section: Section, figures: Figures, prefix: str, study: str, *, folded: bool = False
) -> Html:
    heading = h("h2", section.title)
    inner = _parts(section.body, figures, prefix, study)
    if folded:
        return h(
            "section", h("details", h("summary", heading), inner, id=section.id, class_="folded")
        )
    return h("section", heading, inner, id=section.id, class_="printed")


def _parts(body: Sequence[Part], figures: Figures, prefix: str, study: str) -> Html:
    """Figures that follow each other stand side by side, large or small; what is folded under its
    title.
    """
    parts: list[Html] = []
    for small, group in groupby(
        body, key=lambda part: part.small if isinstance(part, Chart) else None
    ):
        if small is not None:
            shown = (
                figure(part, figures, prefix, study) for part in group if isinstance(part, Chart)
            )
            parts.append(h("div", *shown, class_="figures of-small" if small else "figures"))
            continue
        for part in group:
            if isinstance(part, CollapsibleSection):
                inner = _parts(part.body, figures, prefix, study)
                parts.append(h("details", h("summary", part.title), inner, class_="fold"))
            else:
                parts.append(part.html if isinstance(part, Both) else text(part))
    return join(parts, "\n")


@functools.cache
def plotly() -> tuple[str, str, str]:
    """The installed package's plotly.js, gzip and base64; the hash under which the page's policy
    lets it run; the id of the style sheet for maps that it would add, which the policy forbids. It
    adds none where an element has that id.
    """
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise LabError("the report needs the package plotly: pip install 'plotly>=7.1'")
    library = Path(spec.origin).with_name("package_data").joinpath("plotly.min.js").read_bytes()
    maps = re.search(rb'getElementById\("([0-9a-f]{64})"\)', library)
    packed = base64.b64encode(gzip.compress(library, 6, mtime=0)).decode()
    return packed, _hash(library), maps[1].decode() if maps else ""


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _hash(source: str | bytes) -> str:
    data = source.encode() if isinstance(source, str) else source
    return "sha256-" + base64.b64encode(hashlib.sha256(data).digest()).decode()


GIST = 8
"""Lines of a study's answer that stand above the fold of the .md."""

FORMAT = 2
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
    """One page of all studies, of several databases too; their labels differ. Arms of one name have
    one colour.

    With `watch_seconds` the open page looks that often whether it was written anew.
    """
    articles = []
    for study in sources:
        written = {
            group: tuple(filter(None, (write(study) for write in SECTIONS[group])))
            for group in GROUPS
        }
        times = study.evidence.runs(study.study)[["started_at", "finished_at"]].stack().dropna()
        date = datetime.fromtimestamp(max(times), UTC).date().isoformat() if len(times) else ""
        articles.append(Article(study.label, study.declaration.question, written, date))
    front = [study_comparison(sources)] if len(sources) > 1 else []
    data: dict[str, Any] = {
        "format": FORMAT,
        "studies": {article.title: _data(article.every) for article in articles},
        **_data(front),
    }
    name = "+".join(slug(article.title) for article in articles)
    return Report(
        name=name,
        html=document(
            name, articles, front, arms=arm_colours(sources), watch_seconds=watch_seconds
        ),
        json=json.dumps(data, indent=1, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n",
        markdown=_markdown(name, articles, front),
        lines=tuple(
            line for article in articles for line in _gist(article, several=len(articles) > 1)
        ),
    )


def write(report: Report, folder: Path) -> list[Path]:
    """Write the three files into `folder`, each whole or not at all; returns their paths, the page
    first.
    """
    paths = []
    for ending, content in {
        "html": report.html,
        "json": report.json,
        "md": report.markdown,
    }.items():
        paths.append(folder / f"{report.name}.{ending}")
        with atomic_file(paths[-1], shared=True, lasting=False) as beside:
            beside.write_text(content, encoding="utf-8", newline="\n")
    return paths


def _gist(article: Article, *, several: bool) -> list[str]:
    lines = [line for section in article.every if section.id == "answer" for line in section.lines]
    return [f"{article.title}: {line}" for line in lines] if several else lines


def _data(sections: Sequence[Section]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for section in sections:
        charts: dict[str, Any] = {}
        for chart in section.charts:
            head, rows, caption = numbers(chart)
            charts[chart.id] = {
                "columns": head,
                "rows": rows,
                "caption": caption,
                "reading": chart.reading,
            }
        out[section.id] = {**section.data, **({"figures": charts} if charts else {})}
    return dict(round_floats(out))


def round_floats(data: Any) -> Any:
    """Nested data with every float at six significant digits, and None for what is not finite."""
    if isinstance(data, dict):
        return {str(key): round_floats(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [round_floats(value) for value in data]
    return rounded(data)


def _markdown(name: str, articles: Sequence[Article], front: Sequence[Section]) -> str:
    """The answer in few lines, as it stands in the description of a pull request; the rest is
    folded.
    """
    parts = [f"# {', '.join(plain(article.title) for article in articles)}"]
    several = len(articles) > 1
    for article in articles:
        lines = _gist(article, several=several)
        if len(lines) > GIST:
            lines = [*lines[: GIST - 1], f"and {len(lines) - GIST + 1} more lines below"]
        parts += [] if several else [plain(article.question)]
        parts.append("\n".join(f"- {plain(line)}" for line in lines))
    parts.append(f"[The report]({quote(name)}.html) and [its numbers]({quote(name)}.json)")
    parts.append("<details><summary>Everything else</summary>")
    parts += [f"## {section.title}\n\n{section.markdown}" for section in front]
    for article in articles:
        parts += [f"# {plain(article.title)}\n\n{plain(article.question)}"] if several else []
        parts += [
            f"## {section.title}\n\n{section.markdown}"
            for section in article.every
            if section.markdown
        ]
    return "\n\n".join([*parts, "</details>"]) + "\n"
