"""Several studies beside each other: their verdicts, and their arms lined up by name."""

from collections.abc import Sequence
from typing import Any

from gspo_lab.findings.decision import decision
from gspo_lab.findings.outcomes import outcomes
from gspo_lab.findings.stability import verdicts as verdicts_of
from gspo_lab.readings import Source, average
from gspo_lab.report.markup import NONE, between, h, markdown_table, number, signed, slug, table
from gspo_lab.report.section import Section
from gspo_lab.words import label


def together(sources: Sequence[Source]) -> Section:
    """One table of all comparisons, one of the final scores by arm; nothing is pooled over studies."""
    verdicts: list[list[Any]] = []
    scores: dict[str, dict[str, float | None]] = {}
    for one in sources:
        for verdict in verdicts_of(one).values():
            ends = verdict.interval or (None, None)
            link, pairs = h("a", one.label, href=f"#{slug(one.label)}"), verdict.paired.n if verdict.paired else 0
            verdicts.append([link, label(verdict), signed(verdict.estimate), between(*ends), str(pairs)])
        primary = one.declaration.primary
        ended = [] if primary is None else outcomes(one, primary)
        for arm in one.arms:
            finals = (run.final for run in ended if run.arm == arm and decision(one).runs.has(run))
            scores.setdefault(arm, {})[one.label] = average(finals)
    labels = [one.label for one in sources]
    head = ["study", "verdict", "difference to its baseline", "interval", "pairs"]
    rows = [
        [arm, *(number(found[label]) if label in found else NONE for label in labels)] for arm, found in scores.items()
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
