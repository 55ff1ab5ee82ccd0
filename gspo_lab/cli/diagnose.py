"""`diagnose`: one training log, without a study."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gspo_lab.cli.exchange import parse_pair, parse_settings
from gspo_lab.cli.output import console, print_json, print_lines
from gspo_lab.cli.shared_options import ConfigFile, Json, LoggedBy, Mapped
from gspo_lab.common.states import Exit
from gspo_lab.common.text import visible

if TYPE_CHECKING:
    from gspo_lab.analysis.diagnosis import Diagnosis

EXAMPLES = {
    "diagnose": (
        "gspo-lab diagnose out/checkpoint-40 --set objective=gspo",
        "gspo-lab diagnose verl.log --config .hydra/config.yaml",
        "gspo-lab diagnose runs/my_study/gspo/s0 --fail-on error",
    ),
}
COLOURS = {"error": "red", "warn": "yellow", "note": "cyan", "unknown": "dim", "ok": "green"}


def diagnose(
    log: Annotated[
        str,
        typer.Argument(
            help="A log of any source of import, or a run's folder of gspo-lab.", show_default=False
        ),
    ],
    source: Annotated[
        str, typer.Option(help="Kind of log, as import names it. Default: by its name and content.")
    ] = "",
    run: Annotated[str | None, typer.Option(help="Run to read from a file with several.")] = None,
    logged_by: LoggedBy = None,
    mapped: Mapped = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting that the log lacks: objective=gspo. Repeatable.",
        ),
    ] = None,
    config: ConfigFile = None,
    fail_on: Annotated[
        Literal["note", "warn", "error"] | None,
        typer.Option(help="Exit with code 1 if a signal has this level or a worse one."),
    ] = None,
    json: Json = False,
) -> None:
    """Tell what one training log shows, signal by signal.

    Each line has the value, what is usual for this rule with the source, and the key to change. One
    run says nothing about whether GRPO or GSPO is better.
    """
    from gspo_lab.analysis.diagnosis import LEVELS, read_log
    from gspo_lab.analysis.diagnosis import diagnose as diagnose_log
    from gspo_lab.exchange.importers import RunSpec, parse_run_spec, parse_stated_study
    from gspo_lab.exchange.importers.run_specs import SOURCES

    columns = dict(parse_pair(entry, "--map", "COLUMN=NAME") for entry in mapped or ())
    options = {"path": log, "logged_by": logged_by, "map": columns, "config": config}
    checked = parse_run_spec({**options, "source": source or next(iter(SOURCES))}, "diagnose")
    spec: RunSpec = checked.replace(source=source)
    settings = parse_stated_study(parse_settings(overrides), "log", "gspo-lab diagnose")
    diagnosis = diagnose_log(read_log(spec, run, settings.of("")))
    if json:
        print_json(
            {**asdict(diagnosis), "worst": diagnosis.worst, "recognised": diagnosis.recognised()}
        )
    else:
        _print(diagnosis)
    failed = fail_on is not None and LEVELS.index(diagnosis.worst) >= LEVELS.index(fail_on)
    raise typer.Exit(Exit.INCOMPLETE if failed else Exit.FINISHED)


def _print(diagnosis: "Diagnosis") -> None:
    """The diagnosis for people: what was recognised, and a table with the worst signals first."""
    from rich.markup import escape
    from rich.table import Table

    from gspo_lab.analysis.diagnosis import LEVELS
    from gspo_lab.analysis.diagnosis.diagnose import LIMIT, UNKNOWN

    print_lines([diagnosis.source])
    print_lines([f"  {name}: {fact}" for name, fact in diagnosis.recognised().items()])
    print_lines([f"  note: {note}" for note in diagnosis.notes])
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("level", "signal", "found, usual, and what to change"):
        table.add_column(column, overflow="fold")
    for signal in sorted(diagnosis.signals, key=lambda signal: -LEVELS.index(signal.level)):
        lines = [signal.value]
        if signal.usual and signal.value != UNKNOWN:
            lines.append(f"usual: {signal.usual} [{signal.source}]")
        if signal.advice:
            label = "change: " if signal.level != "unknown" else ""
            lines.append(f"{label}{signal.advice}")
        text = "\n".join(escape(visible(line)) for line in lines)
        level = f"[{COLOURS[signal.level]}]{signal.level}[/]"
        table.add_row(level, signal.name, text)
    console().print(table)
    print_lines([LIMIT])
