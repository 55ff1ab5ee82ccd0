"""A study's declaration, as the database has it."""

from dataclasses import replace
from typing import TYPE_CHECKING

from gspo_lab.layout import STUDY
from gspo_lab.study import Declaration

if TYPE_CHECKING:
    from gspo_lab.store import Evidence


def declaration(evidence: "Evidence", study: str) -> Declaration:
    """What the study declares. LabError for a study that the database lacks."""
    declared = Declaration.parse(evidence.study(study), f"{study}/{STUDY}")
    return replace(declared, name=study)  # a study that was copied is its own
