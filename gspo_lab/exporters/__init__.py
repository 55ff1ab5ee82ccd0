"""Export a study's numbers to TensorBoard, trackio, W&B and tables. `gspo-lab import` reads them back.

Every target writes the same rows under the same names (`run_rows`): all at once by `export`, or while a study runs by
`live_export`. A new target is a module with `NEEDS` and `writer` (`Target`), and a line in TARGETS.
"""

import importlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gspo_lab.atomic_files import atomic_folder
from gspo_lab.errors import LabError, MissingExtra
from gspo_lab.exporters.run_rows import RunRows, read_run_rows, write_readings
from gspo_lab.importers.base import LoggedRow
from gspo_lab.registry import names_of, nearest

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

__all__ = ["TARGETS", "RunRows", "StudyWriter", "Target", "export", "read_run_rows", "target"]

TARGETS = {
    "tensorboard": "gspo_lab.exporters.tensorboard",
    "trackio": "gspo_lab.exporters.trackio",
    "wandb-offline": "gspo_lab.exporters.wandb",
}
"""Name of a program -> the module that writes for it.

Installed packages add theirs by entry points `gspo_lab.writers`."""


class StudyWriter(Protocol):
    """Writes a study in one program's format."""

    def begin(self, run: RunRows, rows: Sequence[LoggedRow]) -> int:
        """Prepare a run. Returns how many of `rows`, from the first, it already holds; later rows in it are deleted."""

    def add(self, run: RunRows, rows: Iterable[LoggedRow]) -> None:
        """Append rows to a begun run."""


class Target(Protocol):
    """A module for one program. `NEEDS`: its package, the extra of gspo-lab, and the purpose."""

    NEEDS: tuple[str, str, str]

    def writer(self, study: str, folder: Path) -> AbstractContextManager[StudyWriter]:
        """A writer of a study's runs into a separate folder."""


def target(name: str) -> Target:
    """The module of TARGETS or of an installed package. LabError for an unknown name or a missing package."""
    modules = names_of("writer", TARGETS)
    if name not in modules:
        known = f"{', '.join(modules)}; tables: csv, parquet"
        raise LabError(f"no program '{name}' to write for{nearest(name, modules)}; known: {known}")
    module: Target = importlib.import_module(modules[name])
    if find_spec(module.NEEDS[0]) is None:
        raise MissingExtra(*module.NEEDS)
    return module


def export(evidence: "Evidence", study: str, to: Path, format: str) -> Path:
    """Write a study's runs for a program of TARGETS to the folder `<to>/<study>-<format>`, replaced atomically.

    LabError if the study has no number yet, or the program's package is missing.
    """
    program = target(format)
    runs = read_run_rows(evidence, study)
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
