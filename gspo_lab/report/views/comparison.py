"""Several studies side by side; nothing is pooled over studies."""

from collections.abc import Sequence
from dataclasses import dataclass

from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.run_outcomes import outcomes
from gspo_lab.analysis.findings.stability import verdicts as verdicts_of
from gspo_lab.analysis.readings import Source, average
from gspo_lab.common.plain_data import OptionalFloat
from gspo_lab.report.templating import NONE, between, format_number, signed, statement
from gspo_lab.report.views.view import PageOnly, View


@dataclass(frozen=True)
class ComparisonView(View):
    """All verdicts, and each arm's final scores."""

    id = "together"
    title = "Studies side by side"
    scores: dict[str, dict[str, OptionalFloat]]
    """Arm -> study -> final score on the study's primary benchmark."""
    verdicts: PageOnly[list[list[str]]]
    """Study, verdict, difference, interval, pairs."""
    studies: PageOnly[list[str]]

    @property
    def score_rows(self) -> list[list[str]]:
        """The table of final scores."""
        rows = []
        for arm, scores in self.scores.items():
            cells = [
                format_number(scores[name]) if name in scores else NONE for name in self.studies
            ]
            rows.append([arm, *cells])
        return rows


def study_comparison(sources: Sequence[Source]) -> ComparisonView:
    """Each study by its own rule."""
    rows = []
    scores: dict[str, dict[str, OptionalFloat]] = {}
    for study in sources:
        for verdict in verdicts_of(study).values():
            low, high = verdict.interval or (None, None)
            interval = between(low, high, None, verdict.margin)
            pairs = verdict.paired.n if verdict.paired else 0
            estimate = signed(verdict.estimate)
            rows.append([study.label, statement("label", verdict), estimate, interval, str(pairs)])
        primary = study.declaration.primary
        ended = [] if primary is None else outcomes(study, primary)
        counted = [run for run in ended if decision(study).runs.has(run)]
        for arm in study.arms:
            mean = average(run.final for run in counted if run.arm == arm)
            scores.setdefault(arm, {})[study.label] = mean
    return ComparisonView(scores, rows, [study.label for study in sources])
