import typer

from gspo_lab.cli.shared_options import RUNS, Runs, tell
from gspo_lab.layout import database_of
from gspo_lab.states import Exit

EXAMPLES = ("gspo-lab rebuild",)


def rebuild(runs: Runs = RUNS) -> None:
    """Write the database again from the journals.

    The journals do not change. A damaged database is kept under another name. Exit code 1: a journal is damaged or lies
    in the wrong folder, and what it holds is missing.
    """
    from gspo_lab.store import rebuild as rebuild_database

    report = rebuild_database(runs)
    for line in report.damaged:
        tell(line)
    if report.replaced is not None:
        tell(f"the old database was damaged; it is kept as {report.replaced}: delete it when you do not need it")
    typer.echo(f"{database_of(runs)}: {report.records:,} records of {report.runs} runs")
    if report.damaged:
        raise typer.Exit(Exit.INCOMPLETE)
