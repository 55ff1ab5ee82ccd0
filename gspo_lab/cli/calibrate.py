from typing import TYPE_CHECKING, Annotated

import typer

from gspo_lab.cli.options import Json
from gspo_lab.states import Exit

if TYPE_CHECKING:
    from gspo_lab.stats.calibration import Row

EXAMPLES = "Examples:  gspo-lab calibrate   |   gspo-lab calibrate --studies 300 --json"

SEED = 20250724
"""Fixed, so that the table is a test: with other seeds a two-sided row leaves its band once in a hundred times."""


def calibrate(
    studies: Annotated[int, typer.Option(min=100, help="Simulated studies per kind of study.")] = 2000,
    json: Json = False,
) -> None:
    """Put the decision code through thousands of studies in which nothing differs. Exit code 1 if it cries wolf."""
    import numpy as np
    from rich.console import Console

    from gspo_lab.cli.output import print_json
    from gspo_lab.stats.calibration import run_calibration

    with Console(stderr=True).status("simulating studies in which nothing differs") as status:
        done = 0

        def progress(row: "Row") -> None:
            nonlocal done
            done += 1
            status.update(f"{done} rows; last: {row.cell}, n = {row.n}, {row.method}")

        found = run_calibration(studies, np.random.default_rng(SEED), progress)
    if json:
        print_json({"ok": found.ok, "studies": studies, "seed": SEED, "rows": [_data(row) for row in found.rows]})
    else:
        typer.echo(
            f"False alarms in {studies} studies a row; in truth nothing differs. [99 % interval], coverage of 95 %"
        )
        _print([row for row in found.rows if row.expectation != "must fail"])
        typer.echo("Negative controls: popular readings that must fail")
        _print([row for row in found.rows if row.expectation == "must fail"])
        wrong = [f"{row.cell}, n = {row.n}, {row.method}" for row in found.rows if not row.passed]
        typer.echo("every row lies where it must" if found.ok else f"not where it must be: {'; '.join(wrong)}")
    if not found.ok:
        raise typer.Exit(Exit.INCOMPLETE)


def _data(row: "Row") -> dict[str, object]:
    return {
        "cell": row.cell,
        "method": row.method,
        "n": row.n,
        "studies": row.studies,
        "false_alarms": row.rate.k,
        "rate": row.rate.k / row.rate.n,
        "rate_low": row.rate.low,
        "rate_high": row.rate.high,
        "coverage": row.coverage,
        "median_width": row.median_width,
        "withheld": row.withheld,
        "expectation": row.expectation,
        "lowest": row.lowest,
        "highest": row.highest,
        "passed": row.passed,
    }


def _print(rows: "list[Row]") -> None:
    """One line a row, however narrow the terminal."""
    for row in rows:
        least, most = row.lowest or 0.0, 1.0 if row.highest is None else row.highest
        rate = f"{row.rate.k / row.rate.n:.3f} [{row.rate.low:.3f}, {row.rate.high:.3f}]"
        coverage = "     " if row.coverage is None else f"{row.coverage:.3f}"
        bounds = f"must lie in [{least:.3f}, {most:.3f}]"
        mark = "ok" if row.passed else "WRONG"
        typer.echo(f"  {row.cell:<43} n = {row.n}  {row.method:<31} {rate}  {coverage}  {bounds}  {mark}")
