"""AReaL's own checkpoint of a run: how far it goes, and whether it can be gone on from. AReaL keeps one, in place."""

import getpass
import shutil
from pathlib import Path

from gspo_lab.engines.areal.prepare import FILES
from gspo_lab.files import read_json
from gspo_lab.study import Run

SAVING = "saving"
"""The file that is there while a checkpoint is written."""


def saved_steps(root: Path, run: Run, recorded: int) -> int:
    """The steps of the checkpoint below `root`; 0 where there is none that is whole and goes no further than the
    records: it is deleted then."""
    files = root / FILES
    torn = (files / SAVING).exists()
    said = None if torn else read_json(checkpoints(root, run) / "recover_info" / "step_info.json")
    steps = 0 if said is None else int(said["global_step"]) + 1
    if 0 < steps <= recorded:
        return steps
    shutil.rmtree(files, ignore_errors=True)
    return 0


def trained_model(root: Path, run: Run) -> Path:
    """The Hugging Face folder that AReaL leaves at the end."""
    last = run.settings.steps - 1
    return checkpoints(root, run) / "default" / f"epoch0epochstep{last}globalstep{last}"


def checkpoints(root: Path, run: Run) -> Path:
    """AReaL's folder of them."""
    return root / FILES / "checkpoints" / getpass.getuser() / run.study / f"{run.arm}-s{run.seed}"
