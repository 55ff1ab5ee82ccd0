"""The report's sections, in their order on the page.

To add one, write its file and give it a line in SECTIONS.
"""

from collections.abc import Mapping

from gspo_lab.report.section import SectionWriter
from gspo_lab.report.sections.answer import answer, claims, grounds, limits_section
from gspo_lab.report.sections.curves import curves
from gspo_lab.report.sections.provenance import (
    certificate,
    downloads,
    imported_metrics,
    provenance,
    settings,
    tuning,
)
from gspo_lab.report.sections.replications import replications
from gspo_lab.report.sections.scores import pairs, scores
from gspo_lab.report.sections.stability import collapse, lengths, stability
from gspo_lab.report.sections.transcripts import transcripts
from gspo_lab.report.sections.updates import clipping, diagnostics, experts
from gspo_lab.report.verdict_details import calibration

SECTIONS: Mapping[str, tuple[SectionWriter, ...]] = {
    "": (answer, stability, lengths, curves, replications, imported_metrics),
    "Believe": (
        grounds,
        scores,
        clipping,
        collapse,
        claims,
        tuning,
        limits_section,
        pairs,
        certificate,
        calibration,
    ),
    "Inspect": (experts, diagnostics, transcripts, settings, provenance, downloads),
}
"""By their group, in their order on the page: open, folded to doubt the answer by, folded to look
into.
"""
