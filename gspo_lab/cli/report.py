from pathlib import Path
from typing import Annotated

import typer

from gspo_lab.cli.options import RUNS, Accept, Json, Runs, evidence_of, study_named

EXAMPLES = "Examples:  gspo-lab report   |   gspo-lab report moe_stability --open   |   gspo-lab report a b --to both/"


def report(
    studies: Annotated[
        list[str] | None, typer.Argument(help="Studies to report on; the latest if none is named.")
    ] = None,
    to: Annotated[Path, typer.Option(help="Folder for the report's files.")] = Path("reports"),
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    accept_mismatch: Accept = None,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Render one self-contained HTML file, with its numbers as JSON and its gist as Markdown beside it."""
    from gspo_lab.matching import accept_mismatch as accept
    from gspo_lab.report import render, write

    with evidence_of(runs) as evidence:
        named: list[str | None] = [*studies] if studies else [None]
        wanted = [study_named(evidence, name, runs) for name in named]
        if accept_mismatch is not None:
            for name in wanted:
                accept(evidence, name, accept_mismatch)
        rendered = render(evidence, wanted)
        page = write(rendered, to)[0]
    typer.echo(rendered.json if json else str(page), nl=not json)
    if open_page:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
