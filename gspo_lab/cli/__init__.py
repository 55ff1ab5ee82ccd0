"""The command line: one file per command, each importing what it needs inside its function, so that help is quick."""

import sys
from importlib import import_module
from typing import NoReturn

import typer

from gspo_lab import __version__
from gspo_lab.cli.old_spellings import current_spelling
from gspo_lab.cli.output import print_lines
from gspo_lab.cli.shared_options import TOLD
from gspo_lab.errors import LabError, refused
from gspo_lab.states import Exit

app = typer.Typer(
    name="gspo-lab",
    help="GRPO or GSPO for your model? Train both under matched conditions and report a verdict with its uncertainty.",
    epilog="Start with:  gspo-lab run studies/quickstart.toml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback(invoke_without_command=True)
def _options(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
) -> None:
    if version:
        typer.echo(f"gspo-lab {__version__}")
        raise typer.Exit


PANELS = {
    "Run": ("check", "plan", "advise", "run", "replicate", "eval"),
    "Read": ("report", "list", "show", "claims"),
    "Verify": ("certify", "diff", "regrade", "calibrate"),
    "Exchange": ("import", "export"),
    "Maintain": ("engines", "rebuild"),
}
"""The commands in the order of help. Each has a file of its name here, with EXAMPLES and a function or an `app`."""
FILES = {"list": "list_command", "eval": "evaluate", "import": "import_command"}
"""The files and functions of commands whose names are Python's own."""

for panel, commands in PANELS.items():
    for command in commands:
        file = FILES.get(command, command)
        module = import_module(f"gspo_lab.cli.{file}")
        examples = "\n\n".join(("Examples:", *module.EXAMPLES))
        if hasattr(module, "app"):
            app.add_typer(module.app, name=command, epilog=examples, rich_help_panel=panel)
        else:
            app.command(command, epilog=examples, rich_help_panel=panel)(getattr(module, file))


def main() -> None:
    """The `gspo-lab` command. What the user can fix is one line and exit code 2; a bug keeps its traceback."""
    TOLD.clear()
    sys.argv[1:] = current_spelling(sys.argv[1:])
    try:
        app()
    except LabError as error:
        _refuse(error)
    except OSError as error:
        if (told := refused(error)) is None:
            raise
        _refuse(told)


def _refuse(error: LabError) -> NoReturn:
    print_lines([f"gspo-lab: {error}", *(f"  {detail}" for detail in error.details)], err=True)
    sys.exit(Exit.REFUSED)
