"""From sections to files: one page that needs nothing but itself, its numbers as JSON, its gist as Markdown.

The same evidence gives the same bytes: ids are fixed, keys are sorted, and nothing says when it was rendered.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gspo_lab.atomic_files import atomic_file
from gspo_lab.findings.decision import decision
from gspo_lab.findings.run_outcomes import outcomes
from gspo_lab.findings.stability import verdicts as verdicts_of
from gspo_lab.readings import Source, average
from gspo_lab.report.chart import Section, numbers
from gspo_lab.report.figure_html import rounded
from gspo_lab.report.markup import NONE, between, format_number, h, markdown_table, plain, signed, slug, table
from gspo_lab.report.page_html import Article, document
from gspo_lab.report.palette import arm_colours
from gspo_lab.report.sections import SECTIONS
from gspo_lab.words import label

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
    """One page of all studies, of several databases too; their labels differ. Arms of one name have one colour.

    With `watch_seconds` the open page looks that often whether it was written anew.
    """
    articles = [Article(of.label, of.declaration.question, _sections(of), written_on(of)) for of in sources]
    front = [study_comparison(sources)] if len(sources) > 1 else []
    data: dict[str, Any] = {
        "format": FORMAT,
        "studies": {article.title: _data(article.every) for article in articles},
        **_data(front),
    }
    name = "+".join(slug(article.title) for article in articles)
    return Report(
        name=name,
        html=document(name, articles, front, arms=arm_colours(sources), watch_seconds=watch_seconds),
        json=json.dumps(data, indent=1, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n",
        markdown=_markdown(name, articles, front),
        lines=tuple(line for article in articles for line in _gist(article, several=len(articles) > 1)),
    )


def write(report: Report, folder: Path) -> list[Path]:
    """Write the three files into `folder`, each whole or not at all; returns their paths, the page first."""
    paths = []
    for ending, content in {"html": report.html, "json": report.json, "md": report.markdown}.items():
        paths.append(folder / f"{report.name}.{ending}")
        with atomic_file(paths[-1], shared=True, lasting=False) as beside:
            beside.write_text(content, encoding="utf-8", newline="\n")
    return paths


def written_on(study: Source) -> str:
    """The day of the latest start or end of a run; empty where none is known."""
    times = study.evidence.runs(study.study)[["started_at", "finished_at"]].stack().dropna()
    return datetime.fromtimestamp(max(times), UTC).date().isoformat() if len(times) else ""


def _sections(study: Source) -> dict[str, tuple[Section, ...]]:
    written = {group: [write(study) for write in writers] for group, writers in SECTIONS.items()}
    return {group: tuple(section for section in sections if section) for group, sections in written.items()}


def _gist(article: Article, *, several: bool) -> list[str]:
    lines = [line for section in article.every if section.id == "answer" for line in section.lines]
    return [f"{article.title}: {line}" for line in lines] if several else lines


def _data(sections: Sequence[Section]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for section in sections:
        charts: dict[str, Any] = {}
        for chart in section.charts:
            head, rows, caption = numbers(chart)
            charts[chart.id] = {"columns": head, "rows": rows, "caption": caption, "reading": chart.reading}
        out[section.id] = {**section.data, **({"figures": charts} if charts else {})}
    clean: dict[str, Any] = round_floats(out)
    return clean


def round_floats(data: Any) -> Any:
    """Nested data with every float at six significant digits, and None for what is not finite."""
    if isinstance(data, dict):
        return {str(key): round_floats(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [round_floats(value) for value in data]
    return rounded(data)


def _markdown(name: str, articles: Sequence[Article], front: Sequence[Section]) -> str:
    """The answer in few lines, as it stands in the description of a pull request; the rest is folded."""
    parts = [f"# {', '.join(plain(article.title) for article in articles)}"]
    several = len(articles) > 1
    for article in articles:
        lines = _gist(article, several=several)
        more = [] if len(lines) <= GIST else [f"and {len(lines) - GIST + 1} more lines below"]
        shown = [*lines[: GIST - len(more)], *more]
        parts += [] if several else [plain(article.question)]
        parts.append("\n".join(f"- {plain(line)}" for line in shown))
    parts.append(f"[The report]({quote(name)}.html) and [its numbers]({quote(name)}.json)")
    parts.append("<details><summary>Everything else</summary>")
    parts += [f"## {section.title}\n\n{section.markdown}" for section in front]
    for article in articles:
        parts += [f"# {plain(article.title)}\n\n{plain(article.question)}"] if several else []
        parts += [f"## {section.title}\n\n{section.markdown}" for section in article.every if section.markdown]
    return "\n\n".join([*parts, "</details>"]) + "\n"


def study_comparison(sources: Sequence[Source]) -> Section:
    """One table of all comparisons, one of the final scores by arm; nothing is pooled over studies."""
    verdicts: list[list[Any]] = []
    scores: dict[str, dict[str, float | None]] = {}
    for study in sources:
        for verdict in verdicts_of(study).values():
            ends = verdict.interval or (None, None)
            link, pairs = h("a", study.label, href=f"#{slug(study.label)}"), verdict.paired.n if verdict.paired else 0
            verdicts.append([link, label(verdict), signed(verdict.estimate), between(*ends), str(pairs)])
        primary = study.declaration.primary
        ended = [] if primary is None else outcomes(study, primary)
        for arm in study.arms:
            finals = (run.final for run in ended if run.arm == arm and decision(study).runs.has(run))
            scores.setdefault(arm, {})[study.label] = average(finals)
    labels = [study.label for study in sources]
    head = ["study", "verdict", "difference to its baseline", "interval", "pairs"]
    rows = [
        [arm, *(format_number(means[label]) if label in means else NONE for label in labels)]
        for arm, means in scores.items()
    ]
    body = (
        h("p", "Each study by its own rule; nothing is pooled. An arm has the same colour in every study."),
        table(head, verdicts, caption="Verdicts"),
        table(
            ["arm", *labels],
            rows,
            caption="Final score on each study's primary benchmark, mean over the seeds that its verdict rests on",
        ),
    )
    markdown = markdown_table(["arm", *labels], rows)
    return Section("together", "Studies side by side", body, {"scores": scores}, markdown)
