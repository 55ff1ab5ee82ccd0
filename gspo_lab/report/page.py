"""From sections to files: one page that needs nothing but itself, its numbers as JSON, its gist as Markdown.

The same evidence gives the same bytes: ids are fixed, keys are sorted, and nothing says when it was rendered.
"""

import base64
import functools
import gzip
import hashlib
import importlib.resources
import importlib.util
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gspo_lab.errors import LabError
from gspo_lab.registry import nearest
from gspo_lab.report.chart import Chart, numbers
from gspo_lab.report.figures import figure, keys, rounded
from gspo_lab.report.markup import Html, h, join, plain, text
from gspo_lab.report.section import Section
from gspo_lab.report.sections import SECTIONS

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

FORMAT = 1
"""Version of the .json; it rises when a key changes its meaning."""


@dataclass(frozen=True)
class Report:
    """A finished report: its file name without ending, and the text of its three files."""

    name: str
    html: str
    json: str
    markdown: str


def render(evidence: "Evidence", studies: Sequence[str]) -> Report:
    """The report of one study, or of several on one page. Raises LabError for a study that the database lacks."""
    known = evidence.studies()
    if not known:
        raise LabError("the database holds no study; run one first: gspo-lab run studies/NAME.toml")
    if not studies:
        raise LabError(f"name a study to report on; the database has {', '.join(known)}")
    for name in studies:
        if name not in known:
            raise LabError(f"no study '{name}' in the database{nearest(name, known)}; it has {', '.join(known)}")
    written = {name: _sections(evidence, name) for name in dict.fromkeys(studies)}
    data = {"format": FORMAT, "studies": {name: _data(sections) for name, sections in written.items()}}
    return Report(
        name="+".join(written),
        html=_html(evidence, written),
        json=json.dumps(data, indent=1, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n",
        markdown=_markdown(evidence, written),
    )


def write(report: Report, folder: Path) -> list[Path]:
    """Write the three files into `folder`, each whole or not at all; returns their paths, the page first."""
    folder.mkdir(parents=True, exist_ok=True)
    endings = {"html": report.html, "json": report.json, "md": report.markdown}
    return [_write(folder / f"{report.name}.{ending}", content) for ending, content in endings.items()]


def _write(path: Path, content: str) -> Path:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(content)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def _sections(evidence: "Evidence", study: str) -> list[Section]:
    return [section for section in (write(evidence, study) for write in SECTIONS) if section is not None]


def _data(sections: list[Section]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for section in sections:
        charts: dict[str, Any] = {}
        for part in section.body:
            if isinstance(part, Chart):
                head, rows, caption = numbers(part)
                charts[part.id] = {"columns": head, "rows": rows, "caption": caption}
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


def _markdown(evidence: "Evidence", written: dict[str, list[Section]]) -> str:
    parts = []
    for name, sections in written.items():
        parts.append(f"# {plain(name)}\n\n{plain(evidence.study(name).get('question', ''))}")
        parts += [f"## {section.title}\n\n{section.markdown}" for section in sections if section.markdown]
    return "\n\n".join(parts) + "\n"


def _html(evidence: "Evidence", written: dict[str, list[Section]]) -> str:
    style, script = _asset("page.css"), _asset("page.js")
    library, library_hash = plotly()
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}' '{library_hash}'; "
        # The empty style sheet is Plotly's, which fills it rule by rule.
        f"style-src '{_hash(style)}' '{_hash('')}'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    head = h(
        "head",
        h("meta", charset="utf-8"),
        h("meta", http_equiv="Content-Security-Policy", content=Html(policy)),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("title", f"{', '.join(written)} · gspo-lab"),
        h("style", Html(style)),
    )
    several = len(written) > 1
    studies = [_study(evidence, name, sections, f"{name}." if several else "") for name, sections in written.items()]
    body = h(
        "body",
        h("main", *studies),
        h("footer", "Made by gspo-lab from the recorded runs; nothing on this page is loaded from a network."),
        h("script", Html(library), type="text/plain", id="plotly-gzip"),
        h("script", Html(script)),
    )
    return f"<!doctype html>\n{h('html', head, body, lang='en')}\n"


def _study(evidence: "Evidence", name: str, sections: list[Section], prefix: str) -> Html:
    links = [h("a", section.title, href=f"#{prefix}{section.id}") for section in sections]
    return h(
        "article",
        h("h1", name),
        h("p", evidence.study(name).get("question", ""), class_="question"),
        h("nav", *links, aria_label=f"Sections of {name}"),
        *(_section(section, prefix) for section in sections),
    )


def _section(section: Section, prefix: str) -> Html:
    parts: list[Html] = [h("h2", section.title)]
    for (is_chart, small), group in groupby(
        section.body, key=lambda part: (isinstance(part, Chart), isinstance(part, Chart) and part.small)
    ):
        if not is_chart:
            parts += [text(part) for part in group]
            continue
        charts = [part for part in group if isinstance(part, Chart)]
        figures = [figure(chart, prefix) for chart in charts]
        if small:
            parts.append(keys(charts))
        parts.append(h("div", *figures, class_="figures of-small" if small else "figures"))
    return h("section", join(parts, "\n"), id=f"{prefix}{section.id}")


@functools.cache
def plotly() -> tuple[str, str]:
    """The one copy of plotly.js, gzip and base64, and the hash under which the page's policy lets it run."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise LabError("the report needs the package plotly: pip install plotly")
    source = (Path(spec.origin).parent / "package_data" / "plotly.min.js").read_bytes()
    packed = base64.b64encode(gzip.compress(source, 6, mtime=0)).decode()
    return packed, _hash(source)


def _asset(name: str) -> str:
    return importlib.resources.files("gspo_lab.report").joinpath(name).read_text(encoding="utf-8")


def _hash(source: str | bytes) -> str:
    data = source.encode() if isinstance(source, str) else source
    return "sha256-" + base64.b64encode(hashlib.sha256(data).digest()).decode()
