"""The table behind the calibration's badge."""

from typing import Any

from gspo_lab.readings import Source
from gspo_lab.report.calibration import record
from gspo_lab.report.markup import Html, h, table
from gspo_lab.report.section import Section

MUST_FAIL = "must fail"


def calibration(found: Source) -> Section | None:
    """The table behind the badge, with the popular readings that fail beside it; None where no score decides."""
    if found.declaration.primary is None or len(found.arms) < 2:
        return None
    rows = record()["rows"]
    kept = [row for row in rows if row["expectation"] != MUST_FAIL]
    broken = [row for row in rows if row["expectation"] == MUST_FAIL]
    introduction = (
        f"{record()['studies']:,} simulated studies a row whose truth is known, judged by the code that judged this "
        "study. A rule that keeps its promise is wrong in 5 % of them or fewer; the rows of true equivalence show how "
        "often the rule says so. "
        "gspo-lab calibrate runs it all again."
    )
    body = (
        h("p", introduction),
        table(HEAD, [_row(row) for row in broken], caption="Popular readings, which cry wolf"),
        h("details", h("summary", f"This report's rules, {len(kept)} rows"), table(HEAD, [_row(row) for row in kept])),
    )
    return Section("calibration", "Calibration", body)


HEAD = ("kind of study", "pairs", "reading", "share of studies", "99 % interval")


def _row(row: dict[str, Any]) -> tuple[str | Html, ...]:
    interval = f"{row['rate_low']:.3f} to {row['rate_high']:.3f}"
    return row["cell"], str(row["n"]), row["method"], f"{row['rate']:.3f}", interval
