"""From views to the report's three files: the page, its numbers as JSON, its gist as Markdown."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from gspo_lab.analysis.readings import Source
from gspo_lab.common.atomic_files import atomic_file
from gspo_lab.common.plain_data import JsonMapping, JsonObject
from gspo_lab.recording.store import Evidence
from gspo_lab.report.formats import slug
from gspo_lab.report.page import Article, document
from gspo_lab.report.plotly_json import arm_colours
from gspo_lab.report.templating import environment, template_of
from gspo_lab.report.views import SECTIONS
from gspo_lab.report.views.answer import AnswerView
from gspo_lab.report.views.comparison import study_comparison
from gspo_lab.report.views.models import models_view
from gspo_lab.report.views.view import View, to_json

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
    """By study's label its answer, for a terminal."""

    @property
    def lines(self) -> list[str]:
        """The lines of all answers."""
        return list(chain.from_iterable(answer.lines for answer in self.answers.values()))


def render(sources: Sequence[Source], *, watch_seconds: int | None = None) -> Report:
    """One page of all studies, of several databases too; their labels differ. Arms of one name have
    one colour.

    With `watch_seconds` the open page looks that often whether it was written anew.
    """
    articles = [_article(study) for study in sources]
    front = [study_comparison(sources)] if len(sources) > 1 else []
    name = "+".join(slug(article.title) for article in articles)
    studies = {article.title: _data(article.every) for article in articles}
    arms = arm_colours(sources)
    return Report(
        name=name,
        html=document(name, articles, front, arms=arms, watch_seconds=watch_seconds),
        json=_json(studies, front),
        markdown=_markdown(name, articles, front),
        answers={article.title: answer_of(article) for article in articles},
    )


def render_models(evidence: Evidence, models: Sequence[str]) -> Report:
    """One page of evaluated models, by the names that `gspo-lab eval` prints."""
    front = [models_view(evidence, models)]
    name = "+".join(slug(model.partition("/")[2]) for model in models)
    page = document(name, [], front, arms={})
    return Report(name, page, _json({}, front), _markdown(name, [], front), {})


def _json(studies: JsonMapping, front: Sequence[View]) -> str:
    data = {"format": FORMAT, "studies": studies, **_data(front)}
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n"


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


def _article(study: Source) -> Article:
    """What every section shows of a study."""
    sections = {}
    for group, writers in SECTIONS.items():
        views = [write_view(study) for write_view in writers]
        sections[group] = tuple(view for view in views if view is not None)
    times = study.evidence.runs(study.study)[["started_at", "finished_at"]].stack().dropna()
    date = datetime.fromtimestamp(max(times), UTC).date().isoformat() if len(times) else ""
    return Article(study.label, study.declaration.question, sections, date)


def _data(sections: Sequence[View]) -> JsonObject:
    return {section.id: to_json(section) for section in sections}


def answer_of(article: Article) -> AnswerView:
    """The answer of a study, which every article has."""
    return next(section for section in article.every if isinstance(section, AnswerView))


def _markdown(name: str, articles: Sequence[Article], front: Sequence[View]) -> str:
    several = len(articles) > 1
    studies = []
    for article in articles:
        lines = answer_of(article).lines
        if several:
            lines = [f"{article.title}: {line}" for line in lines]
        if len(lines) > GIST:
            lines = [*lines[: GIST - 1], f"and {len(lines) - GIST + 1} more lines below"]
        study = {"title": article.title, "question": article.question, "gist": lines}
        studies.append(study | {"sections": _written(article.every)})
    text = (
        environment("md")
        .get_template("report.md.j2")
        .render(file=Markup(quote(name)), several=several, front=_written(front), articles=studies)
    )
    return re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"


def _written(sections: Sequence[View]) -> list[JsonObject]:
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
    return "" if layout is None else Markup(layout.render(view=view, figures=no_figures).strip())


def no_figures(*_: Any) -> str:
    """The Markdown has no figures."""
    return ""
