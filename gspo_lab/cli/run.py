"""`run` and `replicate`: train what is left of a study, and write its report."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gspo_lab.cli import shared_options as options
from gspo_lab.cli.output import console as console_for
from gspo_lab.cli.output import print_either, print_json, print_lines
from gspo_lab.errors import LabError
from gspo_lab.layout import database_of

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


@options.of_a_study
def run(
    wanted: "Callable[..., Study]",
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
    study = wanted()
    if dry_run:
        planned = plan(study, runs, on=on, jobs=jobs)
        print_either(json, planned.to_json(), planned.lines())
        return
    asked = {"on": on, "jobs": jobs, "fresh": fresh, "yes": ignore_memory_check}
    _carry_out(study, runs, output_dir, accept_mismatch, json=json, asked=asked)


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
    wanted = replication(study, runs, another=new)
    planned, first = plan(wanted.study, runs, on=on, jobs=jobs), wanted.original.name
    lines = [*wanted.lines, *planned.lines()]
    if dry_run:
        print_either(json, {**planned.to_json(), "replicates": first}, lines)
        return
    print_lines(lines, err=json)
    asked = {"on": on, "jobs": jobs, "yes": ignore_memory_check}
    _carry_out(wanted.study, runs, output_dir, accept_mismatch, json=json, asked=asked, also=first)


def _check_report(accept_mismatch: str | None, reports: Path) -> None:
    """What is wrong with the options of the report, told now and not after the training."""
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
    asked: dict[str, Any],
    also: str | None = None,
) -> None:
    """Train what is left as `asked`, write the report and, where `also` names another study that has changed by it,
    that one's too; print the outcome and leave with its code."""
    from gspo_lab.conduct import conduct
    from gspo_lab.conduct import outcome as outcome_of
    from gspo_lab.runfolder import RunFolder
    from gspo_lab.store import ingest
    from gspo_lab.words import lines

    console = console_for(stderr=json)
    done = conduct(study, runs, console=console, **asked)
    for line in ingest(runs).damaged:
        options.tell(line)
    some = any(RunFolder(run.folder(runs)).standing().finished for run in study.runs())
    written = some and not done.interrupted
    # Before the outcome is asked for: who writes the report may accept mismatches.
    page, again = _report(study.name, runs, reports, accept_mismatch, console) if written else (None, ())
    other = _report(also, runs, reports, None, console)[0] if written and also is not None else None
    outcome = outcome_of(study, runs, done.results, interrupted=done.interrupted, report=page)
    if json:
        print_json(outcome.to_json())
    else:
        said, why, next_command = lines(outcome.answer)
        console.print(f"\n{said}", style="bold", markup=False, highlight=False)
        console.print(f"{why}\n", markup=False, highlight=False)
        console.print(outcome.table())
        for failure in outcome.failures:
            console.print(failure, style="red", markup=False, highlight=False)
        pages = [f"report: {path}" for path in (page, other) if path is not None]
        print_lines(["", *outcome.details, *again, *pages, next_command])
    raise typer.Exit(outcome.exit_code)


def _report(
    study: str, runs: Path, to: Path, accept_mismatch: str | None, console: "Console"
) -> tuple[Path, Sequence[str]]:
    """Write the report on a study, after accepting its mismatches where that is wished; the page, and what the study's
    executions say together."""
    from gspo_lab.findings.matched import study_certificate
    from gspo_lab.matching import accept_mismatch as accept
    from gspo_lab.readings import Source
    from gspo_lab.report import render, write
    from gspo_lab.report.sections.replications import lines
    from gspo_lab.store import Evidence

    with Evidence.open(database_of(runs), runs) as evidence:
        if accept_mismatch is not None:
            found = Source(evidence, study)
            if study_certificate(found).open:
                accept(evidence, found.declaration, accept_mismatch)
            else:  # the training is done: no reason to withhold its report
                said = f"warning: --accept-mismatch: {study} has no undeclared difference; nothing is accepted"
                console.print(said, markup=False, highlight=False)
        found = Source(evidence, study)
        return write(render([found]), to)[0], lines(found)
