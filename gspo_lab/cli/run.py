"""`run`, `replicate` and `report`: train a study's missing runs, and write its report."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gspo_lab.cli import shared_options as options
from gspo_lab.cli.output import console as console_for
from gspo_lab.cli.output import print_either, print_json, print_lines
from gspo_lab.common.atomic_files import lock_holder
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import CONDUCTOR_LOCK, STUDY, SUBJECTS, database_of
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.common.registry import nearest
from gspo_lab.common.states import Exit, State
from gspo_lab.common.text import visible
from gspo_lab.recording.runfolder import RunFolder

if TYPE_CHECKING:
    from rich.console import Console

    from gspo_lab.analysis.readings import Source
    from gspo_lab.recording.store import Evidence
    from gspo_lab.report import Report
    from gspo_lab.study import Study


EXAMPLES = {
    "run": (
        "gspo-lab run studies/quickstart.toml",
        "gspo-lab run studies/moe_stability.toml --dry-run",
        (
            "gspo-lab run my.toml --seeds 5 --arms grpo,gspo --set rollout.group_size=16 --name"
            " my-5-seeds"
        ),
    ),
    "replicate": (
        "gspo-lab replicate quickstart --dry-run",
        "gspo-lab replicate studies/quickstart.toml",
        "gspo-lab replicate quickstart --new",
    ),
    "report": (
        "gspo-lab report",
        "gspo-lab report moe_stability --open",
        "gspo-lab report a b --output-dir both/",
        "gspo-lab report --runs here --runs there",
        "gspo-lab report moe_stability --include there/runs",
    ),
}


@options.with_study
def run(
    load: "Callable[..., Study]",
    jobs: options.Jobs = None,
    on: options.On = "local",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over. The earlier runs move to runs/_archive.")
    ] = False,
    ignore_memory_check: options.IgnoreMemory = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Train more runs than the study declares.")
    ] = False,
    dry_run: options.DryRun = False,
    accept_mismatch: options.Accept = None,
    output_dir: options.OutputDir = options.REPORTS,
    json: options.Json = False,
    runs: options.Runs = options.RUNS,
) -> None:
    """Train every arm on every seed, then write the report.

    The same command resumes a stopped study.
    """
    from gspo_lab.running.conduct.study_lock import announced_edits
    from gspo_lab.running.plan import plan

    _check_report(accept_mismatch, output_dir)
    study = load()
    if dry_run:
        planned = plan(study, runs, on=on, jobs=jobs)
        edits = [] if fresh else announced_edits(study, runs)
        print_either(json, {**planned.to_json(), "edits": edits}, [*planned.lines(), *edits])
        return
    if not yes:
        _confirm_more_runs(study, begun=(runs / study.name / STUDY).is_file() and not fresh)
    options_of_run = {"on": on, "jobs": jobs, "fresh": fresh, "yes": ignore_memory_check}
    _carry_out(study, runs, output_dir, accept_mismatch, json=json, options_of_run=options_of_run)


def _confirm_more_runs(study: "Study", *, begun: bool) -> None:
    """Ask before a study trains more seeds than its file declares. LabError without a terminal.

    One that has not `begun` declares the seeds that it is asked for.
    """
    declared = len(study.file_seeds)
    undeclared = [str(seed) for seed in study.seeds if seed not in study.file_seeds]
    if undeclared:
        fate = "a verdict on those does not count them" if begun else "this execution declares them"
        options.warn(
            f"not among the {declared} seeds that {study.path} declares:"
            f" {', '.join(undeclared)}; {fate}"
        )
    if len(study.seeds) <= declared:
        return
    surplus = f"{len(study.runs())} runs, and {study.path} declares {len(study.arms) * declared}"
    if not sys.stdin.isatty():
        raise LabError(f"{surplus}: --yes trains them all")
    if not typer.confirm(visible(f"{surplus}. Train them all?")):
        raise typer.Exit(Exit.INTERRUPTED)


def replicate(
    study: Annotated[
        str, typer.Argument(help="A finished study: its name or its TOML file.", show_default=False)
    ],
    new: Annotated[
        bool, typer.Option("--new", help="Start a new replication. Default: resume the latest.")
    ] = False,
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

    The report says which verdicts the replication confirms. The same command resumes a stopped
    replication.
    """
    from gspo_lab.running.conduct.replication import replication
    from gspo_lab.running.plan import plan

    _check_report(accept_mismatch, output_dir)
    replicated = replication(study, runs, another=new)
    planned = plan(replicated.study, runs, on=on, jobs=jobs)
    original = replicated.original.name
    lines = [*replicated.lines, *planned.lines()]
    if dry_run:
        print_either(json, {**planned.to_json(), "replicates": original}, lines)
        return
    print_lines(lines, err=json)
    options_of_run = {"on": on, "jobs": jobs, "yes": ignore_memory_check}
    _carry_out(
        replicated.study,
        runs,
        output_dir,
        accept_mismatch,
        json=json,
        options_of_run=options_of_run,
        also=original,
    )


def _check_report(accept_mismatch: str | None, reports: Path) -> None:
    """LabError for wrong options of the report, before the training."""
    from gspo_lab.analysis.matching import reason_in_words

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
    options_of_run: JsonObject,
    also: str | None = None,
) -> None:
    """Train the missing runs with `options_of_run`, write the report, print the answer and exit
    with the outcome's code.

    `also` names the original of a replication, whose report is written again.
    """
    from gspo_lab.analysis.readings import Source
    from gspo_lab.recording.store import Evidence, ingest
    from gspo_lab.report.terminal import print_answer
    from gspo_lab.report.views.answer import answer_view
    from gspo_lab.report.views.view import to_json
    from gspo_lab.running.conduct import conduct
    from gspo_lab.running.conduct import outcome as outcome_of

    console = console_for(stderr=json)
    conducted = conduct(study, runs, console=console, **options_of_run)
    for line in ingest(runs).damaged:
        options.warn(line)
    finished = any(RunFolder(run.folder(runs)).status().finished for run in study.runs())
    pages: list[Path] = []
    # Write the report first: it may accept mismatches, and the outcome depends on them.
    if finished and not conducted.interrupted:
        pages.append(_report(study.name, runs, reports, accept_mismatch, console))
        if also is not None:
            pages.append(_report(also, runs, reports, None, console))
    with Evidence.open(database_of(runs), runs) as evidence:
        source = Source(evidence, study.name)
        outcome = outcome_of(study, source, conducted.results, interrupted=conducted.interrupted)
        answer = answer_view(source)
    if json:
        page = str(pages[0]) if pages else None
        print_json({**vars(outcome), "answer": to_json(answer), "report": page})
    else:
        for failure in outcome.failures:
            console.print(failure, style="red", markup=False, highlight=False)
        console.print("")
        print_answer(answer, console)
        print_lines([f"report: {path}" for path in pages])
    raise typer.Exit(outcome.exit_code)


def _report(
    study: str, runs: Path, to: Path, accept_mismatch: str | None, console: "Console"
) -> Path:
    """Accept mismatches if a reason is given, write the report; returns the page."""
    from gspo_lab.analysis.findings.matched import study_certificate
    from gspo_lab.analysis.matching import accept_mismatch as accept
    from gspo_lab.analysis.readings import Source
    from gspo_lab.recording.store import Evidence
    from gspo_lab.report import render, write

    with Evidence.open(database_of(runs), runs) as evidence:
        if accept_mismatch is not None:
            source = Source(evidence, study)
            if study_certificate(source).open:
                accept(evidence, source.declaration, accept_mismatch)
            else:  # the training is done: no reason to withhold its report
                warning = (
                    f"warning: --accept-mismatch: {study} has no undeclared difference; nothing is"
                    " accepted"
                )
                console.print(warning, markup=False, highlight=False)
        return write(render([Source(evidence, study)]), to)[0]


LOOK_SECONDS = 2
REFRESH_SECONDS = 5
"""How often --watch looks for new records, and how often the open page reloads."""

Folders = Annotated[
    list[Path],
    typer.Option(
        "--runs",
        envvar="GSPO_LAB_RUNS",
        help="Folder of the runs and of the database lab.db. Repeatable: one page for several.",
    ),
]


def report(
    studies: Annotated[
        list[str] | None,
        typer.Argument(help="Studies, or models as eval names them. Default: the latest."),
    ] = None,
    output_dir: options.OutputDir = options.REPORTS,
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser.")
    ] = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Update the report while the study runs; the open page reloads. Ctrl-C stops.",
        ),
    ] = False,
    include: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="Other executions of the study: a lab.db or a folder of runs. Repeatable.",
        ),
    ] = None,
    accept_mismatch: options.Accept = None,
    json: options.Json = False,
    runs: Folders = [options.RUNS],  # noqa: B006 - typer copies it
) -> None:
    """Write the report as one HTML file, with JSON and Markdown."""
    names = studies or []
    folders = list(dict.fromkeys(runs))
    elsewhere = list(dict.fromkeys(include or ()))
    if elsewhere and (len(names) > 1 or len(folders) > 1):
        raise LabError(
            "--include: goes with one study of one folder of runs; name that study alone"
        )
    models = [name for name in names if name.startswith(f"{SUBJECTS}/")]
    of_studies = (*folders[1:], *elsewhere, *names[len(models) :])
    if models and (of_studies or watch or accept_mismatch):
        raise LabError(
            "report: evaluated models have a page of their own; name no study and one folder of"
            " runs, without --watch, --include and --accept-mismatch"
        )
    if accept_mismatch is not None:
        from gspo_lab.analysis.matching import accept_mismatch as accept

        with ExitStack() as stack:
            for source in _sources(stack, names, folders):
                accept(source.evidence, source.declaration, accept_mismatch)
    rendered, page = (
        _render_models(models, folders[0], output_dir)
        if models
        else _render(
            names, folders, output_dir, elsewhere, running=watch and _is_running(names, folders)
        )
    )
    if open_page:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
    if watch:
        typer.echo(f"gspo-lab: {page} follows the study; Ctrl-C stops", err=True)
        rendered = _render_until_done(names, folders, output_dir, elsewhere)
    typer.echo(rendered.json if json else str(page), nl=not json)
    if not json:
        from gspo_lab.report.terminal import print_answer

        for study, answer in rendered.answers.items():
            if len(rendered.answers) > 1:
                print_lines(["", study], err=True)
            print_answer(answer, console_for(stderr=True))


def _render_models(models: Sequence[str], folder: Path, to: Path) -> "tuple[Report, Path]":
    """The report of evaluated models, and the page's path."""
    from gspo_lab.report import render_models, write

    with options.evidence_of(folder) as evidence:
        rendered = render_models(evidence, models)
    return rendered, write(rendered, to)[0]


def _render(
    names: Sequence[str],
    folders: Sequence[Path],
    to: Path,
    elsewhere: Sequence[Path],
    *,
    running: bool,
) -> "tuple[Report, Path]":
    """The report as of now, and the page's path.

    With `running` the open page looks for newer ones.
    """
    from gspo_lab.report import render, write

    with ExitStack() as stack:
        sources = _sources(stack, names, folders, elsewhere)
        rendered = render(sources, watch_seconds=REFRESH_SECONDS if running else None)
    return rendered, write(rendered, to)[0]


def _render_until_done(
    names: Sequence[str], folders: Sequence[Path], to: Path, elsewhere: Sequence[Path]
) -> "Report":
    """Render again whenever records arrive, until no run is running; the last page no longer
    reloads.
    """
    drawn = _stamp(folders)
    try:
        while _is_running(names, folders):
            time.sleep(LOOK_SECONDS)
            stamp = _stamp(folders)
            if stamp != drawn:
                drawn = stamp
                _render(names, folders, to, elsewhere, running=True)
    except KeyboardInterrupt:
        typer.echo("gspo-lab: no longer watching", err=True)
    return _render(names, folders, to, elsewhere, running=False)[0]


def _stamp(folders: Sequence[Path]) -> list[tuple[int, int]]:
    """Time and size of the databases after an update from the journals: these change with every new
    record.
    """
    stamps = []
    for folder in folders:
        database = options.update_lab(folder)
        for path in (
            [] if database is None else [database, database.with_name(f"{database.name}-wal")]
        ):
            if path.exists():
                stat = path.stat()
                stamps.append((stat.st_mtime_ns, stat.st_size))
    return stamps


def _is_running(names: Sequence[str], folders: Sequence[Path]) -> bool:
    from gspo_lab.analysis.readings import runs as runs_of

    with ExitStack() as stack:
        return any(
            any(run.state == State.RUNNING for run in runs_of(source))
            or lock_holder(source.evidence.runs_folder / source.study / CONDUCTOR_LOCK) is not None
            for source in _sources(stack, names, folders)
        )


def _sources(
    stack: ExitStack, names: Sequence[str], folders: Sequence[Path], elsewhere: Sequence[Path] = ()
) -> "list[Source]":
    from gspo_lab.analysis.readings import Source

    return [Source(*study, elsewhere) for study in _select_studies(stack, names, folders)]


def _select_studies(
    stack: ExitStack, names: Sequence[str], folders: Sequence[Path]
) -> "list[tuple[Evidence, str, str]]":
    """The named studies in all folders, or each folder's latest, with labels: a repeated name gets
    its folder.
    """
    opened = {folder: stack.enter_context(options.evidence_of(folder)) for folder in folders}
    if len(opened) == 1:
        [(folder, evidence)] = opened.items()
        chosen = list(dict.fromkeys(names)) or [options.study_named(evidence, None, folder)]
        return [(evidence, options.study_named(evidence, name, folder), name) for name in chosen]
    studies = {folder: evidence.studies() for folder, evidence in opened.items()}
    everywhere = sorted(set().union(*studies.values()))
    for name in names:
        if name not in everywhere:
            places = ", ".join(map(str, opened))
            has = ", ".join(everywhere) or options.NO_STUDY
            raise LabError(
                f"no study '{name}'{nearest(name, everywhere)} in {places}; they have {has}"
            )
    if names:
        candidates = product(dict.fromkeys(names), opened)
        placed = [(name, folder) for name, folder in candidates if name in studies[folder]]
    else:
        placed = [
            (options.study_named(evidence, None, folder), folder)
            for folder, evidence in opened.items()
        ]
    counts = Counter(name for name, _ in placed)
    selected = []
    for name, folder in placed:
        label = f"{name} ({folder})" if counts[name] > 1 else name
        selected.append((opened[folder], name, label))
    return selected
