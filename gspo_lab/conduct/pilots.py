"""Pilot runs: each finds the clip range of an arm with clip = 'calibrated', which is frozen before the first step."""

from pathlib import Path
from typing import Any

from gspo_lab.conduct.declaration import archive
from gspo_lab.conduct.prepare import run_item
from gspo_lab.conduct.scheduler import WorkItem
from gspo_lab.errors import LabError
from gspo_lab.files import read_json, write_json
from gspo_lab.layout import BANDS
from gspo_lab.plan.pilots import settings_digest
from gspo_lab.records import UpdateRecord
from gspo_lab.runfolder import RunFolder
from gspo_lab.study import Arm, Run

DROPPED_STEPS = 2
"""Adam's first steps are nearly of unit size whatever the gradient: their moves are no sample of the later ones."""


def pilot_item(run: Run, runs: Path) -> WorkItem | None:
    """The work item of a pilot whose run.json is about to be written; None where it has finished.

    What lies in its folder from a pilot with other settings is moved away.
    """
    folder = RunFolder(run.folder(runs))
    former = folder.specification()
    if former is not None and former.get("settings") != run.to_json()["settings"]:
        archive(folder.path, runs, run.study.replace("/", "-") + f"-{run.arm}")
    if folder.standing().finished:
        return None
    return run_item(run, runs, stage="pilots", row=f"pilot {run.arm}", column="")


def find_band(arm: Arm, run: Run, runs: Path, home: Path) -> tuple[float, float]:
    """The range that the finished pilot `run` calls for, written to bands.json."""
    from gspo_lab.objectives.calibration import calibrated_band

    objective = arm.settings.objective
    folder = RunFolder(run.folder(runs))
    try:
        low, high = calibrated_band(details(folder), objective.importance_sampling_level, objective.clip_target)
    except LabError as error:
        raise LabError(f"arm.{arm.name}: clip = 'calibrated': {error} (pilot: {folder.path})") from error
    write_json(
        home / BANDS,
        {
            **(read_json(home / BANDS) or {}),
            arm.name: {
                "clip_low": low,
                "clip_high": high,
                "clip_target": objective.clip_target,
                "level": objective.importance_sampling_level,
                "pilot": str(folder.path.relative_to(runs)),
                "settings": settings_digest(arm),
            },
        },
        sealed=True,
    )
    return low, high


def details(folder: RunFolder) -> list[dict[str, Any]]:
    """`response_detail` of the updates that count: settled steps, and mini-batches after the first."""
    return [
        update["response_detail"]
        for update in folder.records(UpdateRecord.kind)
        if update["step"] >= DROPPED_STEPS and update["minibatch"] >= 1 and update.get("response_detail") is not None
    ]
