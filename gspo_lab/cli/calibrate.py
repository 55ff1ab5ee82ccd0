from typing import TYPE_CHECKING, Annotated, Any

import typer

from gspo_lab.cli.shared_options import Json
from gspo_lab.states import Exit

if TYPE_CHECKING:
    from gspo_lab.stats.calibration import Row

EXAMPLES = (
    "gspo-lab calibrate",
    "gspo-lab calibrate --simulations 300 --json",
)

SEED = 20250724
"""Fixed, so that the table is a test: with other seeds a two-sided row leaves its band once in a hundred times."""


def calibrate(
    simulations: Annotated[int, typer.Option(min=100, help="Simulated studies per kind of study.")] = 2000,
    json: Json = False,
) -> None:
    """Measure the verdict's error rates on simulated studies.

    The true effects are known. Exit with code 1 if a rate leaves its band.
    """
    import numpy as np
    from rich.console import Console

    from gspo_lab.claims.simulated import CLAIM_CELLS
    from gspo_lab.cli.output import print_json
    from gspo_lab.stats.calibration import run_calibration
    from gspo_lab.stats.cells import CELLS

    with Console(stderr=True).status("simulating studies whose truth is known") as status:
        done = 0

        def progress(row: "Row") -> None:
            nonlocal done
            done += 1
            status.update(f"{done} rows; last: {row.cell}, n = {row.n}, {row.method}")

        found = run_calibration(simulations, np.random.default_rng(SEED), progress, cells=(*CELLS, *CLAIM_CELLS))
    rows = [row.to_json() for row in found.rows]
    if json:
        print_json({"ok": found.ok, "studies": simulations, "seed": SEED, "rows": rows})
    else:
        typer.echo("\n".join(lines(rows, simulations)))
    if not found.ok:
        raise typer.Exit(Exit.INCOMPLETE)


def lines(rows: list[dict[str, Any]], studies: int) -> list[str]:
    """The rows for people, one line each, however narrow the terminal."""
    kept, failing, stated, told = (
        [row for row in rows if row["expectation"] in kinds]
        for kinds in ({"inside the band", "at most the band", "at most half"}, {"must fail"}, {"stated"}, {"told"})
    )
    wrong = [f"{row['cell']}, n = {row['n']}, {row['method']}" for row in rows if not row["passed"]]
    return [
        f"False alarms in {studies} studies a row. [99 % interval], coverage of 95 %",
        *map(_line, kept),
        "Negative controls: popular readings that must fail",
        *map(_line, failing),
        "Means are equal, but only one arm's runs are unstable or skewed: no rule keeps .05, so reports state the rate",
        *map(_line, stated),
        "How often an answer is given: the rule's power, and what it cannot see",
        *map(_line, told),
        "every row lies where it must" if not wrong else f"not where it must be: {'; '.join(wrong)}",
    ]


def _line(row: dict[str, Any]) -> str:
    rate = f"{row['rate']:.3f} [{row['rate_low']:.3f}, {row['rate_high']:.3f}]"
    shown = f"  {row['cell']:<51} n = {row['n']:<2}  {row['method']:<41} {rate}"
    if row["expectation"] in ("stated", "told"):
        return shown
    least, most = row["lowest"] or 0.0, 1.0 if row["highest"] is None else row["highest"]
    coverage = "     " if row["coverage"] is None else f"{row['coverage']:.3f}"
    return f"{shown}  {coverage}  must lie in [{least:.3f}, {most:.3f}]  {'ok' if row['passed'] else 'WRONG'}"
