"""The error rates of the verdict's rule, for `certify --rule`."""

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from gspo_lab.cli.output import print_json, print_lines
from gspo_lab.common.text import tenth_percent

if TYPE_CHECKING:
    from gspo_lab.analysis.stats.calibration import CalibrationRow


def measure_error_rates(simulations: int, *, json: bool) -> bool:
    """Print the verdict's error rates on simulated studies whose true effects are known.

    Returns whether every rate lies in its band.
    """
    import numpy as np
    from rich.console import Console

    from gspo_lab.analysis.claims.estimates import CLAIM_CELLS
    from gspo_lab.analysis.stats.calibration import SEED, run_calibration
    from gspo_lab.analysis.stats.simulation_cells import CELLS

    with Console(stderr=True).status("simulating studies whose truth is known") as status:
        numbers = count(1)

        def progress(row: "CalibrationRow") -> None:
            status.update(f"{next(numbers)} rows; last: {row.cell}, n = {row.n}, {row.method}")

        rng = np.random.default_rng(SEED)
        rows = run_calibration(simulations, rng, progress, (*CELLS, *CLAIM_CELLS))
    passed = all(row.passed for row in rows)
    if json:
        data = {"ok": passed, "studies": simulations, "seed": SEED}
        print_json(data | {"rows": [row.to_json() for row in rows]})
    else:
        print_lines(lines(rows))
    return passed


SECTIONS = {
    "False words: at most 5 % of studies, but for chance": (
        "inside the band",
        "at most the band",
        "at most half",
    ),
    "Negative controls: popular readings that must fail": ("must fail",),
    (
        "Means are equal, but one side is unstable, skewed or noisier: no rule keeps 5 %, so"
        " reports state the rate"
    ): ("stated",),
    "How often an answer is given: the rule's power, and what it cannot see": ("power",),
}


def lines(rows: "Sequence[CalibrationRow]") -> list[str]:
    """The rows for people, one line each."""
    text = [
        f"{rows[0].studies} studies a row: the share with a false word, its 99 % interval, the"
        " shares that favour the baseline and a treatment"
    ]
    for title, expectations in SECTIONS.items():
        text += [title, *(_line(row) for row in rows if row.expectation in expectations)]
    failing = [f"{row.cell}, n = {row.n}, {row.method}" for row in rows if not row.passed]
    if failing:
        text.append(f"not where it must be: {'; '.join(failing)}")
    else:
        text.append("every row lies where it must")
    return text


def _line(row: "CalibrationRow") -> str:
    low = tenth_percent(row.rate.low or 0.0)
    high = tenth_percent(row.rate.high or 1.0)
    shares = [tenth_percent(count / row.studies) for count in (row.for_baseline, row.for_treatment)]
    text = (
        f"  {row.cell:<60} n = {row.n:<2}  {row.method:<41} {tenth_percent(row.share):>6}"
        f" [{low:>6}, {high:>6}]  {shares[0]:>6} {shares[1]:>6}"
    )
    lowest, highest = row.limits
    if lowest is None and highest is None:
        return text
    least = tenth_percent(lowest or 0.0)
    most = tenth_percent(1.0 if highest is None else highest)
    ending = "ok" if row.passed else "WRONG"
    return f"{text}  must lie in [{least:>6}, {most:>7}]  {ending}"
