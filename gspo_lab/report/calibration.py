"""How often the verdict's own rule is wrong when in truth nothing differs, as it was measured on that very code."""

import functools
import importlib.resources
import json
from typing import Any

ALPHA = 0.05
"""The simulated studies were judged at this level; of others nothing was measured."""


@functools.cache
def record() -> dict[str, Any]:
    """What `gspo-lab calibrate --json` printed of the code of this version: `calibration.json` in this package."""
    path = importlib.resources.files("gspo_lab.report").joinpath("calibration.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def calibration_line(n: int, alpha: float) -> str | None:
    """The rule's false alarms at `n` pairs in one line; None where it was never measured (n < 3, another alpha)."""
    rows = [
        row for row in record()["rows"] if row["method"] == "paired t over seeds" and row["cell"].startswith("score")
    ]
    if n < min(row["n"] for row in rows) or alpha != ALPHA:
        return None
    size = n if n in {row["n"] for row in rows} else max(row["n"] for row in rows if row["n"] < n)
    own = {row["cell"]: row["rate"] for row in rows if row["n"] == size}
    worst = max(own.values())
    return (
        f"Calibrated: {_percent(own['score, normal'])} false alarms in {record()['studies']:,} simulated studies of "
        f"{size} pairs without a difference, at most {_percent(worst)} where runs are uneven, skewed or collapse"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
