from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gspo_lab.cli.shared_options import Json
from gspo_lab.errors import LabError
from gspo_lab.states import Exit

if TYPE_CHECKING:
    from gspo_lab.study import Study

EXAMPLES = (
    "gspo-lab engines",
    "gspo-lab engines install verl --check",
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
        typer.echo(_proof(engine, device))


def _engines() -> list[dict[str, Any]]:
    from gspo_lab.engines import ENGINES
    from gspo_lab.engines.base import Capabilities
    from gspo_lab.engines.environments import home_of, known, version_of
    from gspo_lab.registry import look_up

    rows = []
    for name in ENGINES:
        told = known()["engine"].get(name, {})
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
    from gspo_lab.engines.environments import known
    from gspo_lab.launch import LAUNCHERS

    told = known()["launcher"]
    return [{"launcher": name, **_told(told.get(name, {}))} for name in LAUNCHERS]


def proof(engine: str, device: str) -> "Study":
    """The study that shows whether an engine's environment works, as far as that engine can run it."""
    import gspo_lab.engines
    from gspo_lab.engines.environments import known
    from gspo_lab.study import load_study

    changes = [f"engine={engine}", f"device={device}", *known()["engine"][engine].get("proof", ())]
    return load_study(Path(gspo_lab.engines.__file__).with_name("proof.toml"), overrides=changes)


def _proof(engine: str, device: str) -> str:
    """Run the proof's study by the engine; what it left, in one line. LabError where it does not finish."""
    from tempfile import TemporaryDirectory

    from gspo_lab.cli.output import console
    from gspo_lab.conduct import conduct, outcome
    from gspo_lab.runfolder import RunFolder

    study = proof(engine, device)
    with TemporaryDirectory(prefix="gspo-lab-proof-") as folder:
        runs = Path(folder)
        done = conduct(study, runs, on="local", jobs=1, console=console(stderr=True), fresh=False, yes=True)
        found = outcome(study, runs, done.endings, interrupted=done.interrupted, report=None)
        if found.exit_code != Exit.FINISHED:
            raise LabError(f"the engine '{engine}' does not work here", details=tuple(found.failures))
        (run,) = study.runs()
        records = RunFolder(run.folder(runs)).records("step", "update", "answer")
    counts = {kind: sum(one["kind"] == kind for one in records) for kind in ("step", "update", "answer")}
    return f"{engine} works: " + ", ".join(f"{count} {kind}s" for kind, count in counts.items())
