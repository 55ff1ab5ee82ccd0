from pathlib import Path
from typing import Annotated, Literal

import typer

from gspo_lab.cli.options import RUNS, Runs, evidence_of, study_named
from gspo_lab.errors import LabError
from gspo_lab.layout import database_of

EXAMPLES = (
    "Examples:  gspo-lab export quickstart   |   gspo-lab export moe_stability --format parquet --to data/   |   "
    "gspo-lab export quickstart --format tensorboard"
)
Format = Literal["csv", "parquet", "tensorboard", "trackio", "wandb-offline"]


def export(
    study: Annotated[str | None, typer.Argument(help="The study; of csv and parquet all if none is named.")] = None,
    to: Annotated[Path, typer.Option(help="Folder for what is written.")] = Path("export"),
    format: Annotated[
        Format, typer.Option(help="Tables as csv or parquet, or the runs as another program keeps them.")
    ] = "csv",
    runs: Runs = RUNS,
) -> None:
    """Write a study's tables as CSV or Parquet, or its runs for TensorBoard, trackio or W&B (offline)."""
    from gspo_lab.exporters import export as export_runs
    from gspo_lab.exporters import logged
    from gspo_lab.exporters.tables import write_log
    from gspo_lab.store import export as export_tables

    with evidence_of(runs) as evidence:
        if study is not None:
            study_named(evidence, study, runs)
        if format != "csv" and format != "parquet":
            if study is None:
                raise LabError(f"export --format {format}: of which study? It has {', '.join(evidence.studies())}")
            typer.echo(str(export_runs(evidence, study, to, format)))
            return
        paths = export_tables(database_of(runs), study, to, format)
        paths += [] if study is None else [write_log(logged(evidence, study), to, format)]
    for path in paths:
        typer.echo(str(path))
