import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gspo_lab.cli.shared_options import (
    NO_STUDY,
    REPORTS,
    RUNS,
    Accept,
    Json,
    OutputDir,
    bring_up_to_date,
    evidence_of,
    study_named,
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
"""How often --watch looks for new records, and how often the open page looks for a newer self."""

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
            for found in _sources(stack, names, folders):
                accept(found.evidence, found.declaration, accept_mismatch)
    rendered, page = _made(names, folders, output_dir, elsewhere, going_on=watch and _going_on(names, folders))
    if open_page:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
    if watch:
        typer.echo(f"gspo-lab: {page} follows the study; Ctrl-C stops", err=True)
        rendered = _followed(names, folders, output_dir, elsewhere)
    typer.echo(rendered.json if json else str(page), nl=not json)
    if not json:
        typer.echo("\n".join(rendered.lines), err=True)


def _made(
    names: Sequence[str], folders: Sequence[Path], to: Path, elsewhere: Sequence[Path], *, going_on: bool
) -> "tuple[Report, Path]":
    """The report as of now, and the page's path. With `going_on` the open page looks for newer ones."""
    from gspo_lab.findings.training_curves import reading_ahead

    with ExitStack() as stack:
        found = _found(stack, names, folders)
        with reading_ahead([(evidence, study) for evidence, study, _ in found]):
            from gspo_lab.readings import Source
            from gspo_lab.report import render, write
        sources = [Source(*one, elsewhere) for one in found]
        rendered = render(sources, watch_seconds=REFRESH_SECONDS if going_on else None)
    return rendered, write(rendered, to)[0]


def _followed(names: Sequence[str], folders: Sequence[Path], to: Path, elsewhere: Sequence[Path]) -> "Report":
    """Render again whenever there is something new, until nothing runs any more; the last page stands still."""
    seen = _stamp(folders)
    try:
        while _going_on(names, folders):
            time.sleep(LOOK_SECONDS)
            now = _stamp(folders)
            if now != seen:
                seen = now
                _made(names, folders, to, elsewhere, going_on=True)
    except KeyboardInterrupt:
        typer.echo("gspo-lab: no longer watching", err=True)
    return _made(names, folders, to, elsewhere, going_on=False)[0]


def _stamp(folders: Sequence[Path]) -> list[tuple[int, int]]:
    """What changes when the databases do, once they have taken up what the journals hold."""
    found = []
    for folder in folders:
        database = bring_up_to_date(folder)
        for path in [] if database is None else [database, database.with_name(f"{database.name}-wal")]:
            if path.exists():
                stat = path.stat()
                found.append((stat.st_mtime_ns, stat.st_size))
    return found


def _going_on(names: Sequence[str], folders: Sequence[Path]) -> bool:
    from gspo_lab.files import holder
    from gspo_lab.layout import CONDUCTOR_LOCK
    from gspo_lab.readings import runs as runs_of

    with ExitStack() as stack:
        return any(
            any(run.state == State.RUNNING for run in runs_of(found))
            or holder(found.evidence.runs_folder / found.study / CONDUCTOR_LOCK) is not None
            for found in _sources(stack, names, folders)
        )


def _sources(stack: ExitStack, names: Sequence[str], folders: Sequence[Path]) -> "list[Source]":
    from gspo_lab.readings import Source

    return [Source(*one) for one in _found(stack, names, folders)]


def _found(stack: ExitStack, names: Sequence[str], folders: Sequence[Path]) -> "list[tuple[Evidence, str, str]]":
    """The named studies wherever they are, or each folder's latest one, each with its label: a name that is found twice
    is told with its folder."""
    opened = {folder: stack.enter_context(evidence_of(folder)) for folder in folders}
    if len(opened) == 1:
        [(folder, evidence)] = opened.items()
        wanted = list(dict.fromkeys(names)) or [study_named(evidence, None, folder)]
        return [(evidence, study_named(evidence, name, folder), name) for name in wanted]
    latest = [(folder, study_named(evidence, None, folder)) for folder, evidence in opened.items() if not names]
    found = latest or _named(names, opened)
    several = {name for i, (_, name) in enumerate(found) if name in {other for _, other in found[:i]}}
    return [(opened[at], name, f"{name} ({at})" if name in several else name) for at, name in found]


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
