"""The report's sections, in their order on the page.

To add one, write its view, its templates, and give it a place in SECTIONS.
"""

from collections.abc import Mapping

from gspo_lab.report.views.answer import answer_view
from gspo_lab.report.views.calibration import calibration_view
from gspo_lab.report.views.claims import claims_view
from gspo_lab.report.views.curves import curves_view
from gspo_lab.report.views.grounds import grounds_view
from gspo_lab.report.views.limits import limits_view
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
from gspo_lab.report.views.view import ViewWriter

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
"""By their group, in their order on the page: open, folded to doubt the answer by, folded to look
into.
"""
