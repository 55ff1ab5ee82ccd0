"""Measures the error rates that reports state, and writes them beside the code that decides.

    python benchmarks/error_rates.py        four minutes on one core
    python docs/make_reference.py           then the table of docs/

`gspo-lab certify --rule` prints the same rates and checks them.
"""

import csv
from pathlib import Path

import numpy as np

from gspo_lab.analysis.claims.estimates import CLAIM_CELLS
from gspo_lab.analysis.stats import calibration
from gspo_lab.analysis.stats.simulation_cells import CELLS


def main() -> None:
    """Write gspo_lab/analysis/stats/error_rates.csv."""
    rng = np.random.default_rng(calibration.SEED)
    rows = calibration.run_calibration(
        calibration.STUDIES, rng, lambda row: print(row, flush=True), (*CELLS, *CLAIM_CELLS)
    )
    path = Path(calibration.__file__).with_name("error_rates.csv")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(
            file, calibration.COLUMNS, extrasaction="ignore", lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(map(vars, rows))


if __name__ == "__main__":
    main()
