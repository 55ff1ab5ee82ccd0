"""Seconds that a run will take: measured where runs like it have been recorded, else guessed from
FLOPs.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import database_of
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.store import Evidence
from gspo_lab.recording.store.records import read_steps
from gspo_lab.study import Arm, Settings
from gspo_lab.study.schema import cost
from gspo_lab.training.models.check import EMBEDDED
from gspo_lab.training.models.shapes import model_shape

START_SECONDS = 1.0
"""A worker's start: loading the model. About 6 s of imports are made once for all cores of this
machine; on a GPU, or another host, they come on top of each start."""

CPU_FLOPS = 4e10
GPU_FLOPS = 5e13
"""Reached by one core at small models, and by one GPU: orders of magnitude, no more."""

EMBEDDED_ACTIVE = {False: 6e5, True: 4e5}
"""Active parameters of the embedded models, dense and mixture of experts."""

PROMPT_TOKENS = 16
TOKENS = 48
"""Lengths assumed of prompts, and of responses without a limit: about those of the embedded models'
tasks."""


@dataclass(frozen=True)
class Pace:
    """Seconds of a run's work. `basis` says where they come from; `measured`: from recorded runs
    whose steps cost the same."""

    seconds_per_step: float
    seconds_per_answer: float
    warm_start_seconds: float
    basis: str
    measured: bool = False


def run_seconds(pace: Pace, steps: float, answers: float) -> float:
    """Seconds of a run: its start, its steps, its answers to benchmarks."""
    return START_SECONDS + steps * pace.seconds_per_step + answers * pace.seconds_per_answer


def measured_paces(arms: Iterable[Arm], runs: Path) -> dict[str, Pace]:
    """Per arm the pace of recorded runs whose steps cost the same by their settings, if any."""
    try:
        with Evidence.open(database_of(runs), runs) as evidence:
            recorded = {
                study: {
                    row["run_id"]: cost(json.loads(row["settings"]))
                    for row in evidence.run_rows(study)
                }
                for study in evidence.studies()
            }
            paces = {arm.name: _measured_pace(evidence, arm.settings, recorded) for arm in arms}
    except LabError:  # no database yet, or one of another version: then nothing is measured
        return {}
    return {name: pace for name, pace in paces.items() if pace is not None}


def _measured_pace(
    evidence: Evidence, settings: Settings, recorded: dict[str, dict[str, JsonObject]]
) -> Pace | None:
    """The mean pace of the `recorded` runs (study -> run -> cost) whose steps cost the same."""
    from gspo_lab.analysis.readings import average

    own_cost = cost(settings.model_dump(mode="json"))
    steps: list[float] = []
    answers: list[float] = []
    studies: list[str] = []
    for study, costs in recorded.items():
        alike = [run for run, run_cost in costs.items() if run_cost == own_cost]
        if not alike:
            continue
        table = read_steps(evidence, study, ["seconds_step", "seconds_rollout", "prompts"])
        # A run's first step carries one-off costs.
        table = table[table["run_id"].isin(alike) & (table["step"] > 0)]
        table = table.dropna(subset=["seconds_step"])
        if len(table):
            steps += list(table["seconds_step"])
            # Of all sampled prompts, since none of them may have trained.
            responses = table["prompts"] * settings.rollout.group_size
            answers += list((table["seconds_rollout"] / responses).dropna())
            studies.append(study)
    if not steps:
        return None
    return Pace(
        average(steps) or 0.0,
        average(answers) or 0.0,
        _warm_start_seconds(settings, settings.model, on_gpu=False),
        f"measured on {len(steps)} steps of {', '.join(studies)}",
        measured=True,
    )


def guessed_pace(settings: Settings, model: str, *, on_gpu: bool, turns: int = 1) -> Pace:
    """A pace from 2 x active parameters x tokens per forward pass.

    Sampling counts 1 pass, the old policy 1, a KL term's starting model 1, an update 3, and 1 more
    for a loss that sees the mini-batch first; a critic 1 for its values and 3 for its update. Each
    of up to `turns` turns reads all earlier ones again; all are assumed, of equal length.
    """
    speed = GPU_FLOPS if on_gpu else CPU_FLOPS
    response = settings.rollout.max_tokens or TOKENS
    tokens = PROMPT_TOKENS + response
    sampling = (turns * PROMPT_TOKENS + response * (turns + 1) / 2) / tokens
    drawn = "1" if turns == 1 else f"{sampling:.2g} of {turns} turns"
    forward = 2 * active_parameters(model) * tokens / speed
    responses = settings.rollout.prompts_per_step * settings.rollout.group_size
    epochs = settings.update.epochs
    passes = sampling + 1
    passes_named = "old policy 1"
    if settings.objective.kl_coef > 0:
        passes += 1
        passes_named += ", starting model 1"
    update = 3 + settings.objective.loss.sees_whole
    passes += update * epochs
    critic = ""
    if settings.objective.advantage == "gae":
        passes += 1 + 3 * epochs
        critic = ", critic 4"
    basis = (
        f"guess: 2 x active parameters x tokens x passes (sampling {drawn}, {passes_named}, update"
        f" {update}{critic}) / {speed:.0e} FLOP/s, {START_SECONDS:.0f} s a start"
    )
    return Pace(
        responses * forward * passes,
        forward * sampling,
        _warm_start_seconds(settings, model, on_gpu=on_gpu),
        basis,
    )


def active_parameters(model: str) -> float:
    """The active parameters of an embedded model or of a known shape; else a rough count from a
    name such as Qwen3-30B-A3B.
    """
    if model in EMBEDDED:
        return EMBEDDED_ACTIVE[EMBEDDED[model].is_moe]
    shape = model_shape(model)
    if shape is not None:
        return float(shape.active_parameters)
    sizes = re.findall(r"(\d+(?:\.\d+)?)([BM])\b", model, re.IGNORECASE)
    units = {"B": 1e9, "M": 1e6}
    return min((float(size) * units[unit.upper()] for size, unit in sizes), default=1e9)


def _warm_start_seconds(settings: Settings, model: str, *, on_gpu: bool) -> float:
    start = settings.warm_start
    tokens = start.steps * start.batch_size * (PROMPT_TOKENS + TOKENS)
    speed = GPU_FLOPS if on_gpu else CPU_FLOPS
    return START_SECONDS + 6 * active_parameters(model) * tokens / speed
