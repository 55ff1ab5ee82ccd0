from pathlib import Path
from typing import Annotated, Literal

import typer

from gspo_lab.cli.options import RUNS, Runs, evidence_of, study_named
from gspo_lab.layout import database_of

EXAMPLES = "Examples:  gspo-lab export quickstart   |   gspo-lab export moe_stability --format parquet --to data/"


def export(
    study: Annotated[str | None, typer.Argument(help="The study; all of them if none is named.")] = None,
    to: Annotated[Path, typer.Option(help="Folder for the files, one per table.")] = Path("export"),
    format: Annotated[Literal["csv", "parquet"], typer.Option(help="The files' format.")] = "csv",
    runs: Runs = RUNS,
) -> None:
    """Write a study's tables as CSV or Parquet files."""
    from gspo_lab.store import export as export_tables

    with evidence_of(runs) as evidence:
        if study is not None:
            study_named(evidence, study, runs)
    for path in export_tables(database_of(runs), study, to, format):
        typer.echo(str(path))
