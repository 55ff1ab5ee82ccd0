"""The command line: one file per command, each importing what it needs inside its function, so that help is quick."""

import sys
from importlib import import_module
from typing import NoReturn

import typer

from gspo_lab import __version__
from gspo_lab.cli.options import TOLD
from gspo_lab.errors import LabError, refused
from gspo_lab.states import Exit

app = typer.Typer(
    name="gspo-lab",
    help="GRPO or GSPO, for my model? Matched, seeded training runs, and a verdict that a sceptic can trust.",
    epilog="Start with:  gspo-lab run studies/quickstart.toml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _options(
    version: bool = typer.Option(False, "--version", help="Print the version and leave.", is_eager=True),
) -> None:
    if version:
        typer.echo(f"gspo-lab {__version__}")
        raise typer.Exit


COMMANDS = (
    *("run", "replicate", "report", "plan", "advise", "check", "list", "show", "certify", "why", "claims"),
    *("calibrate", "eval", "grade", "engines", "import", "export", "rebuild"),
)
"""In the order of help: each is a file of this folder with EXAMPLES and a function of the file's name, or an `app`."""
FILES = {"list": "listing", "eval": "evaluate", "import": "importing"}
"""Where a command's name is one of Python's own."""

for name in COMMANDS:
    file = FILES.get(name, name)
    module = import_module(f"gspo_lab.cli.{file}")
    if hasattr(module, "app"):
        app.add_typer(module.app, name=name, epilog=module.EXAMPLES)
    else:
        app.command(name, epilog=module.EXAMPLES)(getattr(module, file))


def main() -> None:
    """The `gspo-lab` command. What the user can fix is one line and exit code 2; a bug keeps its traceback."""
    TOLD.clear()
    try:
        app()
    except LabError as error:
        _refuse(error)
    except OSError as error:
        if (told := refused(error)) is None:
            raise
        _refuse(told)


def _refuse(error: LabError) -> NoReturn:
    typer.echo(f"gspo-lab: {error}", err=True)
    for detail in error.details:
        typer.echo(f"  {detail}", err=True)
    sys.exit(Exit.REFUSED)
