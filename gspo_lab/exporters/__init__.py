"""A study's numbers where people already look: TensorBoard, trackio, W&B, tables. The way back is `gspo-lab import`.

Every target gets the same rows (`logged`), under the same names, and writes them; none computes a number. To add one,
write a module with `write` as in `Target`, and give it a line in TARGETS.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gspo_lab.errors import LabError
from gspo_lab.exporters.logged import Logged, logged
from gspo_lab.files import whole_folder

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

__all__ = ["TARGETS", "Logged", "export", "logged"]

TARGETS = {
    "tensorboard": "gspo_lab.exporters.tensorboard",
    "trackio": "gspo_lab.exporters.trackio",
    "wandb-offline": "gspo_lab.exporters.wandb",
}
"""By its name the module that writes for a program."""


class Target(Protocol):
    """Writes runs as one program keeps them. A module with this function."""

    def write(self, study: str, runs: Sequence[Logged], folder: Path) -> None:
        """All runs into an empty folder. LabError where the program's package is absent."""


def export(evidence: "Evidence", study: str, to: Path, format: str) -> Path:
    """Write a study's runs for a program of TARGETS; the folder `<to>/<study>-<format>`, whole or not at all.

    A former one is replaced. LabError where the study has no number yet, or the program's package is absent.
    """
    runs = logged(evidence, study)
    if not any(run.columns or run.scores for run in runs):
        raise LabError(f"{study} has recorded no number yet; nothing to export")
    target: Target = importlib.import_module(TARGETS[format])
    to.mkdir(parents=True, exist_ok=True)
    folder = to / f"{study}-{format}"
    with whole_folder(folder) as beside:
        beside.mkdir(exist_ok=True)
        target.write(study, runs, beside)
    return folder
