"""The command line.

Each command imports what it needs inside its function, so that help is quick.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from gspo_lab import __version__
from gspo_lab.cli.output import print_lines
from gspo_lab.cli.shared_options import WARNED, warn
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


class _Commands(TyperGroup):
    """All commands. A wrong option or argument is one line, as every mistake of a user is."""

    def make_context(self, *args: Any, **more: Any) -> Any:
        with _usage_in_one_line():
            return super().make_context(*args, **more)

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
    epilog="Start with:  gspo-lab run studies/quickstart.toml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
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
        "check": "plan",
        "plan": "plan",
        "advise": "plan",
        "run": "run",
        "replicate": "run",
        "eval": "evaluate",
    },
    "Read": {"report": "run", "list": "read", "show": "read", "claims": "read"},
    "Verify": {"certify": "verify", "diff": "verify", "regrade": "verify", "calibrate": "verify"},
    "Exchange": {"import": "exchange", "export": "exchange"},
    "Maintain": {"engines": "exchange", "rebuild": "exchange"},
}
"""The commands in the order of help, each with its file here, which has a function of its name and
its EXAMPLES.
"""
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

FORMER_COMMANDS = {"why": "diff", "grade": "regrade"}
"""Earlier names, accepted for one release with a line of warning each."""
_RUN = {"--yes": "--ignore-memory-check", "--reports": "--output-dir"}
FORMER_OPTIONS = {
    "run": _RUN,
    "replicate": {**_RUN, "--another": "--new"},
    "advise": {"--yes": "--ignore-memory-check", "--share": "--clip-target"},
    "report": {"--to": "--output-dir", "--with": "--include"},
    "export": {"--to": "--output-dir"},
    "calibrate": {"--studies": "--simulations"},
    "certify": {"--regrade": "--regrade-sample"},
    "eval": {
        "--at-once": "--concurrency",
        "--plain": "--raw-prompts",
        "--key-env": "--api-key-env",
    },
    "import": {"--program": "--logged-by", "--score": "--score-metric", "--name": "--run-pattern"},
    "check": {"--write": "--write-config"},
}


def current_spelling(words: Sequence[str]) -> list[str]:
    """The words of a command line with each earlier name replaced by the present one."""
    if not words:
        return []
    command = FORMER_COMMANDS.get(words[0], words[0])
    present = [command]
    for word in words[1:]:
        name, equals, value = word.partition("=")
        present.append(FORMER_OPTIONS.get(command, {}).get(name, name) + equals + value)
    for before, now in zip(words, present, strict=True):
        if before != now:
            warn(
                f"{before.partition('=')[0]} is now {now.partition('=')[0]}; the old name will be"
                " removed"
            )
    return present


def main() -> None:
    """The `gspo-lab` command.

    What the user can fix is one line and exit code 2; a bug keeps its traceback.
    """
    WARNED.clear()
    sys.argv[1:] = current_spelling(sys.argv[1:])
    try:
        app()
    except LabError as error:
        _refuse(error)
    except OSError as error:
        if (message := refused(error)) is None:
            raise
        _refuse(message)


def _refuse(error: LabError) -> NoReturn:
    print_lines([f"gspo-lab: {error}", *(f"  {detail}" for detail in error.details)], err=True)
    sys.exit(Exit.REFUSED)
