"""How often the verdict's own rule is wrong when in truth nothing differs, as it was measured on that very code."""

import functools
import importlib.resources
import json
from typing import TYPE_CHECKING, Any

from gspo_lab.report.markup import Html, h, table
from gspo_lab.report.section import Section
from gspo_lab.study import primary_of

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

ALPHA = 0.05
"""The simulated studies were judged at this level; of others nothing was measured."""

MUST_FAIL = "must fail"


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


def calibration(evidence: "Evidence", study: str) -> Section | None:
    """The table behind the badge, with the popular readings that fail beside it; None where no score decides."""
    if primary_of(evidence.study(study)) is None or len(evidence.study(study)["arms"]) < 2:
        return None
    rows = record()["rows"]
    kept = [row for row in rows if row["expectation"] != MUST_FAIL]
    broken = [row for row in rows if row["expectation"] == MUST_FAIL]
    introduction = (
        f"{record()['studies']:,} simulated studies a row, in which in truth nothing differs, judged by the code that "
        f"judged this study. A rule that keeps its promise says otherwise in 5 % of them or fewer. "
        "gspo-lab calibrate runs it all again."
    )
    body = (
        h("p", introduction),
        table(HEAD, [_row(row) for row in broken], caption="Popular readings, which cry wolf"),
        h("details", h("summary", f"This report's rules, {len(kept)} rows"), table(HEAD, [_row(row) for row in kept])),
    )
    return Section("calibration", "Calibration", body)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


HEAD = ("kind of study", "pairs", "reading", "false alarms", "99 % interval")


def _row(row: dict[str, Any]) -> tuple[str | Html, ...]:
    interval = f"{row['rate_low']:.3f} to {row['rate_high']:.3f}"
    return row["cell"], str(row["n"]), row["method"], f"{row['rate']:.3f}", interval
