from pathlib import Path
from typing import Annotated

import typer

from gspo_lab.cli.shared_options import RUNS, Runs
from gspo_lab.errors import LabError

EXAMPLES = (
    "gspo-lab import trl out/gspo-s0 --study mine --arm gspo --seed 0 --set objective=gspo",
    "gspo-lab import my_runs.toml",
    "gspo-lab import csv scores.csv --study mine",
    "gspo-lab import tensorboard 'logs/{arm}/{seed}' --logged-by verl --study mine",
)


RULE = "verdict."


def import_command(
    source: Annotated[
        str, typer.Argument(help="jsonl, csv, parquet, trl, tensorboard, verl, wandb, trackio, items, or a TOML file.")
    ],
    path: Annotated[
        str | None, typer.Argument(help="The log: a file or folder, or a pattern with {arm} and {seed}.")
    ] = None,
    study: Annotated[str | None, typer.Option(help="Study that receives the runs.")] = None,
    arm: Annotated[str | None, typer.Option(help="Arm of the run.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the run. Runs of one seed are compared with each other.")
    ] = None,
    run_pattern: Annotated[
        str | None,
        typer.Option(help="Run to read from a file with several runs: its name, or a pattern with {arm} and {seed}."),
    ] = None,
    mapped: Annotated[
        list[str] | None,
        typer.Option(
            "--map", metavar="COLUMN=NAME", help="Name of a column in the log, for example reward=train/r. Repeatable."
        ),
    ] = None,
    score_metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[BENCH=]NAME", help="Metric to import as the benchmark score. Default: the source's usual one."
        ),
    ] = None,
    logged_by: Annotated[
        str | None, typer.Option(help="Program whose metric names the log uses, for example verl in TensorBoard.")
    ] = None,
    bench: Annotated[str | None, typer.Option(help="Benchmark of per-item results (source items).")] = None,
    told: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the arm, for example objective=gspo, or verdict.margin=0.01. Repeatable.",
        ),
    ] = None,
    ignored: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="KEY", help="Configuration key that changes nothing. Repeatable."),
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Configuration of the run, as JSON or YAML.")
    ] = None,
    question: Annotated[str | None, typer.Option(help="Question of the study.")] = None,
    runs: Runs = RUNS,
) -> None:
    """Turn the logs of another program into a study."""
    from gspo_lab.cli.output import print_lines
    from gspo_lab.cli.shared_options import bring_up_to_date
    from gspo_lab.importers import SOURCES, import_file, import_runs
    from gspo_lab.importers.declare import said
    from gspo_lab.importers.wanted import wanted

    if path is None:
        if not source.endswith(".toml"):
            raise LabError(
                f"import {source}: name a TOML file, or a source ({', '.join(SOURCES)}) and the path of the log"
            )
        done = import_file(Path(source), runs, study)
    else:
        if study is None:
            raise LabError("--study is missing: name the study that receives the runs")
        said_of_runs = {
            "arm": arm,
            "seed": seed,
            "name": run_pattern,
            "program": logged_by,
            "bench": bench,
            "config": config,
        }
        table = {
            "source": source,
            "path": path,
            **{key: value for key, value in said_of_runs.items() if value is not None},
            "map": _pairs(mapped, "--map"),
            "ignore": ignored or [],
        }
        scores = {key or value: value for key, value in (_halves(one) for one in score_metric or ())} or None
        settings = _settings(told)
        rule = {key.removeprefix(RULE): settings.pop(key) for key in list(settings) if key.startswith(RULE)}
        raw: dict[str, object] = {"question": question} if question else {}
        raw |= {"verdict": rule} if rule else {}
        raw |= {"arm": {arm: settings}} if arm else settings
        done = import_runs(runs, said(raw, study, "gspo-lab import"), [wanted(table, "gspo-lab import", scores)])
    print_lines([f"{put.run}: {put.what}" for put in done.puts])
    print_lines([f"note: {note}" for note in done.notes])
    bring_up_to_date(runs)
    typer.echo(f"next: gspo-lab report {done.study}")


def _pairs(entries: list[str] | None, option: str) -> dict[str, str]:
    out = {}
    for entry in entries or ():
        key, _, value = entry.partition("=")
        if not key or not value:
            raise LabError(f"{option} {entry}: write it as {option} COLUMN=NAME")
        out[key] = value
    return out


def _halves(entry: str) -> tuple[str, str]:
    key, between, value = entry.partition("=")
    return (key, value) if between else ("", entry)


def _settings(told: list[str] | None) -> dict[str, object]:
    import tomllib

    out: dict[str, object] = {}
    for entry in told or ():
        key, _, value = entry.partition("=")
        if not key or not value:
            raise LabError(f"--set {entry}: write it as --set key=value, e.g. --set objective=gspo")
        try:
            out[key] = tomllib.loads(f"value = {value}")["value"]
        except ValueError:
            out[key] = value
    return out
