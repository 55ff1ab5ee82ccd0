"""The command line.

Each command imports what it needs inside its function, so that help is quick.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

import typer
import typer.main
from typer.core import TyperGroup

from gspo_lab import __version__
from gspo_lab.cli.output import print_lines
from gspo_lab.cli.shared_options import WARNED
from gspo_lab.common.errors import LabError, refused
from gspo_lab.common.states import Exit

USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
"""What a wrong option or argument raises; typer itself does not export it."""


@contextmanager
def _usage_in_one_line() -> Iterator[None]:
    try:
        yield
    except USAGE_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # not an error: the help is shown
            raise
        program = error.ctx.command_path if error.ctx else "gspo-lab"
        raise LabError(f"{error.format_message().rstrip('.')}; see {program} --help") from None
    except typer.Abort:  # Ctrl-C at a question
        typer.echo("\ngspo-lab: interrupted", err=True)
        raise typer.Exit(Exit.INTERRUPTED) from None


class _Commands(TyperGroup):
    """All commands. A wrong option or argument is one line, as every mistake of a user is."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        with _usage_in_one_line():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with _usage_in_one_line():
            return super().invoke(ctx)


app = typer.Typer(
    cls=_Commands,
    name="gspo-lab",
    help=(
        "GRPO or GSPO for your model? Train both under matched conditions and report a verdict with"
        " its uncertainty."
    ),
    epilog="Start with:  gspo-lab init my_study",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.callback(invoke_without_command=True)
def _options(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True
    ),
) -> None:
    if version:
        typer.echo(f"gspo-lab {__version__}")
        raise typer.Exit


PANELS = {
    "Run": {
        "init": "init",
        "plan": "plan",
        "run": "run",
        "replicate": "run",
        "eval": "evaluate",
    },
    "Read": {"report": "run", "show": "read", "claims": "read", "diagnose": "diagnose"},
    "Verify": {"certify": "verify", "compare": "verify"},
    "Exchange": {"import": "exchange", "export": "exchange"},
    "Maintain": {"records": "records", "engines": "engines", "upcycle": "upcycle"},
}
"""The commands in the order of help, each with its file here, which has a function of its name and
its EXAMPLES.
"""
FUNCTIONS = {"eval": "evaluate", "import": "import_logs"}
"""The functions of commands whose names are Python's own."""

for panel, commands in PANELS.items():
    for name, file in commands.items():
        module = import_module(f"gspo_lab.cli.{file}")
        function = getattr(module, FUNCTIONS.get(name, name))
        examples = "\n\n".join(("Examples:", *module.EXAMPLES[name]))
        if isinstance(function, typer.Typer):
            app.add_typer(function, name=name, epilog=examples, rich_help_panel=panel)
        else:
            app.command(name, epilog=examples, rich_help_panel=panel)(function)


VALUES = {"str": "TEXT", "int": "N", "float": "X", "Path": "PATH"}
"""Type of an option -> the word that stands for its value in help."""


def command() -> Any:
    """The command line as click sees it, with a word for the value of each option that has one."""
    root: Any = typer.main.get_command(app)
    groups: list[Any] = [root]
    while groups:
        group = groups.pop()
        groups += getattr(group, "commands", {}).values()
        for param in group.get_params(typer.Context(group)):
            descriptor = param.type_descriptor
            if param.metavar is None and not descriptor.is_choice:
                name = param.bare_type().removeprefix("list[").removesuffix("]")
                is_option = param.param_type_name == "option"
                value = VALUES.get(name) if is_option else None
                param.display_type_rich = partial(_constant, value)
    return root


def _constant(value: str | None, ctx: Any) -> str | None:
    return value


COLLECT_AFTER = 100_000
"""New objects after which Python looks for unreachable cycles. At its own 700 a third of a
command's imports is this search, which finds nothing.
"""


def main() -> None:
    """The `gspo-lab` command.

    What the user can fix is one line and exit code 2; a bug keeps its traceback.
    """
    gc.set_threshold(COLLECT_AFTER)
    WARNED.clear()
    try:
        command()()
    except LabError as error:
        _refuse(error)
    except OSError as error:
        if (message := refused(error)) is None:
            raise
        _refuse(message)


def _refuse(error: LabError) -> NoReturn:
    print_lines([f"gspo-lab: {error}", *(f"  {detail}" for detail in error.details)], err=True)
    sys.exit(Exit.REFUSED)
