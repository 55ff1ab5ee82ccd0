"""What must be made before a study's first step: warm starts, pilots that find clip ranges, trials
of `[tune]`.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from gspo_lab.common.atomic_files import read_json
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import BANDS, STARTS, STUDY
from gspo_lab.common.plain_data import Interval, JsonObject
from gspo_lab.recording.runfolder import RunFolder, StartFolder
from gspo_lab.study import Arm, Declaration, Run, Study, digest
from gspo_lab.study.declaration import Band
from gspo_lab.study.dotted_keys import BAND
from gspo_lab.study.parent import Kind
from gspo_lab.study.tuning_trials import trial_study
from gspo_lab.tasks import task_key
from gspo_lab.training.models.check import EMBEDDED
from gspo_lab.training.objectives.presets import PRESETS
from gspo_lab.training.objectives.settings import CLIP_RANGE

PILOT_STEPS = 6
FIRST_SEED = 1_000_000
"""Far from any study's seeds, so that no run meets its pilot's problems and random numbers again.
"""


def needs_start(model: str) -> bool:
    """Embedded models are made, even with 0 steps; all others start from their checkpoint as it
    is.
    """
    return model in EMBEDDED


def start_folder(run: Run, runs: Path) -> StartFolder:
    """The folder in which the warm start that `run` needs is asked for: equal needs, equal
    folder.
    """
    return _folder(warm_start_request(run, runs))


def distinct_starts(runs_needed: Iterable[Run], runs: Path) -> dict[StartFolder, Run]:
    """Each warm start's folder, with a run that needs it."""
    of_settings: dict[
        int, JsonObject
    ] = {}  # runs of one arm share theirs, and wish the same but for the seed
    starts: dict[StartFolder, Run] = {}
    for run in runs_needed:
        if needs_start(run.settings.model):
            if id(run.settings) not in of_settings:
                of_settings[id(run.settings)] = warm_start_request(run, runs)
            starts[_folder({**of_settings[id(run.settings)], "seed": _seed(run)})] = run
    return starts


def warm_start_request(run: Run, runs: Path) -> JsonObject:
    """What a worker is told to make."""
    settings = run.settings
    return {
        "model": settings.model,
        "task": {"name": settings.task.name, "options": settings.task.options},
        "task_key": task_key(settings.task.name, settings.task.options, Path(run.base)),
        "warm_start": settings.warm_start.model_dump(mode="json", exclude={"seed"}),
        "seed": _seed(run),
        "base": run.base,
        "cache": str(
            Path(os.environ.get("GSPO_LAB_CACHE") or runs / STARTS).expanduser().resolve()
        ),
    }


def _seed(run: Run) -> int:
    start = run.settings.warm_start
    return run.seed if start.per_seed else start.seed


def _folder(wished: JsonObject) -> StartFolder:
    needs = {
        key: value for key, value in wished.items() if key != "base"
    }  # the files' content is in the task's key
    return StartFolder(Path(wished["cache"]) / "jobs" / digest(needs)[:16])


def pilot_arms(study: Study) -> list[Arm]:
    """The arms whose clip range a pilot run has to find."""
    return [arm for arm in study.arms.values() if arm.settings.objective.clip == "calibrated"]


def found_bands(study: Study, home: Path) -> dict[str, Interval]:
    """The ranges found so far for arms whose settings are still those of their pilot."""
    bands = read_json(home / BANDS) or {}
    try:
        return {
            arm.name: band_of(bands[arm.name])
            for arm in pilot_arms(study)
            if arm.name in bands and bands[arm.name]["settings"] == settings_digest(arm)
        }
    except (KeyError, TypeError, ValueError) as error:
        raise LabError(
            f"{home / BANDS} is damaged ({error}): delete it, and its pilots find the ranges again"
        ) from error


def band_of(entry: JsonObject) -> Band:
    """The range in an entry of bands.json."""
    low, high = CLIP_RANGE
    return float(entry[low]), float(entry[high])


def pilot(study: Study, arm: Arm, band: Band | None = None, kind: Kind = Kind.PILOT) -> Run:
    """The arm's pilot: its preset's range or `band`, few steps, no benchmark, every log-ratio
    recorded.
    """
    preset = PRESETS[arm.settings.objective.preset]
    overrides = {
        "objective.clip": "fixed",
        **dict(zip(BAND, band or preset.clip_range, strict=True)),
        "record.detail_every": 1,
        "record.token_detail": True,
        "steps": PILOT_STEPS,
        "bench": [],
    }
    (run,) = study.derive(kind, [arm], [FIRST_SEED + study.seeds[0]], overrides).runs()
    return run


def settings_digest(arm: Arm) -> str:
    """What a found range holds for: all of the arm's settings but the range."""
    return digest({key: value for key, value in arm.flat_settings.items() if key not in BAND})


def trials_left(study: Study, runs: Path) -> tuple[list[Run], int]:
    """The remaining trials of a study that tunes, and the most steps that they train; ([], 0)
    without any.
    """
    if study.tune is None or study.tune.chosen:
        return [], 0
    file = runs / study.name / STUDY
    data = read_json(file)
    stored = None if data is None else Declaration.parse(data, file).tune
    if stored is not None and stored.chosen:
        return [], 0
    trials = trial_study(study).runs()
    steps_done = sum(RunFolder(run.folder(runs)).status().steps for run in trials)
    return trials, max(0, study.tune.spent * len(study.arms) - steps_done)
