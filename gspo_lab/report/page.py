"""From the views of studies to the report's three files: the page, which needs nothing but itself,
its numbers as JSON, its gist as Markdown.

The same evidence gives the same bytes: ids are fixed, keys are sorted, and nothing says when it was
rendered. To add a section, write its view, its templates, and give it a place in SECTIONS.
"""

import base64
import functools
import gzip
import hashlib
import importlib.util
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from gspo_lab.analysis.readings import Source
from gspo_lab.common.atomic_files import atomic_file
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import cache_folder
from gspo_lab.common.plain_data import JsonMapping, JsonObject, OptionalInt
from gspo_lab.recording.store import Evidence
from gspo_lab.report.chart import Chart, format_position, numbers, sentence
from gspo_lab.report.plotly_json import (
    DARK,
    LIGHT,
    NEUTRAL_DARK,
    arm_colours,
    colour_name,
    dash,
    plot,
    template,
    variables,
)
from gspo_lab.report.templating import cached_file, environment, slug, template_of
from gspo_lab.report.views.answer import AnswerView, answer_view
from gspo_lab.report.views.calibration import calibration_view
from gspo_lab.report.views.claims import claims_view
from gspo_lab.report.views.comparison import study_comparison
from gspo_lab.report.views.curves import curves_view
from gspo_lab.report.views.grounds import grounds_view
from gspo_lab.report.views.limits import limits_view
from gspo_lab.report.views.models import models_view
from gspo_lab.report.views.provenance import (
    certificate_view,
    downloads_view,
    logged_view,
    provenance_view,
    settings_view,
    tuning_view,
)
from gspo_lab.report.views.replications import replications_view
from gspo_lab.report.views.scores import pairs_view, scores_view
from gspo_lab.report.views.stability import collapse_view, lengths_view, stability_view
from gspo_lab.report.views.transcripts import transcripts_view
from gspo_lab.report.views.updates import clipping_view, diagnostics_view, experts_view
from gspo_lab.report.views.view import View, ViewWriter, figures_of, rounded, to_json

SECTIONS: Mapping[str, tuple[ViewWriter, ...]] = {
    "": (
        answer_view,
        stability_view,
        lengths_view,
        curves_view,
        replications_view,
        logged_view,
    ),
    "Believe": (
        grounds_view,
        scores_view,
        clipping_view,
        collapse_view,
        claims_view,
        tuning_view,
        limits_view,
        pairs_view,
        certificate_view,
        calibration_view,
    ),
    "Inspect": (
        experts_view,
        diagnostics_view,
        transcripts_view,
        settings_view,
        provenance_view,
        downloads_view,
    ),
}
"""The sections by group, in their order on the page.

The groups are open, folded to doubt the answer by, and folded to look into.
"""


SHARED = 8
"""Lists of so many numbers or more that stand in several places of the page are written once."""

SCRIPTS = ("page.js", "charts.js", "tables.js", "transcripts.js", "downloads.js")

_LINK = re.compile(r'(<a href="#)([^"]+)("[^>]*>)(.*?)</a>', re.DOTALL)
_ID = re.compile(r'(?<= )id="([^"]+)"')
"""Templates write `href` first. No text from data looks like either: its quotes are escaped."""


GIST = 8
"""Lines of a study's answer that stand above the fold of the .md."""

FORMAT = 3
"""Version of the .json; it rises when a key changes its meaning."""


@dataclass(frozen=True)
class Report:
    """A finished report: its file name without ending, and the text of its three files."""

    name: str
    html: str
    json: str
    markdown: str
    answers: Mapping[str, AnswerView]
    """Each study's answer for a terminal, by its label."""

    @property
    def lines(self) -> list[str]:
        """The lines of all answers."""
        return list(chain.from_iterable(answer.lines for answer in self.answers.values()))


@dataclass(frozen=True)
class Article:
    """One study's part of the page."""

    title: str
    question: str
    sections: Mapping[str, tuple[View, ...]]
    """The views by group: "" is open."""
    date: str = ""
    """The day on which the last of its records was written."""

    @property
    def views(self) -> tuple[View, ...]:
        """The sections in their order on the page."""
        return tuple(chain.from_iterable(self.sections.values()))

    @property
    def answer(self) -> AnswerView:
        """The study's answer, which every article has."""
        return next(section for section in self.views if isinstance(section, AnswerView))

    @property
    def links(self) -> dict[str, str]:
        """The targets of its table of contents with their titles."""
        links = {section.id: section.title for section in self.sections.get("", ())}
        for group, sections in self.sections.items():
            if group and sections:
                links[group.lower()] = group
        return links


def render(sources: Sequence[Source], *, watch_seconds: OptionalInt = None) -> Report:
    """One page of all studies, of several databases too; their labels differ. Arms of one name have
    one colour.

    With `watch_seconds` the open page looks that often whether it was written anew.
    """
    articles = [article_of(study) for study in sources]
    front = [study_comparison(sources)] if len(sources) > 1 else []
    name = "+".join(slug(article.title) for article in articles)
    studies = {article.title: _data(article.views) for article in articles}
    arms = arm_colours(sources)
    return Report(
        name=name,
        html=document(name, articles, front, arms=arms, watch_seconds=watch_seconds),
        json=_json(studies, front),
        markdown=_markdown(name, articles, front),
        answers={article.title: article.answer for article in articles},
    )


def render_models(evidence: Evidence, models: Sequence[str]) -> Report:
    """One page of evaluated models, by the names that `gspo-lab eval` prints."""
    front = [models_view(evidence, models)]
    name = "+".join(slug(model.partition("/")[2]) for model in models)
    page = document(name, [], front, arms={})
    return Report(name, page, _json({}, front), _markdown(name, [], front), {})


def _json(studies: JsonMapping, front: Sequence[View]) -> str:
    """One entry a line, without indentation: Python writes that ten times as slowly."""
    data = {"format": FORMAT, "studies": studies, **_data(front)}
    return json.dumps(data, separators=(",\n", ": "), sort_keys=True, allow_nan=False) + "\n"


def write(report: Report, folder: Path) -> list[Path]:
    """Write the three files into `folder`, each whole or not at all; returns their paths, the page
    first.
    """
    paths = []
    contents = {"html": report.html, "json": report.json, "md": report.markdown}
    for ending, content in contents.items():
        path = folder / f"{report.name}.{ending}"
        paths.append(path)
        with atomic_file(path, shared=True, lasting=False) as draft:
            draft.write_text(content, encoding="utf-8", newline="\n")
    return paths


def article_of(study: Source) -> Article:
    """What every section shows of a study."""
    sections = {}
    for group, writers in SECTIONS.items():
        views = [write_view(study) for write_view in writers]
        sections[group] = tuple(view for view in views if view is not None)
    runs = study.evidence.run_rows(study.study)
    last = max((run["finished_at"] or run["started_at"] or 0 for run in runs), default=0)
    date = datetime.fromtimestamp(last, UTC).date().isoformat() if last else ""
    return Article(study.label, study.declaration.question, sections, date)


def _data(sections: Sequence[View]) -> JsonObject:
    return {section.id: to_json(section) for section in sections}


def _markdown(name: str, articles: Sequence[Article], front: Sequence[View]) -> str:
    several = len(articles) > 1
    studies = []
    for article in articles:
        lines = article.answer.lines
        if several:
            lines = [f"{article.title}: {line}" for line in lines]
        if len(lines) > GIST:
            lines = [*lines[: GIST - 1], f"and {len(lines) - GIST + 1} more lines below"]
        study = {"title": article.title, "question": article.question, "gist": lines}
        studies.append(study | {"sections": _markdown_sections(article.views)})
    front_sections = _markdown_sections(front)
    layout = environment("md").get_template("report.md.j2")
    text = layout.render(
        file=Markup(quote(name)), several=several, front=front_sections, articles=studies
    )
    return re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"


def _markdown_sections(sections: Sequence[View]) -> list[JsonObject]:
    """The sections that the Markdown shows, with their text."""
    written = []
    for section in sections:
        body = section_markdown(section)
        if body:
            written.append({"title": section.title, "body": body})
    return written


def section_markdown(view: View) -> Any:
    """A view as Markdown; empty where the Markdown leaves it out."""
    layout = template_of(view.id, "md")
    return "" if layout is None else Markup(layout.render(view=view, figures=lambda *_: "").strip())


class Figures:
    """All figures of a page as Plotly JSON, for the page's script.

    `arms`: the colours of the page's arms.
    """

    def __init__(self, arms: Mapping[str, int]) -> None:
        self.arms = arms
        self._lists: dict[tuple[Any, ...], int] = {}
        self._plots: JsonObject = {}

    def add(self, key: str, chart: Chart, study: str) -> None:
        """The figure of the element with this id."""
        heads = {
            "title": chart.title,
            "finding": chart.finding,
            "study": study,
            "focus": list(chart.focus),
        }
        self._plots[key] = self._pack(plot(chart, self.arms)) | heads

    def _pack(self, part: Any) -> Any:
        """`part` with its long lists by their place in the page's table of lists, as `{"$": 3}`."""
        if isinstance(part, dict):
            return {key: self._pack(value) for key, value in part.items()}
        if not isinstance(part, list):
            return rounded(part)
        if len(part) < SHARED or not {dict, list}.isdisjoint(map(type, part)):
            return [self._pack(entry) for entry in part]
        return {"$": self._lists.setdefault(tuple(map(rounded, part)), len(self._lists))}

    def script(self) -> Markup:
        """The content of the script block that holds them all: `lists`, `figures`, and both schemes
        with their templates.
        """
        content = {
            "lists": [list(entries) for entries in self._lists],
            "figures": self._plots,
            "templates": {"light": template(LIGHT), "dark": template(DARK)},
            "dark": {LIGHT[name]: DARK[name] for name in LIGHT},
        }
        return script_json(content)

    def html(self, charts: Iterable[Chart], *, prefix: str, study: str) -> Markup:
        """Figures that follow each other, large and small ones in groups of their own. Without
        scripts a sentence stands in each drawing's place."""
        groups = []
        for _, group in groupby(charts, key=lambda chart: chart.small):
            figures = []
            for chart in group:
                if chart.values():
                    self.add(prefix + chart.id, chart, study)
                figures.append(_figure(chart))
            groups.append(_render("figure.html.j2", figures=figures))
        return Markup("\n").join(groups)


def _figure(chart: Chart) -> JsonObject:
    """What a figure's template reads."""
    head, rows, caption = numbers(chart)
    written = []
    for row in rows:
        values = [cell if isinstance(cell, str) else chart.format_value(cell) for cell in row[1:]]
        written.append([format_position(row[0]), *values])
    return {
        "chart": chart,
        "empty": not chart.values(),
        "sentence": sentence(chart),
        "columns": head,
        "rows": written,
        "caption": caption,
    }


def script_json(data: Any) -> Markup:
    """JSON for a `<script>` block: nothing in it can close the block or open a comment."""
    written = json.dumps(
        data, ensure_ascii=True, separators=(",", ":"), sort_keys=True, allow_nan=False
    )
    return Markup(written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def document(
    name: str,
    articles: Sequence[Article],
    front: Sequence[View] = (),
    *,
    arms: Mapping[str, int],
    watch_seconds: OptionalInt = None,
) -> str:
    """The whole file. `front` comes before the studies; `arms`: their colours; with `watch_seconds`
    the page looks for a newer self."""
    style = variables(arms) + _asset("page.css")
    script = "".join(map(_asset, SCRIPTS))
    library, library_hash, map_styles = plotly()
    # The empty style sheet is Plotly's, which fills it rule by rule.
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}' '{library_hash}'; "
        f"style-src '{_hash(style)}' '{_hash('')}'; img-src data: blob:; base-uri 'none';"
        " form-action 'none'"
    )
    figures = Figures(arms)
    several = len(articles) > 1
    written = []
    for article in articles:
        prefix = f"{slug(article.title)}." if several else ""
        written.append(_article_html(article, figures, prefix))
    return _render(
        "page.html.j2",
        name=slug(name),
        titles=", ".join(part.title for part in articles or front),
        policy=Markup(policy),
        style=Markup(style),
        script=Markup(script),
        library=Markup(library),
        map_styles=map_styles,
        links=_contents(articles, front),
        axes=_axes(articles),
        legend=_legend(arms),
        front=front,
        body=section_html,
        articles=written,
        figures=figures.script(),
        watch_seconds=watch_seconds,
    )


def _contents(articles: Sequence[Article], front: Sequence[View]) -> dict[str, str]:
    """Links to all sections, or to all studies where there are several."""
    if len(articles) == 1:
        return articles[0].links
    links = {section.id: section.title for section in front}
    return links | {slug(article.title): article.title for article in articles}


def _axes(articles: Sequence[Article]) -> list[str]:
    """The x axes that a figure can be drawn against, besides steps."""
    titles: dict[str, None] = {}
    for article in articles:
        for section in article.views:
            for chart in figures_of(section).values():
                for series in chart.series:
                    titles |= dict.fromkeys(series.positions)
    return list(titles)


def _legend(arms: Mapping[str, int]) -> list[dict[str, str]]:
    """The buttons of the bar: every arm; of a sweep every rule, then every value by its dash.

    An arm of a sweep has its rule's colour; an imported arm `grpo@0.1` has its own.
    """
    legend = {}
    for arm, colour in arms.items():
        rule, _, value = arm.rpartition("@")
        swept = colour_name(arms.get(rule, NEUTRAL_DARK)) == colour_name(colour)
        name = f"@{value}" if swept else arm
        written = dash(colour).removeprefix("solid").replace("px", "")
        legend[name] = {"name": name, "arm": "" if swept else arm, "dashes": written}
    return list(legend.values())


def _article_html(article: Article, figures: Figures, prefix: str) -> Markup:
    draw = functools.partial(figures.html, prefix=prefix, study=article.title)
    body = functools.partial(section_html, draw=draw)
    return _link_ids(_render("article.html.j2", article=article, prefix=prefix, body=body), prefix)


def section_html(view: View, draw: Any = None) -> Markup:
    """A view as a part of the page; `draw` draws its figures."""
    layout = template_of(view.id, "html")
    if layout is None:
        raise LookupError(f"no template of the section {view.id}")
    return Markup(layout.render(view=view, figures=draw))


def _link_ids(markup: Markup, prefix: str) -> Markup:
    """Ids and the links to them with the study's prefix. A link to what the study does not show
    becomes its text.
    """
    targets = set(_ID.findall(markup))

    def link(match: re.Match[str]) -> str:
        if match[2] not in targets:
            return match[4]
        return f"{match[1]}{prefix}{match[2]}{match[3]}{match[4]}</a>"

    linked = _LINK.sub(link, markup)
    return Markup(_ID.sub(rf'id="{prefix}\1"', linked) if prefix else linked)


def _render(layout: str, **values: Any) -> Markup:
    return Markup(environment("html").get_template(layout).render(**values))


@functools.cache
def plotly() -> tuple[str, str, str]:
    """The installed package's plotly.js as gzip in base64, its hash, and the id of its map styles.

    The page's policy lets the script with this hash run. The policy forbids the style sheet for
    maps that plotly.js would add; it adds none where an element has that id."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise LabError("the report needs the package plotly: pip install 'plotly>=7.1'")
    library = Path(spec.origin).with_name("package_data").joinpath("plotly.min.js").read_bytes()
    styles = re.search(rb'getElementById\("([0-9a-f]{64})"\)', library)
    digest = _hash(library)
    cached = cache_folder() / "plotly" / f"{slug(digest)}.gz"
    packed = cached_file(cached, lambda: gzip.compress(library, 6, mtime=0))
    return base64.b64encode(packed).decode(), digest, styles[1].decode() if styles else ""


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _hash(source: str | bytes) -> str:
    data = source.encode() if isinstance(source, str) else source
    return "sha256-" + base64.b64encode(hashlib.sha256(data).digest()).decode()
