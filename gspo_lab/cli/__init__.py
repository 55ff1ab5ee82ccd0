"""The command line: one file per command, each importing what it needs inside its function, so that help is quick."""

import errno
import sys

import typer

from gspo_lab import __version__
from gspo_lab.cli import (
    calibrate,
    certify,
    check,
    claims,
    engines,
    evaluate,
    export,
    grade,
    listing,
    plan,
    rebuild,
    replicate,
    report,
    run,
    show,
    why,
)
from gspo_lab.cli.options import TOLD
from gspo_lab.errors import LabError
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


app.command("run", epilog=run.EXAMPLES)(run.run)
app.command("replicate", epilog=replicate.EXAMPLES)(replicate.replicate)
app.command("report", epilog=report.EXAMPLES)(report.report)
app.command("plan", epilog=plan.EXAMPLES)(plan.plan)
app.command("check", epilog=check.EXAMPLES)(check.check)
app.command("list", epilog=listing.EXAMPLES)(listing.list_studies)
app.command("show", epilog=show.EXAMPLES)(show.show)
app.command("certify", epilog=certify.EXAMPLES)(certify.certify)
app.command("why", epilog=why.EXAMPLES)(why.why)
app.command("claims", epilog=claims.EXAMPLES)(claims.claims)
app.command("calibrate", epilog=calibrate.EXAMPLES)(calibrate.calibrate)
app.command("eval", epilog=evaluate.EXAMPLES)(evaluate.evaluate)
app.command("grade", epilog=grade.EXAMPLES)(grade.grade)
app.add_typer(engines.app, name="engines", epilog=engines.EXAMPLES)
app.command("export", epilog=export.EXAMPLES)(export.export)
app.command("rebuild", epilog=rebuild.EXAMPLES)(rebuild.rebuild)


THE_MACHINES = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG),
}
"""What a folder or disk can refuse: the user's to mend, so one line and no traceback."""


def main() -> None:
    """The `gspo-lab` command. What the user can fix is one line and exit code 2; a bug keeps its traceback."""
    TOLD.clear()
    try:
        app()
    except LabError as error:
        typer.echo(f"gspo-lab: {error}", err=True)
        for detail in error.details:
            typer.echo(f"  {detail}", err=True)
        sys.exit(Exit.REFUSED)
    except OSError as error:
        if error.errno not in THE_MACHINES:
            raise
        typer.echo(f"gspo-lab: {error.filename or 'a file'} cannot be used: {error.strerror}", err=True)
        sys.exit(Exit.REFUSED)
