"""clip = 'calibrated': which arms need a pilot run, what that is, and the ranges that pilots have found."""

from pathlib import Path

from gspo_lab.errors import LabError
from gspo_lab.files import read_json
from gspo_lab.layout import BANDS, PILOTS
from gspo_lab.objectives.presets import PRESETS
from gspo_lab.study import Arm, Run, Settings, Study, digest, flat
from gspo_lab.study.declaration import Band, reference_bands
from gspo_lab.study.dotted import BAND

STEPS = 6
FIRST_SEED = 1_000_000
"""Far from any study's seeds, so that no run meets its pilot's problems and random numbers again."""


def pilot_arms(study: Study) -> list[Arm]:
    """The arms whose clip range a pilot run has to find."""
    return [arm for arm in study.arms.values() if arm.settings.objective.clip == "calibrated"]


def found_bands(study: Study, home: Path) -> dict[str, tuple[float, float]]:
    """The ranges found so far for arms whose settings are still those of their pilot."""
    known = read_json(home / BANDS) or {}
    try:
        return {
            arm.name: (float(known[arm.name]["clip_low"]), float(known[arm.name]["clip_high"]))
            for arm in pilot_arms(study)
            if arm.name in known and known[arm.name]["settings"] == settings_digest(arm)
        }
    except (KeyError, TypeError, ValueError) as error:
        raise LabError(
            f"{home / BANDS} is damaged ({error}): delete it, and its pilots find the ranges again"
        ) from error


def pilot(study: Study, arm: Arm, band: Band | None = None, place: str | None = None, name: str | None = None) -> Run:
    """The arm's pilot: its preset's range or `band`, few steps, no benchmark, every log-ratio recorded. `place` and
    `name` are where it lies instead of the study's own pilots."""
    data = arm.settings.model_dump(mode="json")
    preset = PRESETS[arm.settings.objective.preset]
    low, high = band or (preset.clip_low, preset.clip_high)
    data["objective"] |= {"clip": "fixed", "clip_low": low, "clip_high": high}
    data["record"] |= {"detail_every": 1, "token_detail": True}
    settings = Settings.model_validate({**data, "steps": STEPS, "bench": []})
    bands = reference_bands([settings])
    base = str(study.path.parent.resolve())
    seed = FIRST_SEED + study.seeds[0]
    return Run(place or f"{study.name}/{PILOTS}", name or arm.name, seed, settings, arm.declared, bands, base)


def settings_digest(arm: Arm) -> str:
    """What a found range holds for: all of the arm's settings but the range."""
    return digest({key: value for key, value in flat(arm.resolved).items() if key not in BAND})
