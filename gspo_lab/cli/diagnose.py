"""`diagnose`: one training log, without a study."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gspo_lab.cli.exchange import parse_columns, parse_settings
from gspo_lab.cli.output import print_json, print_lines
from gspo_lab.cli.shared_options import ConfigFile, Json, LoggedBy, Mapped
from gspo_lab.common.states import Exit

if TYPE_CHECKING:
    from gspo_lab.analysis.diagnosis import Diagnosis

EXAMPLES = {
    "diagnose": (
        "gspo-lab diagnose out/checkpoint-40 --set objective=gspo",
        "gspo-lab diagnose verl.log --config .hydra/config.yaml",
        "gspo-lab diagnose runs/my_study/gspo/s0 --fail-on error",
    ),
}
BELOW = " " * 25
"""The margin of what stands below a signal's value."""


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
    from gspo_lab.analysis.diagnosis.log import guess_source
    from gspo_lab.exchange.importers import parse_run_spec, parse_stated_study

    options: dict[str, object] = {"path": log, "source": source or guess_source(Path(log))}
    options |= {"logged_by": logged_by, "map": parse_columns(mapped), "config": config}
    spec = parse_run_spec(options, "diagnose")
    settings = parse_stated_study(parse_settings(overrides), "log", "--set")
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
    """The diagnosis for people: what was recognised, then the signals, the worst first."""
    from gspo_lab.analysis.diagnosis import LEVELS
    from gspo_lab.analysis.diagnosis.diagnose import LIMIT, UNKNOWN

    lines = [diagnosis.source]
    lines += [f"  {name}: {fact}" for name, fact in diagnosis.recognised().items()]
    lines += [f"  note: {note}" for note in diagnosis.notes]
    for signal in sorted(diagnosis.signals, key=lambda signal: -LEVELS.index(signal.level)):
        lines.append(f"{signal.level:7}  {signal.name:14}  {signal.value}")
        if signal.value != UNKNOWN:
            lines.append(f"{BELOW}usual: {signal.usual} [{signal.source}]")
        if signal.advice:
            label = "" if signal.level == "unknown" else "change: "
            lines.append(f"{BELOW}{label}{signal.advice}")
    print_lines([*lines, LIMIT])
