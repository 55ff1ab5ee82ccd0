"""The command line. Each command imports what it needs inside its function, so that help is quick."""

import sys
from importlib import import_module

import typer

from gspo_lab import __version__
from gspo_lab.cli.output import print_lines
from gspo_lab.cli.shared_options import WARNED
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
    "Run": {"check": "plan", "plan": "plan", "advise": "plan", "run": "run", "replicate": "run", "eval": "evaluate"},
    "Read": {"report": "run", "list": "read", "show": "read", "claims": "read"},
    "Verify": {"certify": "verify", "diff": "verify", "regrade": "verify", "calibrate": "verify"},
    "Exchange": {"import": "exchange", "export": "exchange"},
    "Maintain": {"engines": "exchange", "rebuild": "exchange"},
}
"""The commands in the order of help, each with its file here, which has a function of its name and its EXAMPLES."""
FUNCTIONS = {"list": "list_studies", "eval": "evaluate", "import": "import_logs"}
"""The functions of commands whose names are Python's own."""

for panel, commands in PANELS.items():
    for command, file in commands.items():
        module = import_module(f"gspo_lab.cli.{file}")
        function = getattr(module, FUNCTIONS.get(command, command))
        examples = "\n\n".join(("Examples:", *module.EXAMPLES[command]))
        if isinstance(function, typer.Typer):
            app.add_typer(function, name=command, epilog=examples, rich_help_panel=panel)
        else:
            app.command(command, epilog=examples, rich_help_panel=panel)(function)


def main() -> None:
    """The `gspo-lab` command. What the user can fix is one line and exit code 2; a bug keeps its traceback."""
    WARNED.clear()
    try:
        app()
    except (LabError, OSError) as error:
        told = error if isinstance(error, LabError) else refused(error)
        if told is None:
            raise
        print_lines([f"gspo-lab: {told}", *(f"  {detail}" for detail in told.details)], err=True)
        sys.exit(Exit.REFUSED)
