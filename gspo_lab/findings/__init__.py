"""What was found in a study: one object, from which terminal, report, plan and claims read the same numbers."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gspo_lab.findings.findings import Findings

__all__ = ["Findings"]


def __getattr__(name: str) -> Any:
    """`Findings` where it is asked for: what `ahead` reads needs none of its statistics."""
    if name != "Findings":
        raise AttributeError(name)
    from gspo_lab.findings.findings import Findings

    return Findings
