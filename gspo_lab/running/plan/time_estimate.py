"""Seconds that a run will take: measured where runs like it have been recorded, else guessed from
FLOPs.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import database_of
from gspo_lab.recording.store import Evidence
from gspo_lab.recording.store.records import read_steps
from gspo_lab.study import Settings
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
"""Where no limit on the response is given: about what an embedded model's task needs."""


@dataclass(frozen=True)
class Pace:
    """`basis` says where the numbers come from."""

    seconds_per_step: float
    seconds_per_answer: float
    warm_start_seconds: float
    basis: str


def run_seconds(pace: Pace, steps: float, answers: float) -> float:
    """Seconds of a run: its start, its steps, its answers to benchmarks."""
    return START_SECONDS + steps * pace.seconds_per_step + answers * pace.seconds_per_answer


def measured_pace(settings: Settings, runs: Path) -> Pace | None:
    """From recorded runs whose steps cost the same by their settings; None where there is none."""
    cost_keys = cost(settings.model_dump(mode="json"))
    steps = []
    samples = []
    names = []
    try:
        with Evidence.open(database_of(runs), runs) as evidence:
            for study in evidence.studies():
                known = evidence.runs(study)
                alike = [
                    row.run_id
                    for row in known.itertuples()
                    if cost(json.loads(str(row.settings))) == cost_keys
                ]
                if not alike:
                    continue
                table = read_steps(evidence, study, ["seconds_step", "seconds_rollout", "prompts"])
                # A run's first step carries one-off costs.
                table = table[table["run_id"].isin(alike) & (table["step"] > 0)].dropna(
                    subset=["seconds_step"]
                )
                if len(table):
                    steps += list(table["seconds_step"])
                    # Of all that were asked: none of them may have trained.
                    responses = table["prompts"] * settings.rollout.group_size
                    samples += list((table["seconds_rollout"] / responses).dropna())
                    names.append(study)
    except LabError:  # no database yet, or one of another version: then nothing is measured
        return None
    if not steps:
        return None
    from gspo_lab.analysis.readings import average

    per_step = average(steps) or 0.0
    per_answer = average(samples) or 0.0
    basis = f"measured on {len(steps)} steps of {', '.join(names)}"
    return Pace(per_step, per_answer, _warm_start_seconds(settings, on_gpu=False), basis)


def guessed_pace(settings: Settings, *, on_gpu: bool, turns: int = 1) -> Pace:
    """2 x active parameters x tokens a forward pass: sampling 1, old policy 1, with a KL term the
    starting model 1, an update 3, one more for a loss that sees the mini-batch first; of a critic
    its values 1, its update 3. Of up to `turns` turns each reads all before it again: here all are
    made, and equally long."""
    speed = GPU_FLOPS if on_gpu else CPU_FLOPS
    response = settings.rollout.max_tokens or TOKENS
    tokens = PROMPT_TOKENS + response
    sampling = (turns * PROMPT_TOKENS + response * (turns + 1) / 2) / tokens
    drawn = "1" if turns == 1 else f"{sampling:.2g} of {turns} turns"
    forward = 2 * active_parameters(settings.model) * tokens / speed
    responses = settings.rollout.prompts_per_step * settings.rollout.group_size
    update = 3 + (settings.objective.loss.sees_whole)
    with_critic = settings.objective.advantage == "gae"
    critic, critic_text = (1 + 3 * settings.update.epochs, ", critic 4") if with_critic else (0, "")
    before = 1 + (settings.objective.kl_coef > 0)
    first = "old policy 1" if before == 1 else "old policy 1, starting model 1"
    basis = (
        f"guess: 2 x active parameters x tokens x passes (sampling {drawn}, {first}, update"
        f" {update}{critic_text}) / {speed:.0e} FLOP/s, {START_SECONDS:.0f} s a start"
    )
    return Pace(
        responses * forward * (sampling + before + update * settings.update.epochs + critic),
        forward * sampling,
        _warm_start_seconds(settings, on_gpu=on_gpu),
        basis,
    )


def active_parameters(model: str) -> float:
    """Of an embedded model, of a known shape, or a rough count from a name such as
    Qwen3-30B-A3B.
    """
    if model in EMBEDDED:
        return EMBEDDED_ACTIVE[EMBEDDED[model].is_moe]
    shape = model_shape(model)
    if shape is not None:
        return float(shape.active_parameters)
    sizes = re.findall(r"(\d+(?:\.\d+)?)([BM])\b", model, re.IGNORECASE)
    units = {"B": 1e9, "M": 1e6}
    return min((float(size) * units[unit.upper()] for size, unit in sizes), default=1e9)


def _warm_start_seconds(settings: Settings, *, on_gpu: bool) -> float:
    start = settings.warm_start
    tokens = start.steps * start.batch_size * (PROMPT_TOKENS + TOKENS)
    return START_SECONDS + 6 * active_parameters(settings.model) * tokens / (
        GPU_FLOPS if on_gpu else CPU_FLOPS
    )
