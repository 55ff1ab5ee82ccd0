"""The report's sections, in their order on the page. To add one, write its file and give it a line in SECTIONS."""

from gspo_lab.report.section import Writer
from gspo_lab.report.sections.answer import answer
from gspo_lab.report.sections.certificate import certificate
from gspo_lab.report.sections.claims import claims
from gspo_lab.report.sections.clipping import clipping
from gspo_lab.report.sections.curves import curves
from gspo_lab.report.sections.diagnostics import diagnostics
from gspo_lab.report.sections.experts import experts
from gspo_lab.report.sections.gradients import gradients
from gspo_lab.report.sections.scores import scores
from gspo_lab.report.sections.settings import settings
from gspo_lab.report.sections.stability import stability

SECTIONS: tuple[Writer, ...] = (
    answer,
    stability,
    scores,
    curves,
    clipping,
    experts,
    claims,
    gradients,
    diagnostics,
    certificate,
    settings,
)
