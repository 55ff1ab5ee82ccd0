import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gspo_lab.cli.output import print_lines
from gspo_lab.cli.shared_options import (
    NO_STUDY,
    REPORTS,
    RUNS,
    Accept,
    Json,
    OutputDir,
    evidence_of,
    study_named,
    update_lab,
)
from gspo_lab.errors import LabError
from gspo_lab.states import State

if TYPE_CHECKING:
    from gspo_lab.readings import Source
    from gspo_lab.report import Report
    from gspo_lab.store import Evidence

EXAMPLES = {
    "report": (
        "gspo-lab report",
        "gspo-lab report moe_stability --open",
        "gspo-lab report a b --output-dir both/",
        "gspo-lab report --runs here --runs there",
        "gspo-lab report moe_stability --include there/runs",
    )
}

LOOK_SECONDS, REFRESH_SECONDS = 2, 5
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
    studies: Annotated[list[str] | None, typer.Argument(help="Studies. Default: the latest.")] = None,
    output_dir: OutputDir = REPORTS,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Update the report while the study runs; the open page reloads. Ctrl-C stops."),
    ] = False,
    include: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", help="Other executions of the study: a lab.db or a folder of runs. Repeatable."),
    ] = None,
    accept_mismatch: Accept = None,
    json: Json = False,
    runs: Folders = [RUNS],  # noqa: B006 - typer copies it
) -> None:
    """Write the report as one HTML file, with JSON and Markdown."""
    names, folders = studies or [], list(dict.fromkeys(runs))
    elsewhere = tuple(dict.fromkeys(include or ()))
    if elsewhere and (len(names) > 1 or len(folders) > 1):
        raise LabError("--include: goes with one study of one folder of runs; name that study alone")
    if accept_mismatch is not None:
        from gspo_lab.matching import accept_mismatch as accept

        with ExitStack() as stack:
            for source in _sources(stack, names, folders):
                accept(source.evidence, source.declaration, accept_mismatch)
    rendered, page = _render(names, folders, output_dir, elsewhere, running=watch and _is_running(names, folders))
    if open_page:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
    if watch:
        typer.echo(f"gspo-lab: {page} follows the study; Ctrl-C stops", err=True)
        rendered = _followed(names, folders, output_dir, elsewhere)
    typer.echo(rendered.json if json else str(page), nl=not json)
    if not json:
        print_lines(rendered.lines, err=True)


def _render(
    names: Sequence[str], folders: Sequence[Path], to: Path, elsewhere: Sequence[Path], *, running: bool
) -> "tuple[Report, Path]":
    """The report as of now, and the page's path. With `running` the open page looks for newer ones."""
    from gspo_lab.findings.training_curves import prefetch

    with ExitStack() as stack:
        studies = _selected(stack, names, folders)
        with prefetch([(evidence, study) for evidence, study, _ in studies]):
            from gspo_lab.readings import Source
            from gspo_lab.report import render, write
        sources = [Source(*study, elsewhere) for study in studies]
        rendered = render(sources, watch_seconds=REFRESH_SECONDS if running else None)
    return rendered, write(rendered, to)[0]


def _followed(names: Sequence[str], folders: Sequence[Path], to: Path, elsewhere: Sequence[Path]) -> "Report":
    """Render again whenever records arrive, until no run is running; the last page no longer reloads."""
    drawn = _stamp(folders)
    try:
        while _is_running(names, folders):
            time.sleep(LOOK_SECONDS)
            now = _stamp(folders)
            if now != drawn:
                drawn = now
                _render(names, folders, to, elsewhere, running=True)
    except KeyboardInterrupt:
        typer.echo("gspo-lab: no longer watching", err=True)
    return _render(names, folders, to, elsewhere, running=False)[0]


def _stamp(folders: Sequence[Path]) -> list[tuple[int, int]]:
    """Time and size of the databases after an update from the journals: these change with every new record."""
    stamps = []
    for folder in folders:
        database = update_lab(folder)
        for path in [] if database is None else [database, database.with_name(f"{database.name}-wal")]:
            if path.exists():
                stat = path.stat()
                stamps.append((stat.st_mtime_ns, stat.st_size))
    return stamps


def _is_running(names: Sequence[str], folders: Sequence[Path]) -> bool:
    from gspo_lab.atomic_files import lock_holder
    from gspo_lab.paths import CONDUCTOR_LOCK
    from gspo_lab.readings import runs as runs_of

    with ExitStack() as stack:
        return any(
            any(run.state == State.RUNNING for run in runs_of(source))
            or lock_holder(source.evidence.runs_folder / source.study / CONDUCTOR_LOCK) is not None
            for source in _sources(stack, names, folders)
        )


def _sources(stack: ExitStack, names: Sequence[str], folders: Sequence[Path]) -> "list[Source]":
    from gspo_lab.readings import Source

    return [Source(*study) for study in _selected(stack, names, folders)]


def _selected(stack: ExitStack, names: Sequence[str], folders: Sequence[Path]) -> "list[tuple[Evidence, str, str]]":
    """The named studies in all folders, or each folder's latest, with labels: a repeated name gets its folder."""
    opened = {folder: stack.enter_context(evidence_of(folder)) for folder in folders}
    if len(opened) == 1:
        [(folder, evidence)] = opened.items()
        chosen = list(dict.fromkeys(names)) or [study_named(evidence, None, folder)]
        return [(evidence, study_named(evidence, name, folder), name) for name in chosen]
    latest = [(folder, study_named(evidence, None, folder)) for folder, evidence in opened.items() if not names]
    placed = latest or _named(names, opened)
    counts = Counter(name for _, name in placed)
    return [(opened[at], name, f"{name} ({at})" if counts[name] > 1 else name) for at, name in placed]


def _named(names: Sequence[str], opened: "dict[Path, Evidence]") -> list[tuple[Path, str]]:
    from gspo_lab.registry import nearest

    known = {folder: evidence.studies() for folder, evidence in opened.items()}
    everywhere = sorted({name for studies in known.values() for name in studies})
    for name in names:
        if name not in everywhere:
            places = ", ".join(map(str, opened))
            has = ", ".join(everywhere)
            raise LabError(f"no study '{name}'{nearest(name, everywhere)} in {places}; they have {has or NO_STUDY}")
    return [(folder, name) for name in dict.fromkeys(names) for folder in opened if name in known[folder]]
