"""Pilots: short runs whose recorded log-ratios give a clip range.

For an arm with `clip = "calibrated"` one pilot finds the range, which is fixed before the first
step. `gspo-lab plan --advise` repeats this for any model and task:

    rule ─> pilot with the published range ─> range that clips the target share of the recorded
    ratios
                                                └─> pilot with that range ─> if it clips another
                                                share: repeat

A clipped policy moves less, so a range changes the ratios it was computed from. Only a range that
was used is advised.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from gspo_lab.analysis.readings import average, middle
from gspo_lab.common.atomic_files import exclusive_lock, read_json, write_json
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import BANDS, CONDUCTOR_LOCK
from gspo_lab.common.plain_data import JsonObject, OptionalFloat
from gspo_lab.common.states import State
from gspo_lab.recording.records import StepRecord, UpdateRecord
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.running.conduct.study_lock import archive, clip_settings
from gspo_lab.running.conduct.worker_pool import WorkerPool, run_item, starts_to_make, write_run
from gspo_lab.running.launch.local import LocalPool
from gspo_lab.running.plan.memory_fit import require_memory
from gspo_lab.running.plan.plan import plan_of
from gspo_lab.running.plan.preflight import preflight
from gspo_lab.running.plan.preparation import PILOT_STEPS, pilot, settings_digest
from gspo_lab.running.progress import ProgressView
from gspo_lab.study import Arm, Run, Settings, Study
from gspo_lab.study.declaration import Band
from gspo_lab.study.dotted_keys import flat, under
from gspo_lab.study.parent import Kind
from gspo_lab.training.objectives.calibration import calibrated_band, clipped_share
from gspo_lab.training.objectives.presets import PRESETS
from gspo_lab.training.objectives.ratios import RATIOS, RULES
from gspo_lab.training.objectives.settings import CLIP_RANGE

DROPPED_STEPS = 2
"""First steps that are ignored:

Adam's are nearly of unit size whatever the gradient, unlike later steps.
"""
TRIES = 3
"""Most ranges that are tried per rule."""
FACTOR = 1.5
"""A range holds if the share that it clips is within this factor of the target."""


def run_pilots(pool: WorkerPool, title: str, pilots: list[Run], runs: Path) -> bool:
    """Make the pilots' warm starts, then run the unfinished pilots. True if all finished.

    A folder whose pilot had other settings is archived first.
    """
    if not pool.work("warm starts", starts_to_make(pilots, runs)):
        return False
    items = []
    for run in pilots:
        folder = RunFolder(run.folder(runs))
        former = folder.specification()
        if former is not None and former.get("settings") != run.to_json()["settings"]:
            archive(folder.path, runs, run.study.replace("/", "-") + f"-{run.arm}")
        write_run(run, runs)
        if not folder.status().finished:
            items.append(run_item(run, runs, Kind.PILOT))
    return pool.work(title, items)


def find_band(arm: Arm, run: Run, runs: Path, home: Path) -> Band:
    """The range that the finished pilot `run` gives, written to bands.json."""
    folder = RunFolder(run.folder(runs))
    objective = arm.settings.objective
    band = _range_of(arm, folder, f"arm.{arm.name}: clip = 'calibrated'")
    entry = {
        **clip_settings(band),
        "clip_target": objective.clip_target,
        "level": objective.importance_sampling_level,
        "pilot": str(folder.path.relative_to(runs)),
        "settings": settings_digest(arm),
    }
    write_json(home / BANDS, {**(read_json(home / BANDS) or {}), arm.name: entry})
    return band


def _range_of(arm: Arm, folder: RunFolder, subject: str) -> Band:
    objective = arm.settings.objective
    try:
        return calibrated_band(
            _details(folder), objective.importance_sampling_level, objective.clip_target
        )
    except LabError as error:
        raise LabError(f"{subject}: {error} (pilot: {folder.path})") from error


def _details(folder: RunFolder) -> list[JsonObject]:
    """`response_detail` of the updates after the ignored steps, without each step's first
    mini-batch.
    """
    return [
        update["response_detail"]
        for update in folder.records(UpdateRecord.kind)
        if update["step"] >= DROPPED_STEPS
        and update["minibatch"] >= 1
        and update.get("response_detail") is not None
    ]


def _clipped_share(arm: Arm, band: Band, folder: RunFolder) -> float:
    """The share that the range clips of what a pilot recorded."""
    return clipped_share(_details(folder), arm.settings.objective.importance_sampling_level, band)


@dataclass(frozen=True)
class Advice:
    """The result of the pilots of one rule. Shares are of active tokens, or of responses for a
    response-level rule, on mini-batches >= 1; None: not measured."""

    rule: str
    declared: JsonObject
    """The declared settings of the pilots' arm except its range, as in its TOML table."""
    band: Band
    """The recommended range."""
    target: float
    clipped: float
    """With the recommended range in use."""
    clipped_published: float
    """With the published range in use."""
    log_ratio_max: OptionalFloat
    """Largest |log r| of a token, nats."""
    response_tokens: OptionalFloat
    mismatch_k3: OptionalFloat
    """The mismatch k3 of sampler and trainer, nats per token."""
    seconds_step: OptionalFloat
    peak_memory_bytes: OptionalFloat

    @property
    def holds(self) -> bool:
        """Whether the range clipped the target share, within FACTOR, when it was used."""
        return within_factor(self.clipped, self.target)

    def toml(self) -> str:
        """An arm to paste."""
        note = (
            "" if self.holds else f"# clipped {self.clipped:.3g} when used, not {self.target:.3g}\n"
        )
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in self.declared.items())
        ends = clip_settings(self.band).items()
        band = "".join(f"{key} = {end:.4g}\n" for key, end in ends)
        return f"[arm.{self.rule}]\n{lines}{note}{band}"

    def to_json(self) -> JsonObject:
        """Every number, and whether the range held."""
        fields = asdict(self)
        band = clip_settings(fields.pop("band"))
        return {**fields, **band, "holds": self.holds}


def within_factor(share: float, target: float) -> bool:
    """Whether a share is within FACTOR of the target."""
    return target / FACTOR <= share <= target * FACTOR


def advise(
    study: Study,
    runs: Path,
    *,
    share: OptionalFloat = None,
    jobs: int | None = None,
    console: Console,
    live: bool = True,
    yes: bool = False,
) -> list[Advice] | None:
    """Run the pilots of each rule under its folder; `share`: the target, else each arm's
    clip_target.
    """
    preflight(study)
    arms = {rule: arm_of(study, rule, share) for rule in RULES}
    for arm in arms.values():
        if arm.settings.update.minibatches * arm.settings.update.epochs < 2:
            raise LabError(
                "update.minibatches = 1: the first update after a rollout clips nothing; use 2 or"
                " more"
            )
    launcher = LocalPool(jobs)
    slots = launcher.slots(next(iter(arms.values())).settings.device)
    if not yes:
        require_memory(study, slots)
    home = runs / Kind.ADVICE.study_name(study.name)
    home.mkdir(parents=True, exist_ok=True)
    tried: dict[str, list[tuple[Band, RunFolder]]] = {rule: [] for rule in arms}
    view = ProgressView(console, f"advise {study.name}", live=live)
    settings = {"steps": 2 * PILOT_STEPS, "bench": []}  # two pilots of each rule
    tries = study.derive(Kind.ADVICE, arms.values(), study.seeds[:1], settings)
    console.print(
        f"advise {plan_of(tries, runs, slots).headline}; longer where no range holds at once",
        markup=False,
        highlight=False,
    )
    refusal = f"another gspo-lab plan --advise is at work in {home}"
    with (
        exclusive_lock(home / CONDUCTOR_LOCK, refusal),
        WorkerPool(runs, console, launcher, slots, view) as pool,
    ):
        for number in range(TRIES + 1):
            pilots: list[Run] = []
            for rule, arm in arms.items():
                if (band := _next_band(arm, tried[rule])) is not None:
                    tried_arm = replace(arm, name=f"{rule}-{number}")
                    pilots.append(pilot(study, tried_arm, band, Kind.ADVICE))
                    tried[rule].append((band, RunFolder(pilots[-1].folder(runs))))
            new = [run for run in pilots if not RunFolder(run.folder(runs)).status().steps]
            first_batches = [replace(run, until=1) for run in new]
            if number == 0 and not _run_all(pool, "first batch of pilot 1", first_batches, runs):
                return None
            for run in pilots:
                _refuse_equal_rewards(RunFolder(run.folder(runs)))
            if not _run_all(pool, f"pilot {number + 1}", pilots, runs):
                return None
    return [_advice(rule, arms[rule], pilots) for rule, pilots in tried.items()]


def arm_of(study: Study, rule: str, share: OptionalFloat) -> Arm:
    """The study's first arm that clips by the rule, or else its first arm with the rule's
    preset.
    """
    arms = list(study.arms.values())
    clipping = [arm for arm in arms if arm.settings.objective.policy_loss == "clip"]
    matching = [
        arm
        for arm in clipping
        if RATIOS[arm.settings.objective.importance_sampling_level].rule == rule
    ]
    arm = (matching or arms)[0]
    data = arm.settings.model_dump(mode="json")
    objective: JsonObject = data["objective"]
    if not matching:
        level = PRESETS[rule].importance_sampling_level
        objective |= {"preset": rule, "policy_loss": "clip", "importance_sampling_level": level}
    if share is not None:
        objective["clip_target"] = share
    return Arm(name=rule, declared=arm.declared, settings=Settings.model_validate(data))


def _declared_settings(arm: Arm) -> JsonObject:
    """The arm's declared settings except its range, by their TOML keys; the preset is
    `objective`.
    """
    preset = arm.settings.objective.preset
    left_out = {"preset", "clip", "clip_target", *CLIP_RANGE}
    if (
        arm.settings.objective.importance_sampling_level
        == PRESETS[preset].importance_sampling_level
    ):
        left_out.add("importance_sampling_level")
    settings = flat(arm.settings.model_dump(mode="json"))
    declared = {
        key: value
        for key, value in settings.items()
        if under(key, arm.declared) and value is not None
    }
    values = {key.removeprefix("objective."): value for key, value in declared.items()}
    return {"objective": preset} | {
        key: value for key, value in values.items() if key not in left_out
    }


def _next_band(arm: Arm, tried: list[tuple[Band, RunFolder]]) -> Band | None:
    """The published range first, then the range that the last pilot gives; None once a computed
    range holds.
    """
    if not tried:
        return RULES[arm.name].band
    band, folder = tried[-1]
    target = arm.settings.objective.clip_target
    if len(tried) > 1 and within_factor(_clipped_share(arm, band, folder), target):
        return None
    return _range_of(arm, folder, arm.name)


def _run_all(pool: WorkerPool, title: str, pilots: list[Run], runs: Path) -> bool:
    """Run pilots. True if all finished, False after Ctrl-C. LabError if a pilot failed."""
    results_before = len(pool.results)
    complete = run_pilots(pool, title, pilots, runs)
    if not complete and not pool.interrupts:
        failed = [
            result.line
            for result in pool.results[results_before:]
            if result.state is not State.FINISHED
        ]
        raise LabError("a pilot failed", details=tuple(failed))
    return complete


def _refuse_equal_rewards(folder: RunFolder) -> None:
    """LabError if every group of a pilot's first batch has equal rewards: then nothing is
    clipped.
    """
    for step in folder.records(StepRecord.kind)[:1]:
        if step.get("zero_variance_groups") == 1:
            raise LabError(
                f"in the first batch of {folder.path} all responses to a problem earned the same"
                f" (mean reward {step.get('reward_mean') or 0:.3g}), so no range can be measured:"
                " use an easier task, or a model that succeeds sometimes; then delete that folder"
            )


def _advice(rule: str, arm: Arm, tried: list[tuple[Band, RunFolder]]) -> Advice:
    target = arm.settings.objective.clip_target
    shares = [_clipped_share(arm, band, folder) for band, folder in tried]
    last = min(
        range(1, len(tried)),
        key=lambda i: max(shares[i], target) / max(min(shares[i], target), 1e-9),
    )
    band, folder = tried[last]
    steps = folder.records(StepRecord.kind)
    return Advice(
        rule=rule,
        declared=_declared_settings(arm),
        band=band,
        target=target,
        clipped=shares[last],
        clipped_published=shares[0],
        log_ratio_max=max(
            _values(folder.records(UpdateRecord.kind), "log_ratio_max_abs"), default=None
        ),
        response_tokens=average(_values(steps, "response_tokens_mean")),
        mismatch_k3=average(_values(steps, "mismatch_k3")),
        seconds_step=middle(_values(steps, "seconds_step")),
        peak_memory_bytes=max(_values(steps, "peak_memory_bytes"), default=None),
    )


def _values(records: list[JsonObject], name: str) -> list[float]:
    return [record[name] for record in records if record.get(name) is not None]
