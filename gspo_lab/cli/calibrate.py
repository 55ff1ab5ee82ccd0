"""The error rates of the verdict's rule, for `certify --rule`."""

from itertools import count
from typing import TYPE_CHECKING, Any

from gspo_lab.cli.output import console, print_json, print_lines

if TYPE_CHECKING:
    from gspo_lab.analysis.stats.calibration import CalibrationRow

SEED = 20250724
"""Fixed, so that the table is a test: with a random seed a two-sided row leaves its band once in a
hundred times.
"""


def measure_error_rates(simulations: int, *, json: bool) -> bool:
    """Print the verdict's error rates on simulated studies whose true effects are known.

    Returns whether every rate lies in its band.
    """
    import numpy as np

    from gspo_lab.analysis.claims.estimates import CLAIM_CELLS
    from gspo_lab.analysis.stats.calibration import run_calibration
    from gspo_lab.analysis.stats.simulation_cells import CELLS

    with console(stderr=True).status("simulating studies whose truth is known") as status:
        rows_done = count(1)

        def progress(row: "CalibrationRow") -> None:
            status.update(f"{next(rows_done)} rows; last: {row.cell}, n = {row.n}, {row.method}")

        table = run_calibration(
            simulations, np.random.default_rng(SEED), progress, cells=(*CELLS, *CLAIM_CELLS)
        )
    rows = [row.to_json() for row in table.rows]
    if json:
        print_json({"ok": table.ok, "studies": simulations, "seed": SEED, "rows": rows})
    else:
        print_lines(lines(rows, simulations))
    return table.ok


def lines(rows: list[dict[str, Any]], studies: int) -> list[str]:
    """The rows for people, one line each."""
    keeping = [
        row
        for row in rows
        if row["expectation"] in {"inside the band", "at most the band", "at most half"}
    ]
    failing = [row for row in rows if row["expectation"] in {"must fail"}]
    stated_rates = [row for row in rows if row["expectation"] in {"stated"}]
    powers = [row for row in rows if row["expectation"] in {"told"}]
    failures = [
        f"{row['cell']}, n = {row['n']}, {row['method']}" for row in rows if not row["passed"]
    ]
    return [
        f"False alarms in {studies} studies a row. [99 % interval], coverage of 95 %",
        *map(_line, keeping),
        "Negative controls: popular readings that must fail",
        *map(_line, failing),
        (
            "Means are equal, but only one arm's runs are unstable or skewed: no rule keeps .05, so"
            " reports state the rate"
        ),
        *map(_line, stated_rates),
        "How often an answer is given: the rule's power, and what it cannot see",
        *map(_line, powers),
        (
            "every row lies where it must"
            if not failures
            else f"not where it must be: {'; '.join(failures)}"
        ),
    ]


def _line(row: dict[str, Any]) -> str:
    rate = f"{row['rate']:.3f} [{row['rate_low']:.3f}, {row['rate_high']:.3f}]"
    written = f"  {row['cell']:<51} n = {row['n']:<2}  {row['method']:<41} {rate}"
    if row["expectation"] in ("stated", "told"):
        return written
    least = row["lowest"] or 0.0
    most = 1.0 if row["highest"] is None else row["highest"]
    coverage = "     " if row["coverage"] is None else f"{row['coverage']:.3f}"
    passed = "ok" if row["passed"] else "WRONG"
    return f"{written}  {coverage}  must lie in [{least:.3f}, {most:.3f}]  {passed}"
