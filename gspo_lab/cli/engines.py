from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gspo_lab.cli.shared_options import Json, Overrides
from gspo_lab.errors import LabError

if TYPE_CHECKING:
    pass

EXAMPLES = (
    "gspo-lab engines",
    "gspo-lab engines install verl --check",
    "gspo-lab engines check my_engine.py:Engine",
    "gspo-lab engines --json",
)

app = typer.Typer(rich_markup_mode="rich")


@app.callback(invoke_without_command=True)
def engines(context: typer.Context, json: Json = False) -> None:
    """List training engines and launchers, and what was tried."""
    if context.invoked_subcommand is not None:
        return
    from gspo_lab.cli.output import print_json, print_table

    found, launchers = _engines(), _launchers()
    if json:
        print_json({"engines": found, "launchers": launchers})
        return
    tried = ("ran", "loaded", "never")
    print_table([{k: v for k, v in one.items() if k not in tried} | _counted(one) for one in found], empty="no engines")
    print_table(launchers, empty="no launchers", title="\nlaunchers: gspo-lab run STUDY --on NAME")
    print_table([{"engine": one["engine"], **{k: one[k] for k in tried}} for one in found], empty="", title="\ntried")


@app.command("install")
def install(
    engine: Annotated[
        str, typer.Argument(help="An engine that needs its own virtual environment.", show_default=False)
    ],
    device: Annotated[
        Literal["auto", "cpu", "cuda"], typer.Option(help="Kind of machine. auto: CUDA if there is a GPU.")
    ] = "auto",
    check: Annotated[
        bool, typer.Option("--check", help="Then train two steps of a small run, to test the installation.")
    ] = False,
) -> None:
    """Create the virtual environment of an engine.

    It lies under GSPO_LAB_CACHE, or ~/.cache/gspo-lab.
    """
    from gspo_lab.engines.environments import install as make
    from gspo_lab.engines.environments import version_of
    from gspo_lab.launch.local import on_gpu

    home = make(engine, on_gpu(device), lambda line: typer.echo(line, err=True))
    typer.echo(f"{engine} {version_of(engine)} is installed in {home}")
    if check:
        check_engine(engine, device)


@app.command("check")
def check_engine(
    engine: Annotated[str, typer.Argument(help="A name, module:attribute or file.py:attribute.", show_default=False)],
    device: Annotated[
        Literal["auto", "cpu", "cuda"], typer.Option(help="Kind of machine. auto: CUDA if there is a GPU.")
    ] = "auto",
    overrides: Overrides = None,
) -> None:
    """Test an engine: train two steps of a small run, stop it, resume it, and check its records.

    Exit code 2 where the engine breaks a rule of gspo_lab/engines/base.py; each is one line.
    """
    from tempfile import TemporaryDirectory

    from gspo_lab.engines.conformance import conform

    with TemporaryDirectory(prefix="gspo-lab-check-") as folder:
        counts = conform(engine, device, Path(folder), overrides or ())
    typer.echo(f"{engine} works: " + ", ".join(f"{count} {kind}s" for kind, count in counts.items()))


def _engines() -> list[dict[str, Any]]:
    from gspo_lab.engines import ENGINES
    from gspo_lab.engines.base import Capabilities
    from gspo_lab.engines.environments import home_of, version_of
    from gspo_lab.registry import about, look_up, names_of

    rows = []
    for name in names_of("engine", ENGINES):
        told = about("engine", name, ENGINES)
        try:
            capabilities = getattr(look_up("engine", name, ENGINES), "capabilities", Capabilities())
        except LabError:  # an extra that is not installed
            capabilities = None
        version = version_of(name)
        rows.append(
            {
                "engine": name,
                "version": version,
                "where": None if version is None else str(home_of(name)) if "environment" in told else "the lab's own",
                "varies": None if capabilities is None else _said(capabilities.settings),
                "records": None if capabilities is None else _said(capabilities.records),
                **_told(told),
            }
        )
    return rows


def _told(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: entry.get(key) or None for key in ("summary", "ran", "loaded", "never")}


def _said(names: Any) -> list[str] | str:
    return "all" if names is None else sorted(names)


def _counted(row: dict[str, Any]) -> dict[str, Any]:
    """Long lists as their lengths, for people."""
    return {
        key: f"{len(row[key])} {what}"
        for key, what in (("varies", "keys"), ("records", "columns"))
        if isinstance(row[key], list)
    }


def _launchers() -> list[dict[str, Any]]:
    from gspo_lab.launch import LAUNCHERS
    from gspo_lab.registry import about, names_of

    return [{"launcher": name, **_told(about("launcher", name, LAUNCHERS))} for name in names_of("launcher", LAUNCHERS)]
