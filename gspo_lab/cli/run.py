"""`run` and `replicate`: train a study's missing runs, and write its report."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gspo_lab.cli import shared_options as options
from gspo_lab.cli.output import console as console_for
from gspo_lab.cli.output import print_either, print_json, print_lines
from gspo_lab.errors import LabError
from gspo_lab.paths import database_of

if TYPE_CHECKING:
    from rich.console import Console

    from gspo_lab.study import Study

EXAMPLES = {
    "run": (
        "gspo-lab run studies/quickstart.toml",
        "gspo-lab run studies/moe_stability.toml --dry-run",
        "gspo-lab run my.toml --seeds 5 --arms grpo,gspo --set update.learning_rate=3e-4 --name my-5-seeds",
    ),
    "replicate": (
        "gspo-lab replicate quickstart --dry-run",
        "gspo-lab replicate studies/quickstart.toml",
        "gspo-lab replicate quickstart --new",
    ),
}


@options.with_study
def run(
    load: "Callable[..., Study]",
    jobs: options.Jobs = None,
    on: options.On = "local",
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over. The earlier runs move to runs/_archive.")] = False,
    ignore_memory_check: options.IgnoreMemory = False,
    dry_run: options.DryRun = False,
    accept_mismatch: options.Accept = None,
    output_dir: options.OutputDir = options.REPORTS,
    json: options.Json = False,
    runs: options.Runs = options.RUNS,
) -> None:
    """Train every arm on every seed, then write the report.

    The same command resumes a stopped study.
    """
    from gspo_lab.plan import plan

    _check_report(accept_mismatch, output_dir)
    study = load()
    if dry_run:
        planned = plan(study, runs, on=on, jobs=jobs)
        print_either(json, planned.to_json(), planned.lines())
        return
    how = {"on": on, "jobs": jobs, "fresh": fresh, "yes": ignore_memory_check}
    _carry_out(study, runs, output_dir, accept_mismatch, json=json, how=how)


def replicate(
    study: Annotated[str, typer.Argument(help="A finished study: its name or its TOML file.", show_default=False)],
    new: Annotated[bool, typer.Option("--new", help="Start a new replication. Default: resume the latest.")] = False,
    jobs: options.Jobs = None,
    on: options.On = "local",
    ignore_memory_check: options.IgnoreMemory = False,
    dry_run: options.DryRun = False,
    accept_mismatch: options.Accept = None,
    output_dir: options.OutputDir = options.REPORTS,
    json: options.Json = False,
    runs: options.Runs = options.RUNS,
) -> None:
    """Run a finished study again on new seeds and compare.

    The report says which verdicts the replication confirms. The same command resumes a stopped replication.
    """
    from gspo_lab.conduct.replication import replication
    from gspo_lab.plan import plan

    _check_report(accept_mismatch, output_dir)
    replicated = replication(study, runs, another=new)
    planned, first = plan(replicated.study, runs, on=on, jobs=jobs), replicated.original.name
    lines = [*replicated.lines, *planned.lines()]
    if dry_run:
        print_either(json, {**planned.to_json(), "replicates": first}, lines)
        return
    print_lines(lines, err=json)
    how = {"on": on, "jobs": jobs, "yes": ignore_memory_check}
    _carry_out(replicated.study, runs, output_dir, accept_mismatch, json=json, how=how, also=first)


def _check_report(accept_mismatch: str | None, reports: Path) -> None:
    """LabError for wrong options of the report, before the training."""
    from gspo_lab.matching import reason_in_words

    if accept_mismatch is not None:
        reason_in_words(accept_mismatch)
    if reports.exists() and not reports.is_dir():
        raise LabError(f"--output-dir {reports}: that is a file; name a folder")


def _carry_out(
    study: "Study",
    runs: Path,
    reports: Path,
    accept_mismatch: str | None,
    *,
    json: bool,
    how: dict[str, Any],
    also: str | None = None,
) -> None:
    """Train the missing runs with the options `how`, write the report, print the outcome and exit with its code.

    `also` names the original of a replication, whose report is written again.
    """
    from gspo_lab.conduct import conduct
    from gspo_lab.conduct import outcome as outcome_of
    from gspo_lab.runfolder import RunFolder
    from gspo_lab.store import ingest
    from gspo_lab.words import lines

    console = console_for(stderr=json)
    done = conduct(study, runs, console=console, **how)
    for line in ingest(runs).damaged:
        options.warn(line)
    finished = any(RunFolder(run.folder(runs)).status().finished for run in study.runs())
    written = finished and not done.interrupted
    # Write the report first: it may accept mismatches, and the outcome depends on them.
    page, replications = _report(study.name, runs, reports, accept_mismatch, console) if written else (None, ())
    original_page = _report(also, runs, reports, None, console)[0] if written and also is not None else None
    outcome = outcome_of(study, runs, done.results, interrupted=done.interrupted, report=page)
    if json:
        print_json(outcome.to_json())
    else:
        text, why, next_command = lines(outcome.answer)
        console.print(f"\n{text}", style="bold", markup=False, highlight=False)
        console.print(f"{why}\n", markup=False, highlight=False)
        console.print(outcome.table())
        for failure in outcome.failures:
            console.print(failure, style="red", markup=False, highlight=False)
        pages = [f"report: {path}" for path in (page, original_page) if path is not None]
        print_lines(["", *outcome.details, *replications, *pages, next_command])
    raise typer.Exit(outcome.exit_code)


def _report(
    study: str, runs: Path, to: Path, accept_mismatch: str | None, console: "Console"
) -> tuple[Path, Sequence[str]]:
    """Accept mismatches if a reason is given, write the report; returns the page and the lines on replications."""
    from gspo_lab.findings.matched import study_certificate
    from gspo_lab.matching import accept_mismatch as accept
    from gspo_lab.readings import Source
    from gspo_lab.report import render, write
    from gspo_lab.report.sections.replications import lines
    from gspo_lab.store import Evidence

    with Evidence.open(database_of(runs), runs) as evidence:
        if accept_mismatch is not None:
            source = Source(evidence, study)
            if study_certificate(source).open:
                accept(evidence, source.declaration, accept_mismatch)
            else:  # the training is done: no reason to withhold its report
                warning = f"warning: --accept-mismatch: {study} has no undeclared difference; nothing is accepted"
                console.print(warning, markup=False, highlight=False)
        source = Source(evidence, study)
        return write(render([source]), to)[0], lines(source)
