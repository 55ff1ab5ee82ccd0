"""`import` and `export`: logs of other programs, and tables and runs for them."""

import tomllib
from pathlib import Path
from typing import Annotated, Literal

import typer

from gspo_lab.cli.output import print_lines
from gspo_lab.cli.shared_options import (
    RUNS,
    ConfigFile,
    LoggedBy,
    Mapped,
    Runs,
    evidence_of,
    study_named,
    update_lab,
)
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import database_of

EXAMPLES = {
    "import": (
        "gspo-lab import trl out/gspo-s0 --study mine --arm gspo --seed 0 --set objective=gspo",
        "gspo-lab import my_runs.toml",
        "gspo-lab import csv scores.csv --study mine",
        "gspo-lab import tensorboard 'logs/{arm}/{seed}' --logged-by verl --study mine",
    ),
    "export": (
        "gspo-lab export quickstart",
        "gspo-lab export moe_stability --format parquet --output-dir data/",
        "gspo-lab export quickstart --format tensorboard",
    ),
}


RULE = "verdict."


def import_logs(
    source: Annotated[
        str,
        typer.Argument(
            help=(
                "jsonl, csv, parquet, trl, tensorboard, verl, wandb, trackio, items,"
                " file.py:READER, or a TOML."
            )
        ),
    ],
    path: Annotated[
        str | None,
        typer.Argument(help="The log: a file or folder, or a pattern with {arm} and {seed}."),
    ] = None,
    study: Annotated[str | None, typer.Option(help="Study that receives the runs.")] = None,
    arm: Annotated[str | None, typer.Option(help="Arm of the run.")] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of the run. Runs of one seed are compared with each other."),
    ] = None,
    run_pattern: Annotated[
        str | None,
        typer.Option(
            help=(
                "Run to read from a file with several runs: its name, or a pattern with {arm} and"
                " {seed}."
            )
        ),
    ] = None,
    mapped: Mapped = None,
    score_metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[BENCH=]NAME",
            help="Metric to import as the benchmark score. Default: the source's usual one.",
        ),
    ] = None,
    logged_by: LoggedBy = None,
    bench: Annotated[
        str | None, typer.Option(help="Benchmark of per-item results (source items).")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the arm: objective=gspo, verdict.margin=0.01. Repeatable.",
        ),
    ] = None,
    ignored: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore", metavar="KEY", help="Configuration key that changes nothing. Repeatable."
        ),
    ] = None,
    config: ConfigFile = None,
    question: Annotated[str | None, typer.Option(help="Question of the study.")] = None,
    runs: Runs = RUNS,
) -> None:
    """Turn the logs of another program into a study."""
    from gspo_lab.exchange.importers import (
        SOURCES,
        import_file,
        import_runs,
        parse_run_spec,
        parse_stated_study,
    )

    if path is None:
        if not source.endswith(".toml"):
            raise LabError(
                f"import {source}: name a TOML file, or a source ({', '.join(SOURCES)}) and the"
                " path of the log"
            )
        imported = import_file(Path(source), runs, study)
    else:
        if study is None:
            raise LabError("--study is missing: name the study that receives the runs")
        scores = {
            key: value or key
            for key, _, value in (entry.partition("=") for entry in score_metric or ())
        }
        options: dict[str, object] = {
            "source": source,
            "path": path,
            "arm": arm,
            "seed": seed,
            "run_pattern": run_pattern,
            "logged_by": logged_by,
            "config": config,
            "map": parse_columns(mapped),
            "bench": bench,
            "ignore": ignored or [],
            "score": scores,
        }
        settings = parse_settings(overrides)
        rule = {
            key.removeprefix(RULE): settings.pop(key)
            for key in list(settings)
            if key.startswith(RULE)
        }
        raw: dict[str, object] = {"arm": {arm: settings}} if arm else settings
        raw |= {"question": question, "verdict": rule or None}
        imported = import_runs(
            runs,
            parse_stated_study(raw, study, "gspo-lab import"),
            [parse_run_spec(options, "gspo-lab import")],
        )
    print_lines([f"{run.id}: {run.state}" for run in imported.runs])
    print_lines([f"note: {note}" for note in imported.notes])
    update_lab(runs)
    typer.echo(f"next: gspo-lab report {imported.study}")


def parse_pair(entry: str, option: str, form: str) -> tuple[str, str]:
    """The two sides of KEY=VALUE. LabError where it is none."""
    key, _, value = entry.partition("=")
    if not key or not value:
        raise LabError(f"{option} {entry}: write it as {option} {form}")
    return key, value


def parse_columns(mapped: list[str] | None) -> dict[str, str]:
    """The columns and names of --map COLUMN=NAME."""
    return dict(parse_pair(entry, "--map", "COLUMN=NAME") for entry in mapped or ())


def parse_settings(overrides: list[str] | None) -> dict[str, object]:
    """The settings of --set KEY=VALUE, each value as TOML, else as text."""
    out: dict[str, object] = {}
    for entry in overrides or ():
        key, value = parse_pair(entry, "--set", "key=value, e.g. --set objective=gspo")
        if key.startswith("arm."):
            raise LabError(
                f"--set {key}: --set is for the one arm that --arm names; state the settings of"
                " several arms in a study TOML, as docs/how-to/import-runs.md shows: gspo-lab"
                " import mine.toml"
            )
        try:
            out[key] = tomllib.loads(f"value = {value}")["value"]
        except ValueError:
            out[key] = value
    return out


def export(
    study: Annotated[
        str | None,
        typer.Argument(help="Study to export. Default for csv and parquet: all studies."),
    ] = None,
    output_dir: Annotated[Path, typer.Option(help="Folder for the exported files.")] = Path(
        "export"
    ),
    format: Annotated[
        str,
        typer.Option(
            help="Tables as csv or parquet, or the runs for tensorboard, trackio or wandb-offline."
        ),
    ] = "csv",
    runs: Runs = RUNS,
) -> None:
    """Write tables as CSV or Parquet, or runs for other programs.

    The other programs are TensorBoard, trackio and W&B (offline).
    """
    from gspo_lab.exchange.exporters import export as export_runs
    from gspo_lab.exchange.exporters import read_run_rows, write_log
    from gspo_lab.recording.store import export as export_tables

    with evidence_of(runs) as evidence:
        if study is not None:
            study_named(evidence, study, runs)
        if format not in ("csv", "parquet"):
            if study is None:
                raise LabError(
                    f"export --format {format}: of which study? It has"
                    f" {', '.join(evidence.studies())}"
                )
            print_lines([str(export_runs(evidence, study, output_dir, format))])
            return
        kind: Literal["csv", "parquet"] = "parquet" if format == "parquet" else "csv"
        paths = export_tables(database_of(runs), study, output_dir, kind)
        if study is not None:
            paths.append(write_log(read_run_rows(evidence, study), output_dir, kind))
    for path in paths:
        print_lines([str(path)])
