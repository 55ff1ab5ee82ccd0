"""Pilots: short runs that find a clip range by the log-ratios that they record.

For an arm with `clip = "calibrated"` one pilot finds the range, which is frozen before the first step.
`gspo-lab advise` goes on from there, for a model, a task and lengths of one's own:

    rule ─> pilot with the published range ─> the range that clips the wanted share of what it saw
                                                └─> a pilot with that range ─> does it?  no: once more from there

A range changes what it is measured by, since a clipped policy moves less: only one that was used is recommended.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from gspo_lab.conduct.declaration import archive
from gspo_lab.conduct.worker_pool import WorkerPool, WorkItem, run_item, starts_to_make, write_run
from gspo_lab.errors import LabError
from gspo_lab.files import held, read_json, write_json
from gspo_lab.launch.make import LOCAL, make_launcher
from gspo_lab.layout import ADVICE, BANDS, CONDUCTOR_LOCK
from gspo_lab.objectives.measures import calibrated_band, clipped_share
from gspo_lab.objectives.presets import PRESETS
from gspo_lab.objectives.ratios import RATIOS, RULES, Level
from gspo_lab.plan.check import preflight
from gspo_lab.plan.memory import require_memory
from gspo_lab.plan.preparation import pilot, settings_digest
from gspo_lab.progress import ProgressView
from gspo_lab.readings import average, middle
from gspo_lab.records import StepRecord, UpdateRecord
from gspo_lab.runfolder import RunFolder
from gspo_lab.states import State
from gspo_lab.study import Arm, Run, Settings, Study
from gspo_lab.study.declaration import Band
from gspo_lab.study.dotted import flat, under

DROPPED_STEPS = 2
"""Adam's first steps are nearly of unit size whatever the gradient: their moves are no sample of the later ones."""
TRIES = 3
"""Ranges that are tried of each rule, at most."""
FACTOR = 1.5
"""A range is recommended without reserve if it clips the wanted share within this factor."""


def run_pilots(pool: WorkerPool, title: str, pilots: list[Run], runs: Path) -> bool:
    """Make the pilots' warm starts, then run those that have not finished; whether all are finished."""
    if not pool.work("warm starts", starts_to_make(pilots, runs)):
        return False
    items = [item for run in pilots if (item := _pilot_item(run, runs)) is not None]
    for run in pilots:
        write_run(run, runs)
    return pool.work(title, items)


def _pilot_item(run: Run, runs: Path) -> WorkItem | None:
    """None where it has finished. What lies in its folder from a pilot with other settings is moved away."""
    folder = RunFolder(run.folder(runs))
    former = folder.specification()
    if former is not None and former.get("settings") != run.to_json()["settings"]:
        archive(folder.path, runs, run.study.replace("/", "-") + f"-{run.arm}")
    if folder.status().finished:
        return None
    return run_item(run, runs, stage="pilots", row=f"pilot {run.arm}", column="")


def find_band(arm: Arm, run: Run, runs: Path, home: Path) -> Band:
    """The range that the finished pilot `run` calls for, written to bands.json."""
    folder = RunFolder(run.folder(runs))
    low, high = _called_for(arm, folder, f"arm.{arm.name}: clip = 'calibrated'")
    entry = {
        "clip_low": low,
        "clip_high": high,
        "clip_target": arm.settings.objective.clip_target,
        "level": _level(arm),
        "pilot": str(folder.path.relative_to(runs)),
        "settings": settings_digest(arm),
    }
    write_json(home / BANDS, {**(read_json(home / BANDS) or {}), arm.name: entry}, sealed=True)
    return low, high


def _called_for(arm: Arm, folder: RunFolder, what: str) -> Band:
    try:
        return calibrated_band(_details(folder), _level(arm), arm.settings.objective.clip_target)
    except LabError as error:
        raise LabError(f"{what}: {error} (pilot: {folder.path})") from error


def _details(folder: RunFolder) -> list[dict[str, Any]]:
    """`response_detail` of the updates that count: settled steps, and mini-batches after the first."""
    return [
        update["response_detail"]
        for update in folder.records(UpdateRecord.kind)
        if update["step"] >= DROPPED_STEPS and update["minibatch"] >= 1 and update.get("response_detail") is not None
    ]


def _level(arm: Arm) -> Level:
    return arm.settings.objective.importance_sampling_level


@dataclass(frozen=True)
class Advice:
    """What the pilots of one rule say. Shares are of what the rule clips by on mini-batches >= 1: active tokens, or
    responses; None is not measured."""

    rule: str
    declared: dict[str, Any]
    """What the pilots' arm declares but its range, as an arm's table writes it: the range is advised for these."""
    clip_low: float
    clip_high: float
    wanted: float
    clipped: float
    """With the recommended range in use."""
    clipped_published: float
    """With the published range in use."""
    log_ratio_max: float | None
    """Largest |log r| of a token, nats."""
    response_tokens: float | None
    zero_advantage_groups: float | None
    mismatch_k3: float | None
    """Of sampler and trainer, nats per token."""
    seconds_step: float | None
    peak_memory_bytes: float | None

    @property
    def holds(self) -> bool:
        """Whether the range in use clipped the wanted share, within the factor."""
        return near(self.clipped, self.wanted)

    def toml(self) -> str:
        """An arm to paste."""
        kept = "" if self.holds else f"# clipped {self.clipped:.3g} when used, not {self.wanted:.3g}\n"
        stated = "".join(f"{key} = {json.dumps(value)}\n" for key, value in self.declared.items())
        return f"[arm.{self.rule}]\n{stated}{kept}clip_low = {self.clip_low:.4g}\nclip_high = {self.clip_high:.4g}\n"

    def to_json(self) -> dict[str, Any]:
        """Every number, and whether the range held."""
        return {**asdict(self), "holds": self.holds}


def near(share: float, wanted: float) -> bool:
    """Whether one share is the other within the factor."""
    return wanted / FACTOR <= share <= wanted * FACTOR


def advise(
    study: Study,
    runs: Path,
    *,
    share: float | None = None,
    jobs: int | None = None,
    console: Console,
    live: bool = True,
    yes: bool = False,
) -> list[Advice] | None:
    """Pilots of each rule under runs/_advice, and what they say; None where Ctrl-C came first, after which the same
    call goes on. `share` is the share to clip, or else each arm's clip_target. LabError where a pilot fails."""
    preflight(study)
    arms = {rule: arm_of(study, rule, share) for rule in RULES}
    for arm in arms.values():
        if arm.settings.update.minibatches * arm.settings.update.epochs < 2:
            raise LabError("update.minibatches = 1: the first update after a rollout clips nothing; use 2 or more")
    launcher = make_launcher(LOCAL, jobs)
    slots = launcher.slots(next(iter(arms.values())).settings.device)
    if not yes:
        require_memory(study, slots)
    home = runs / ADVICE / study.name
    home.mkdir(parents=True, exist_ok=True)
    tried: dict[str, list[tuple[Band, RunFolder]]] = {rule: [] for rule in arms}
    view = ProgressView(console, f"advise {study.name}", live=live)
    refusal = f"another gspo-lab advise is at work in {home}"
    with held(home / CONDUCTOR_LOCK, refusal), WorkerPool(runs, console, launcher, slots, view) as pool:
        for number in range(TRIES + 1):
            pilots: list[Run] = []
            for rule, arm in arms.items():
                band = _next_band(arm, tried[rule])
                if band is not None:
                    pilots.append(pilot(study, arm, band, f"{ADVICE}/{study.name}", f"{rule}-{number}"))
                    tried[rule].append((band, RunFolder(pilots[-1].folder(runs))))
            new = [run for run in pilots if not RunFolder(run.folder(runs)).status().steps]
            first = [replace(run, until=1) for run in new]
            if number == 0 and not _piloted(pool, "first batch of pilot 1", first, runs):
                return None
            for run in pilots:
                _refuse_equal_rewards(RunFolder(run.folder(runs)))
            if not _piloted(pool, f"pilot {number + 1}", pilots, runs):
                return None
    return [_advice(rule, arms[rule], pilots) for rule, pilots in tried.items()]


def arm_of(study: Study, rule: str, share: float | None) -> Arm:
    """The study's first arm that clips by the rule, or else its first arm with the rule's preset."""
    every = list(study.arms.values())
    clipping = [one for one in every if one.settings.objective.policy_loss == "clip"]
    follow = [one for one in clipping if RATIOS[one.settings.objective.importance_sampling_level].rule == rule]
    arm = (follow or every)[0]
    data = arm.settings.model_dump(mode="json")
    objective: dict[str, Any] = data["objective"]
    if not follow:
        level = PRESETS[rule].importance_sampling_level
        objective |= {"preset": rule, "policy_loss": "clip", "importance_sampling_level": level}
    if share is not None:
        objective["clip_target"] = share
    return Arm(name=rule, declared=arm.declared, settings=Settings.model_validate(data))


def _declared(arm: Arm) -> dict[str, Any]:
    """What the arm declares but its range, by its keys in TOML: those of the objective stand flat, its preset as
    `objective`."""
    settings = flat(arm.settings.model_dump(mode="json"))
    stated = {key: value for key, value in settings.items() if under(key, arm.declared) and value is not None}
    own = {key.removeprefix("objective."): value for key, value in stated.items()}
    preset = arm.settings.objective.preset
    for key in ("preset", "clip", "clip_target", "clip_low", "clip_high"):
        own.pop(key, None)
    if own.get("importance_sampling_level") == PRESETS[preset].importance_sampling_level:
        del own["importance_sampling_level"]
    return {"objective": preset} | own


def _next_band(arm: Arm, tried: list[tuple[Band, RunFolder]]) -> Band | None:
    """The published range first, then what the last pilot calls for; None once a range that was called for holds."""
    if not tried:
        return RULES[arm.name].band
    band, folder = tried[-1]
    if len(tried) > 1 and near(clipped_share(_details(folder), _level(arm), band), arm.settings.objective.clip_target):
        return None
    return _called_for(arm, folder, arm.name)


def _piloted(pool: WorkerPool, title: str, pilots: list[Run], runs: Path) -> bool:
    """Whether all pilots are finished; False where Ctrl-C ended the work. LabError where one failed."""
    before = len(pool.results)
    done = run_pilots(pool, title, pilots, runs)
    if not done and not pool.interrupts.count:
        failed = [result.line for result in pool.results[before:] if result.state is not State.FINISHED]
        raise LabError("a pilot failed", details=tuple(failed))
    return done


def _refuse_equal_rewards(folder: RunFolder) -> None:
    """LabError where all responses of a pilot's first batch earned the same as their group: nothing is clipped then."""
    for step in folder.records(StepRecord.kind)[:1]:
        if step.get("zero_variance_groups") == 1:
            raise LabError(
                f"in the first batch of {folder.path} all responses to a problem earned the same (mean reward "
                f"{step.get('reward_mean') or 0:.3g}), so no range can be measured: use an easier task, or a model "
                "that succeeds sometimes; then delete that folder"
            )


def _advice(rule: str, arm: Arm, tried: list[tuple[Band, RunFolder]]) -> Advice:
    target = arm.settings.objective.clip_target
    shares = [clipped_share(_details(folder), _level(arm), band) for band, folder in tried]
    last = min(range(1, len(tried)), key=lambda i: max(shares[i], target) / max(min(shares[i], target), 1e-9))
    (low, high), folder = tried[last]
    steps = folder.records(StepRecord.kind)
    return Advice(
        rule=rule,
        declared=_declared(arm),
        clip_low=low,
        clip_high=high,
        wanted=target,
        clipped=shares[last],
        clipped_published=shares[0],
        log_ratio_max=max(_known(folder.records(UpdateRecord.kind), "log_ratio_max_abs"), default=None),
        response_tokens=average(_known(steps, "response_tokens_mean")),
        zero_advantage_groups=average(_known(steps, "zero_variance_groups")),
        mismatch_k3=average(_known(steps, "mismatch_k3")),
        seconds_step=middle(_known(steps, "seconds_step")),
        peak_memory_bytes=max(_known(steps, "peak_memory_bytes"), default=None),
    )


def _known(records: list[dict[str, Any]], name: str) -> list[float]:
    return [one[name] for one in records if one.get(name) is not None]
