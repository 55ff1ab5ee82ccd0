"""gspo-lab: matched comparisons of GRPO and GSPO, with a verdict that a sceptic can trust.

`gspo_lab.open("runs")` reads what was recorded and found: docs/how-to/python-and-export.md.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gspo_lab.report.lab import Lab

__version__ = "0.1.0"


def open(runs: str | Path = "runs") -> "Lab":
    """A folder of runs, read-only: `Lab`. LabError where nothing was recorded."""
    from gspo_lab.report.lab import Lab

    return Lab.open(runs)
