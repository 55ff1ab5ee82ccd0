"""Several studies beside each other: their verdicts, and their arms lined up by name."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gspo_lab.claims.outcomes import outcomes
from gspo_lab.report.frames import mean
from gspo_lab.report.markup import NOT_MEASURED, h, markdown_table, number, signed, slug, table
from gspo_lab.report.section import Section
from gspo_lab.report.sections.answer import answer
from gspo_lab.study import primary_of

if TYPE_CHECKING:
    from gspo_lab.store import Evidence


class Labelled(Protocol):
    """A study in its database, and its name on the page."""

    @property
    def evidence(self) -> "Evidence": ...
    @property
    def study(self) -> str: ...
    @property
    def label(self) -> str: ...


def together(sources: Sequence[Labelled]) -> Section:
    """One table of all comparisons, one of the final scores by arm; nothing is pooled over studies."""
    verdicts: list[list[Any]] = []
    scores: dict[str, dict[str, float | None]] = {}
    for one in sources:
        written = answer(one.evidence, one.study)
        found = {} if written is None else written.data.get("comparisons", {})
        for arm, verdict in found.items():
            interval = NOT_MEASURED
            if verdict["low"] is not None:
                interval = f"{signed(verdict['low'])} to {signed(verdict['high'])}"
            link = h("a", one.label, href=f"#{slug(one.label)}")
            row = [link, arm, verdict["word"], signed(verdict["estimate"]), interval, str(verdict["pairs"])]
            verdicts.append(row)
        content = one.evidence.study(one.study)
        bench = primary_of(content)
        ended = [] if bench is None else outcomes(one.evidence, one.study, bench)
        for arm in content["arms"]:
            scores.setdefault(arm, {})[one.label] = mean([run.final for run in ended if run.arm == arm])
    labels = [one.label for one in sources]
    head = ["study", "arm", "word", "difference to its baseline", "interval", "pairs"]
    rows = [
        [arm, *(number(found[label]) if label in found else "–" for label in labels)] for arm, found in scores.items()
    ]
    body = (
        h("p", "Each study by its own rule; nothing is pooled. An arm has the same colour in every study."),
        table(head, verdicts, caption="Verdicts"),
        table(["arm", *labels], rows, caption="Final score on each study's primary benchmark, mean over seeds"),
    )
    markdown = markdown_table(["arm", *labels], rows)
    return Section("together", "Studies side by side", body, {"scores": scores}, markdown)
