import typer

from gspo_lab.cli.options import RUNS, Runs, tell
from gspo_lab.layout import database_of

EXAMPLES = "Example:  gspo-lab rebuild"


def rebuild(runs: Runs = RUNS) -> None:
    """Make the database again from the runs' journals, which are never changed. A damaged one is kept beside it."""
    from gspo_lab.store import rebuild as rebuild_database

    report = rebuild_database(runs)
    for line in report.damaged:
        tell(line)
    if report.replaced is not None:
        tell(f"the old database was damaged; it is kept as {report.replaced}: delete it when you do not need it")
    typer.echo(f"{database_of(runs)}: {report.records:,} records of {report.runs} runs")
