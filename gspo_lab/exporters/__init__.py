"""A study's numbers where people already look: TensorBoard, trackio, W&B, tables. The way back is `gspo-lab import`.

Every target gets the same rows (`logged`), under the same names, and writes them; none computes a number: when a study
is exported, all at once, and while it runs (`Mirror`), as they come. To add one, write a module with `NEEDS` and
`writer` as in `Target`, and give it a line in TARGETS.
"""

import importlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gspo_lab.errors import LabError, MissingExtra
from gspo_lab.exporters.logged import Logged, logged, write_readings
from gspo_lab.files import atomic_folder
from gspo_lab.importers.log import Row
from gspo_lab.registry import nearest

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

__all__ = ["TARGETS", "Logged", "Target", "Writer", "export", "logged", "target"]

TARGETS = {
    "tensorboard": "gspo_lab.exporters.tensorboard",
    "trackio": "gspo_lab.exporters.trackio",
    "wandb-offline": "gspo_lab.exporters.wandb",
}
"""By its name the module that writes for a program."""


class Writer(Protocol):
    """A study as one program keeps it, to be written to."""

    def begin(self, run: Logged, rows: Sequence[Row]) -> int:
        """Make a run's place; of what it held only these rows' first stay: how many of them are there."""

    def add(self, run: Logged, rows: Iterable[Row]) -> None:
        """Rows of a run that has begun, behind those that are there."""


class Target(Protocol):
    """How one program keeps runs: a module with these two. `NEEDS` is its package, our extra, and what that is for."""

    NEEDS: tuple[str, str, str]

    def writer(self, study: str, folder: Path) -> AbstractContextManager[Writer]:
        """Whoever writes a study's runs into a folder that is theirs alone."""


def target(name: str) -> Target:
    """The module of TARGETS. LabError for an unknown name, and where the program's package is absent."""
    if name not in TARGETS:
        raise LabError(f"no program '{name}' to write for{nearest(name, TARGETS)}; known: {', '.join(TARGETS)}")
    found: Target = importlib.import_module(TARGETS[name])
    if find_spec(found.NEEDS[0]) is None:
        raise MissingExtra(*found.NEEDS)
    return found


def export(evidence: "Evidence", study: str, to: Path, format: str) -> Path:
    """Write a study's runs for a program of TARGETS; the folder `<to>/<study>-<format>`, whole or not at all.

    A former one is replaced. LabError where the study has no number yet, or the program's package is absent.
    """
    program = target(format)
    runs = logged(evidence, study)
    if not any(run.columns or run.scores for run in runs):
        raise LabError(f"{study} has recorded no number yet; nothing to export")
    to.mkdir(parents=True, exist_ok=True)
    folder = to / f"{study}-{format}"
    with atomic_folder(folder) as beside:
        beside.mkdir(exist_ok=True)
        with program.writer(study, beside) as writer:
            for run in runs:
                writer.begin(run, ())
                writer.add(run, run.rows())
        write_readings(beside)
    return folder
