from pathlib import Path
from typing import Annotated, Literal

import typer

from gspo_lab.cli.shared_options import RUNS, Runs, evidence_of, study_named
from gspo_lab.errors import LabError
from gspo_lab.layout import database_of

EXAMPLES = (
    "gspo-lab export quickstart",
    "gspo-lab export moe_stability --format parquet --output-dir data/",
    "gspo-lab export quickstart --format tensorboard",
)
Format = Literal["csv", "parquet", "tensorboard", "trackio", "wandb-offline"]


def export(
    study: Annotated[
        str | None, typer.Argument(help="Study to export. Default for csv and parquet: all studies.")
    ] = None,
    output_dir: Annotated[Path, typer.Option(help="Folder for the exported files.")] = Path("export"),
    format: Annotated[Format, typer.Option(help="Tables as csv or parquet, or the runs for another program.")] = "csv",
    runs: Runs = RUNS,
) -> None:
    """Write tables as CSV or Parquet, or runs for other programs.

    The other programs are TensorBoard, trackio and W&B (offline).
    """
    from gspo_lab.exporters import export as export_runs
    from gspo_lab.exporters import logged
    from gspo_lab.exporters.logged import write_readings
    from gspo_lab.exporters.tables import write_log
    from gspo_lab.store import export as export_tables

    with evidence_of(runs) as evidence:
        if study is not None:
            study_named(evidence, study, runs)
        if format != "csv" and format != "parquet":
            if study is None:
                raise LabError(f"export --format {format}: of which study? It has {', '.join(evidence.studies())}")
            typer.echo(str(export_runs(evidence, study, output_dir, format)))
            return
        paths = export_tables(database_of(runs), study, output_dir, format)
        if study is not None:
            paths += [write_log(logged(evidence, study), output_dir, format), write_readings(output_dir)]
    for path in paths:
        typer.echo(str(path))
