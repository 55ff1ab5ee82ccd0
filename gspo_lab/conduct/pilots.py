"""clip = 'calibrated': a short pilot run finds the clip range, which is frozen before the study's first step."""

from pathlib import Path
from typing import Any

from gspo_lab.conduct.declaration import archive
from gspo_lab.conduct.watch import RunWatch
from gspo_lab.conduct.work import Job
from gspo_lab.errors import LabError
from gspo_lab.files import read_json, write_json
from gspo_lab.layout import BANDS, PILOTS
from gspo_lab.objectives.presets import PRESETS
from gspo_lab.records import UpdateRecord
from gspo_lab.runfolder import RunFolder
from gspo_lab.study import Arm, Run, Settings, Study, digest, flat
from gspo_lab.study.declaration import reference_bands
from gspo_lab.study.dotted import BAND

STEPS = 6
DROPPED_STEPS = 2
"""Adam's first steps are nearly of unit size whatever the gradient: their moves are no sample of the later ones."""
FIRST_SEED = 1_000_000
"""Far from any study's seeds, so that no run meets its pilot's problems and random numbers again."""


def calibrated(study: Study) -> list[Arm]:
    return [arm for arm in study.arms.values() if arm.settings.objective.clip == "calibrated"]


def found_bands(study: Study, home: Path) -> dict[str, tuple[float, float]]:
    """The ranges found so far for arms whose settings are still those of their pilot."""
    known = read_json(home / BANDS) or {}
    return {
        arm.name: (known[arm.name]["clip_low"], known[arm.name]["clip_high"])
        for arm in calibrated(study)
        if arm.name in known and known[arm.name]["settings"] == _settings_digest(arm)
    }


def pilot(study: Study, arm: Arm) -> Run:
    """The arm's pilot: its preset's fixed range, few steps, no benchmark, every log-ratio recorded."""
    data = arm.settings.model_dump(mode="json")
    preset = PRESETS[arm.settings.objective.preset]
    data["objective"] |= {"clip": "fixed", "clip_low": preset.clip_low, "clip_high": preset.clip_high}
    data["record"] |= {"detail_every": 1, "token_detail": True}
    settings = Settings.model_validate({**data, "steps": STEPS, "bench": []})
    bands = reference_bands([settings])
    base = str(study.path.parent.resolve())
    return Run(f"{study.name}/{PILOTS}", arm.name, FIRST_SEED + study.seeds[0], settings, arm.declared, bands, base)


def pilot_job(run: Run, runs: Path) -> Job | None:
    """The job of a pilot whose run.json is about to be written; None where it has finished.

    What lies in its folder from a pilot with other settings is moved away.
    """
    folder = RunFolder(run.folder(runs))
    former = folder.specification()
    if former is not None and former["settings"] != run.to_json()["settings"]:
        archive(folder.path, runs, run.study.replace("/", "-") + f"-{run.arm}")
    if folder.standing().finished:
        return None
    return Job(f"pilot {run.arm}", folder, RunWatch(folder, STEPS))


def calibrate(arm: Arm, run: Run, runs: Path, home: Path) -> tuple[float, float]:
    """The range that the finished pilot `run` calls for, written to bands.json."""
    from gspo_lab.objectives.calibration import calibrated_band

    objective = arm.settings.objective
    folder = RunFolder(run.folder(runs))
    try:
        low, high = calibrated_band(_details(folder), objective.importance_sampling_level, objective.clip_target)
    except LabError as error:
        raise LabError(f"arm.{arm.name}: {error} (pilot: {folder.path})", details=error.details) from error
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
                "settings": _settings_digest(arm),
            },
        },
    )
    return low, high


def _details(folder: RunFolder) -> list[dict[str, Any]]:
    """`response_detail` of the updates that count: settled steps, and mini-batches after the first."""
    return [
        update["response_detail"]
        for update in folder.records(UpdateRecord.kind)
        if update["step"] >= DROPPED_STEPS and update["minibatch"] >= 1 and update.get("response_detail") is not None
    ]


def _settings_digest(arm: Arm) -> str:
    settings = flat(arm.settings.model_dump(mode="json"))
    return digest({key: value for key, value in settings.items() if key not in BAND})
