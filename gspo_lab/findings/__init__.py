"""What was found in a study: one object, from which terminal, report, plan and claims read the same numbers."""

from gspo_lab.findings.findings import Findings

__all__ = ["Findings"]
