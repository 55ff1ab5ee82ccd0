"""`engines`: training engines and launchers, their environments and their conformance."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import typer

from gspo_lab.cli.output import print_json, print_lines, print_table
from gspo_lab.cli.shared_options import Json, Overrides
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.common.registry import look_up, names_of, read_description

EXAMPLES = {
    "engines": (
        "gspo-lab engines",
        "gspo-lab engines install verl --check",
        "gspo-lab engines check my_engine.py:Engine",
        "gspo-lab engines --json",
    ),
}

Device = Annotated[
    Literal["auto", "cpu", "cuda"],
    typer.Option(help="Kind of machine. auto: CUDA if there is a GPU."),
]


engines = typer.Typer(rich_markup_mode="markdown")


@engines.callback(invoke_without_command=True)
def list_engines(context: typer.Context, json: Json = False) -> None:
    """List training engines and launchers, and what was tried."""
    if context.invoked_subcommand is not None:
        return
    from gspo_lab.running.launch import LAUNCHERS

    rows = _engines()
    launchers = [
        {"launcher": name, **_support_notes(read_description("launcher", name, LAUNCHERS))}
        for name in names_of("launcher", LAUNCHERS)
    ]
    if json:
        print_json({"engines": rows, "launchers": launchers})
        return
    tried = ("ran", "loaded", "never")
    units = {"varies": "keys", "records": "columns"}
    readable = [
        {
            k: f"{len(v)} {units[k]}" if isinstance(v, list) else v
            for k, v in row.items()
            if k not in tried
        }
        for row in rows
    ]
    print_table(readable, empty="no engines")
    print_table(launchers, empty="no launchers", title="\nlaunchers: gspo-lab run STUDY --on NAME")
    print_table(
        [{"engine": row["engine"], **{k: row[k] for k in tried}} for row in rows],
        empty="",
        title="\ntried",
    )


@engines.command("install")
def install(
    engine: Annotated[
        str,
        typer.Argument(
            help="An engine that needs its own virtual environment.", show_default=False
        ),
    ],
    device: Device = "auto",
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Then train three steps of a small run, to test the installation."
        ),
    ] = False,
) -> None:
    """Create the virtual environment of an engine.

    It lies under GSPO_LAB_CACHE, or ~/.cache/gspo-lab.
    """
    from gspo_lab.running.launch.local import on_gpu
    from gspo_lab.training.engines.virtualenvs import install as make
    from gspo_lab.training.engines.virtualenvs import version_of

    home = make(engine, on_gpu(device), lambda line: print_lines([line], err=True))
    typer.echo(f"{engine} {version_of(engine)} is installed in {home}")
    if check:
        check_engine(engine, device)


@engines.command("check")
def check_engine(
    engine: Annotated[
        str,
        typer.Argument(help="A name, module:attribute or file.py:attribute.", show_default=False),
    ],
    device: Device = "auto",
    overrides: Overrides = None,
) -> None:
    """Test an engine: train three steps of a small run, stop it, resume it, and check its records.

    Exit code 2 where the engine breaks a rule of gspo_lab/training/engines/base.py; each is one
    line.
    """
    from gspo_lab.training.engines.conformance import conform

    with TemporaryDirectory(prefix="gspo-lab-check-") as folder:
        counts = conform(engine, device, Path(folder), overrides or ())
    typer.echo(
        f"{engine} works: " + ", ".join(f"{count} {kind}s" for kind, count in counts.items())
    )


def _engines() -> list[JsonObject]:
    from gspo_lab.training.engines import ENGINES
    from gspo_lab.training.engines.base import Capabilities
    from gspo_lab.training.engines.virtualenvs import home_of, version_of

    rows = []
    for name in names_of("engine", ENGINES):
        entry = read_description("engine", name, ENGINES)
        try:
            capabilities = getattr(look_up("engine", name, ENGINES), "capabilities", Capabilities())
        except LabError:  # an extra that is not installed
            capabilities = None
        version = version_of(name)
        where = None
        if version is not None:
            where = str(home_of(name)) if "environment" in entry else "the lab's own"
        row: JsonObject = {
            "engine": name,
            "version": version,
            "where": where,
            "varies": None,
            "records": None,
        }
        if capabilities is not None:
            lists = {"varies": capabilities.settings, "records": capabilities.records}
            row |= {key: "all" if names is None else sorted(names) for key, names in lists.items()}
        rows.append(row | _support_notes(entry))
    return rows


def _support_notes(entry: JsonObject) -> JsonObject:
    return {key: entry.get(key) or None for key in ("summary", "ran", "loaded", "never")}
