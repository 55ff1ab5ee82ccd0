from pathlib import Path
from typing import Annotated

import typer

from gspo_lab.cli.options import RUNS, Accept, Jobs, Json, On, Runs
from gspo_lab.cli.run import carry_out, checked

EXAMPLES = (
    "Examples:  gspo-lab replicate quickstart --dry-run   |   gspo-lab replicate studies/quickstart.toml   |   "
    "gspo-lab replicate quickstart --another"
)


def replicate(
    study: Annotated[
        str, typer.Argument(help="A study that was run, by its name or its TOML file.", show_default=False)
    ],
    another: Annotated[
        bool, typer.Option("--another", help="Begin a further replication; without it the latest is gone on with.")
    ] = False,
    jobs: Jobs = None,
    on: On = "local",
    yes: Annotated[bool, typer.Option("--yes", help="Go on though a run is estimated to need more memory.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and its cost, and do nothing.")] = False,
    accept_mismatch: Accept = None,
    reports: Annotated[Path, typer.Option(help="Folder for the reports.")] = Path("reports"),
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Run a declared study again on fresh seeds and fresh starts, and say which of its words held.

    The same command goes on where it stopped; --another begins the next replication.
    """
    from gspo_lab.cli.output import print_json
    from gspo_lab.conduct.replication import replication
    from gspo_lab.plan import plan

    checked(accept_mismatch, reports)
    wanted = replication(study, runs, another=another)
    planned = plan(wanted.study, runs, on=on, jobs=jobs)
    told = [*wanted.lines, *planned.lines()]
    if dry_run:
        print_json({**planned.to_json(), "replicates": wanted.original.name}) if json else typer.echo("\n".join(told))
        return
    typer.echo("\n".join(told), err=json)
    carry_out(
        wanted.study,
        runs,
        reports,
        on=on,
        jobs=jobs,
        yes=yes,
        accept_mismatch=accept_mismatch,
        json=json,
        also=wanted.original.name,
    )
