"""Options that several commands share, so that they look and work alike everywhere."""

import gc
import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gspo_lab.cli.output import print_lines
from gspo_lab.common.atomic_files import WAIT_SECONDS
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import STUDY, SUBJECT, SUBJECTS, database_of
from gspo_lab.common.plain_data import OptionalFloat
from gspo_lab.common.registry import unlisted
from gspo_lab.running.launch import LAUNCHERS

if TYPE_CHECKING:
    from gspo_lab.recording.store import Evidence
    from gspo_lab.study import Study

Runs = Annotated[
    Path,
    typer.Option(
        "--runs", envvar="GSPO_LAB_RUNS", help="Folder of the runs and of the database lab.db."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
StudyFile = Annotated[
    Path,
    typer.Argument(
        help="The study's TOML file, or its name here or in studies/.", show_default=False
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting: rollout.group_size=16. Repeatable.",
    ),
]
Seeds = Annotated[
    str | None,
    typer.Option(
        help="A list of seeds (0,1,7), or a count (5): the declared ones first, then those above."
    ),
]
OneSeed = Annotated[int | None, typer.Option("--seed", help="One seed.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Number of steps (rollout batches).")]
Arms = Annotated[str | None, typer.Option(help="Run only these arms, separated by commas.")]
Name = Annotated[str | None, typer.Option(help="Name of the study. Default: its file's.")]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Runs at a time. Default: one per GPU or CPU core.")
]
On = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="LAUNCHER",
        help=(
            f"Launcher: {', '.join(LAUNCHERS)}, ray:HOST:PORT, module:attribute or"
            " file.py:attribute."
        ),
    ),
]


Mapped = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="COLUMN=NAME",
        help="Name of a column in the log, for example reward=train/r. Repeatable.",
    ),
]
LoggedBy = Annotated[
    str | None,
    typer.Option(help="Program whose metric names the log uses, for example verl in TensorBoard."),
]
ConfigFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="Configuration of the run, as JSON or YAML.")
]

LARGEST_SD = 1.5
"""Scores lie from 0 to 1: differences of -1 and 1 have an sd of 1.41 over two seeds, and less over
more.
"""


def _possible(sd: OptionalFloat) -> OptionalFloat:
    if sd is not None and not 0 <= sd <= LARGEST_SD:
        raise LabError(
            f"--sd {sd:g}: differences of scores have an sd from 0 to {LARGEST_SD:g}, e.g. --sd"
            " 0.03"
        )
    return sd


Sd = Annotated[
    float | None,
    typer.Option(
        callback=_possible,
        help="Standard deviation of a pair's or contrast's difference. Default: measured.",
    ),
]
AgainstItself = Annotated[
    str | None,
    typer.Option(
        "--aa",
        metavar="ARM",
        help="Run an A/A test: train ARM twice with different random numbers, to measure noise.",
    ),
]

Accept = Annotated[
    str | None,
    typer.Option(
        "--accept-mismatch",
        metavar="REASON",
        help="Accept undeclared differences of the runs. The report prints REASON.",
    ),
]
UnsafeNoSandbox = Annotated[
    bool,
    typer.Option(
        "--unsafe-no-sandbox",
        help=(
            "Run model-written programs without isolation. They can read, change and send all that"
            " you can."
        ),
    ),
]

IgnoreMemory = Annotated[
    bool,
    typer.Option(
        "--ignore-memory-check",
        help="Start even if the memory seems too small.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and its cost, and exit.")]
OutputDir = Annotated[Path, typer.Option("--output-dir", help="Folder for the report's files.")]

RUNS = Path("runs")
REPORTS = Path("reports")


NO_STUDY = "holds no study yet: gspo-lab init my_study"


WARNED: set[str] = set()
"""The warnings of this command so far: one that reads several times (`report --watch`) prints each
once.
"""


def warn(line: str) -> None:
    """Print a warning on stderr, unless this command has printed it before."""
    if line not in WARNED:
        WARNED.add(line)
        print_lines([f"gspo-lab: {line}"], err=True)


def update_lab(runs: Path) -> Path | None:
    """Update the database under `runs` from the run folders, and return its path; None for a folder
    without studies.
    """
    from gspo_lab.recording.store import ingest

    if not runs.is_dir():
        raise LabError(
            f"no folder {runs}: start with gspo-lab init my_study, or name one by --runs"
        )
    database = database_of(runs)
    if (
        not database.exists()
        and not any(runs.glob(f"*/{STUDY}"))
        and not any(runs.glob(f"{SUBJECTS}/*/{SUBJECT}"))
    ):
        return None
    try:
        for line in ingest(runs, patience_seconds=WAIT_SECONDS).damaged:
            warn(line)
    except LabError as error:
        if not database.exists():
            raise
        # A lock, or a damaged or read-only folder, must not prevent reading the database.
        warn("\n  ".join([f"not all of {runs} is up to date: {error}", *error.details]))
    return database


def evidence_of(runs: Path) -> "Evidence":
    """The evidence under `runs`; LabError where no study was run."""
    from gspo_lab.recording.store import Evidence

    gc.set_threshold(10**5)  # rows make no cycles: a fifth of a large report went to looking
    database = update_lab(runs)
    if database is None:
        raise LabError(f"{runs} {NO_STUDY}")
    return Evidence.open(database, runs)


def study_named(evidence: "Evidence", name: str | None, runs: Path) -> str:
    """The study `name`, or the latest if none is named; LabError where there is none."""
    studies = evidence.studies()
    if name is None and not studies:
        raise LabError(f"{runs} {NO_STUDY}")
    chosen = studies[-1] if name is None else name
    evidence.study(chosen)
    return chosen


def run_named(evidence: "Evidence", name: str) -> str:
    """The id of the run `name`, which may lack its study (gspo/s0); other names are returned.

    LabError if ambiguous.
    """
    studies = evidence.studies()
    study, slash, _ = name.partition("/")
    if not slash or study in studies:
        return name
    matches = []
    for study in studies:
        ids = [run.id for run in evidence.chosen(study)]
        matches += [run_id for run_id in ids if run_id == f"{study}/{name}"]
    if len(matches) > 1:
        raise LabError(f"'{name}' is a run of several studies: {', '.join(matches)}")
    return matches[0] if matches else name


def make_study(
    study_file: StudyFile,
    overrides: Overrides = None,
    seeds: Seeds = None,
    seed: OneSeed = None,
    steps: Steps = None,
    arms: Arms = None,
    name: Name = None,
    aa: AgainstItself = None,
) -> "Study":
    """The study of a file with these options, the same for every command.

    LabError for a mistake in either.
    """
    from gspo_lab.study import aa_study, load_study

    names = None if arms is None else [part.strip() for part in arms.split(",") if part.strip()]
    study = load_study(
        study_file,
        overrides=overrides or (),
        seeds=_parse_seeds(seeds, seed),
        steps=steps,
        arms=names,
        name=name,
    )
    if aa is None:
        return study
    if aa not in study.arms:
        raise LabError(f"--aa: no arm {unlisted(aa, study.arms, 'this study has')}")
    return aa_study(study, aa)


def _load(*own_overrides: str, overrides: Overrides = None, **options: Any) -> "Study":
    """The study of a command's options, with the command's own overrides after the user's."""
    return make_study(overrides=[*(overrides or []), *own_overrides], **options)


def with_study(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `make_study`, replaced by a function that loads the study with
    more overrides.
    """
    shared = inspect.signature(make_study).parameters
    parameters = [*shared.values(), *list(inspect.signature(command).parameters.values())[1:]]

    def called(**arguments: Any) -> None:
        options = {name: arguments.pop(name) for name in shared}
        command(partial(_load, **options), **arguments)

    called.__doc__ = command.__doc__
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return called


def _parse_seeds(text: str | None, seed: int | None) -> int | list[int] | None:
    """The seeds of `--seeds` and `--seed`: a count, a list, or None without either."""
    if seed is not None:
        if text is not None:
            raise LabError("--seed and --seeds: name one seed, or several; leave one of them out")
        return [seed]
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise LabError(f"--seeds {text}: a count (5) or a list (0,1,7) of whole numbers") from error
    if "," in text:
        return numbers
    if not 1 <= numbers[0] <= 10_000:
        raise LabError(
            f"--seeds {text}: a count lies from 1 to 10000; name one seed with --seed {text}"
        )
    return numbers[0]
