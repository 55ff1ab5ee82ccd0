from typing import Annotated

import typer

from gspo_lab.cli.run import carry_out, checked
from gspo_lab.cli.shared_options import REPORTS, RUNS, Accept, DryRun, IgnoreMemory, Jobs, Json, On, OutputDir, Runs

EXAMPLES = (
    "gspo-lab replicate quickstart --dry-run",
    "gspo-lab replicate studies/quickstart.toml",
    "gspo-lab replicate quickstart --new",
)


def replicate(
    study: Annotated[str, typer.Argument(help="A finished study: its name or its TOML file.", show_default=False)],
    new: Annotated[bool, typer.Option("--new", help="Start a new replication. Default: resume the latest.")] = False,
    jobs: Jobs = None,
    on: On = "local",
    ignore_memory_check: IgnoreMemory = False,
    dry_run: DryRun = False,
    accept_mismatch: Accept = None,
    output_dir: OutputDir = REPORTS,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Run a finished study again on new seeds and compare.

    The report says which verdicts the replication confirms. The same command resumes a stopped replication.
    """
    from gspo_lab.cli.output import print_json, print_lines
    from gspo_lab.conduct.replication import replication
    from gspo_lab.plan import plan

    checked(accept_mismatch, output_dir)
    wanted = replication(study, runs, another=new)
    planned = plan(wanted.study, runs, on=on, jobs=jobs)
    told = [*wanted.lines, *planned.lines()]
    if dry_run:
        print_json({**planned.to_json(), "replicates": wanted.original.name}) if json else print_lines(told)
        return
    print_lines(told, err=json)
    carry_out(
        wanted.study,
        runs,
        output_dir,
        on=on,
        jobs=jobs,
        ignore_memory_check=ignore_memory_check,
        accept_mismatch=accept_mismatch,
        json=json,
        also=wanted.original.name,
    )
