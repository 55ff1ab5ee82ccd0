from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from gspo_lab.cli.options import RUNS, Jobs, Json, On, Runs, of_a_study
from gspo_lab.errors import LabError

if TYPE_CHECKING:
    from gspo_lab.study import Study

EXAMPLES = (
    "Examples:  gspo-lab plan studies/moe_stability.toml   |   gspo-lab plan my.toml --seeds 8   |   "
    "gspo-lab plan my.toml --sd 0.03"
)

LARGEST_SD = 1.5
"""Scores lie from 0 to 1: differences of -1 and 1 by turns have an sd of 1.41 over two seeds, and less over more."""


@of_a_study
def plan(
    wanted: "Callable[..., Study]",
    jobs: Jobs = None,
    on: On = "local",
    sd: Annotated[
        float | None, typer.Option(help="Assume this sd of a pair's difference instead of a measured one.")
    ] = None,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Say what a study would cost and the smallest effect it could detect, before any compute is spent."""
    from dataclasses import asdict

    from gspo_lab.cli.output import print_json
    from gspo_lab.plan import plan as plan_study
    from gspo_lab.plan.detectable import detectable

    if sd is not None and not 0 <= sd <= LARGEST_SD:
        raise LabError(f"--sd {sd:g}: differences of scores have an sd from 0 to {LARGEST_SD:g}, e.g. --sd 0.03")
    study = wanted()
    planned, found = plan_study(study, runs, on=on, jobs=jobs), detectable(study, runs, sd)
    if json:
        print_json({**planned.to_json(), "detectable": asdict(found)})
    else:
        typer.echo("\n".join([*planned.lines(), found.line()]))
