"""The cost of recording: measuring, making and writing a step's records, as a share of the step's
time.

    python benchmarks/recording.py [RUNS_FOLDER]      # the runs of its lab.db

Reads `seconds_record` and `seconds_step` of every recorded step. The worker measures the former
around everything that only recording needs, the disk included. Prints the median share per study
and writes it beside this file as JSON.
"""

import json
import sqlite3
import statistics
import sys
from pathlib import Path


def shares(database: Path) -> dict[str, dict[str, float]]:
    """Per study the median step, the median recording and their ratio."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    rows = connection.execute(
        "SELECT study, seconds_record, seconds_step FROM steps JOIN runs USING (run_id) WHERE"
        " step > 0"
    ).fetchall()
    out = {}
    for study in sorted({row[0] for row in rows}):
        record = statistics.median(row[1] for row in rows if row[0] == study)
        step = statistics.median(row[2] for row in rows if row[0] == study)
        out[study] = {"record_ms": 1e3 * record, "step_ms": 1e3 * step, "share": record / step}
    return out


def main() -> None:
    runs = Path(sys.argv[1] if len(sys.argv) > 1 else "runs")
    found = shares(runs / "lab.db")
    for study, one in found.items():
        print(
            f"{study}: {one['record_ms']:.2f} ms of {one['step_ms']:.0f} ms, {one['share']:.2%} of"
            " a step"
        )
    Path(__file__).with_suffix(".json").write_text(
        json.dumps(found, indent=1, sort_keys=True) + "\n"
    )


if __name__ == "__main__":
    main()
