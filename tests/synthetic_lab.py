"""Run folders with made-up but plausible records, and the database that `ingest` makes of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from laboratory import declare, leave

from gspo_lab.common.plain_data import JsonObject, OptionalText
from gspo_lab.recording.records import AnswerRecord, Record, RunStatus, StepRecord, UpdateRecord
from gspo_lab.recording.store import ingest
from gspo_lab.study import Run, load_study

TWO_ARMS = """
question = "Does the sequence ratio learn faster than the token ratio?"
model = "tiny-qwen3"
task = "addition"
steps = {steps}
seeds = {seeds}
[[bench]]
name = "addition"
problems = 20
every = {every}
[arm.grpo]
objective = "grpo"
[arm.gspo]
objective = "gspo"
"""

FOUR_ARMS = """
# A mixture of experts, with and without routing replay.
question = "On a mixture of experts, does GRPO need routing replay and GSPO not?"
model = "tiny-qwen3-moe"
task = "addition"
steps = {steps}
seeds = {seeds}
[[bench]]
name = "addition"
problems = 20
every = {every}
[[bench]]
name = "carry"
problems = 10
samples = 2
every = {every}
[arm.grpo]
objective = "grpo"
[arm.grpo-replay]
objective = "grpo"
routing_replay = "old-policy"
[arm.gspo]
objective = "gspo"
[arm.gspo-replay]
objective = "gspo"
routing_replay = "old-policy"
"""

HOSTILE = (
    "</script><script>alert(1)</script>\x00\x1b[31m\u202ereversed\u2066\u200f'\"`|<img src=x"
    " onerror=alert(1)>"
)
"""A text that attacks the page that shows it."""

Change = Callable[[Run, Record], Record | None]
"""What a test makes of a record before it is written; None leaves it out."""


def each(kind: type[Record], fields: Callable[[Run, Any], JsonObject | None]) -> Change:
    """Records of this kind with other values in these fields; None leaves one out."""

    def change(run: Run, record: Record) -> Record | None:
        if not isinstance(record, kind):
            return record
        return None if (own := fields(run, record)) is None else replace(record, **own)

    return change


def right(
    share: Callable[[Run, int], float], first: Callable[[Run, int], int] = lambda run, step: 0
) -> Change:
    """After so many steps this share of the 20 problems is correct.

    These are the first ones, or those from `first` on.
    """

    def change(run: Run, record: Record) -> Record:
        if not isinstance(record, AnswerRecord):
            return record
        number = int(record.problem.rpartition("-")[2]) - first(run, record.step)
        return replace(record, correct=int(0 <= number < round(20 * share(run, record.step))))

    return change


def by_seed(run: Run, step: int) -> int:
    """From which problem on a run is correct.

    GSPO's arms from that of their seed's number on, once they are trained.
    """
    return run.seed if run.arm.startswith("gspo") and step else 0


def make_lab(
    folder: Path,
    toml: str = TWO_ARMS,
    *,
    name: str = "toy",
    seeds: int = 3,
    steps: int = 12,
    every: int = 4,
    gain: float = 0.1,
    change: Change | None = None,
    until: Callable[[Run], int] | None = None,
    end: Callable[[Run], OptionalText] = lambda run: "finished",
    record: bool = True,
    arms: Sequence[str] | None = None,
) -> Path:
    """A database of one study, added to the folder's others.

    `gain` is what GSPO's arms score above the others. `until` is the step at which a run's records
    end, `end` its last state (None: nobody wrote one). `arms` are those that are run; None: all.
    """
    path = folder / "studies" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = toml.format(seeds=seeds, steps=steps, every=every)
    if "last = " not in text:
        before, _, after = text.partition("[verdict]\n")
        text = f"{before}\n[verdict]\nlast = 3\n{after}"
    path.write_text(text)
    study = load_study(path, arms=arms)
    runs = folder / "runs"
    declare(study, runs)
    for run in study.runs():
        last = steps if until is None else until(run)
        state = end(run)
        records = [
            made
            for one in history(run, last, gain)
            if (made := change(run, one) if change else one)
        ]
        if state is not None:
            records.append(RunStatus(state=state, step=last, at=2000.0, message=None))
        leave(run, runs, records if record else [])
    ingest(runs)
    return runs / "lab.db"


def history(run: Run, steps: int, gain: float) -> list[Record]:
    """What the worker of `run` would have recorded up to `steps`."""
    rng = np.random.default_rng([run.seed, *run.arm.encode()])
    shared = np.random.default_rng(run.seed).normal(0, 0.02)
    sequence = run.arm.startswith("gspo")
    moe = "moe" in run.settings.model
    ceiling = 0.62 + shared + (gain if sequence else 0.0)
    facts = {
        "packages": {"torch": "2.13.0"},
        "device": "a small CPU",
        "threads": 1,
        "parameters": 600000,
        "weights": "ab" * 32,
    }
    records: list[Record] = [RunStatus(state="started", step=0, at=1000.0 + run.seed, facts=facts)]
    every = run.settings.bench[0].every if run.settings.bench else steps
    records += evaluations(
        run, 0, 0.3 + shared, np.random.default_rng(run.seed)
    )  # matched arms start alike
    for step in range(steps):
        level = 0.3 + (ceiling - 0.3) * (1 - math.exp(-3 * step / run.settings.steps))
        for minibatch in range(run.settings.update.minibatches):
            records.append(update(run, step, minibatch, sequence, moe, rng))
        replay = run.settings.routing_replay != "none"
        # Before the first update all arms of a seed answer alike.
        luck, longer = (rng.normal(0, 0.015), rng.normal(0, 0.2)) if step else (shared, shared)
        records.append(
            StepRecord(
                step=step,
                prompts=32,
                responses=256,
                prompt_digest=f"prompts of seed {run.seed} up to {step}",
                rollout_digest=(
                    f"responses of seed {run.seed}" if step == 0 else f"{run.arm}, {step}"
                ),
                reward_mean=float(level + luck),
                reward_std=0.45,
                zero_variance_groups=float(0.2 + 0.3 * step / run.settings.steps),
                response_tokens_mean=float(9 + longer),
                truncated_responses=0.01 if step < 3 else 0.0,
                entropy=float(0.9 * math.exp(-step / run.settings.steps) + rng.normal(0, 0.01)),
                mismatch_k1=float(rng.normal(0, 1e-7)),
                mismatch_k3=float(abs(rng.normal(0, 1e-9))),
                mismatch_abs_max=float(abs(rng.normal(1e-5, 1e-6))),
                replay_bytes=160000 if replay else (0 if moe else None),
                seconds_replay=0.031 if replay else (0.0 if moe else None),
                seconds_step=1.1,
                prompts_total=32 * (step + 1),
                tokens_trained_total=(2300 if sequence else 2200) * (step + 1),
                flops_total=2e9 * (step + 1),
                device_seconds_total=(1.2 if replay else 1.1) * (step + 1),
            )
        )
        done = step + 1
        if done % every == 0 or done == run.settings.steps:
            records += evaluations(run, done, level, rng)
    return records


def update(
    run: Run, step: int, minibatch: int, sequence: bool, moe: bool, rng: np.random.Generator
) -> UpdateRecord:
    """One update: nothing is clipped at mini-batch 0.

    Afterwards GSPO clips hundreds of times as much as GRPO.
    """
    token = 0.0 if minibatch == 0 else float(abs(rng.normal(4e-4, 2e-4)) * minibatch)
    by_sequence = (
        0.0 if minibatch == 0 else float(min(0.5, 0.1 * minibatch + abs(rng.normal(0, 0.02))))
    )
    clipped = by_sequence if sequence else token
    layers = [
        float(0.004 * minibatch * (layer + 1) * (1 + rng.normal(0, 0.1))) for layer in range(4)
    ]
    would_clip: JsonObject = {
        "would_clip_fraction_tokens_grpo": token,
        "would_clip_fraction_tokens_gspo": by_sequence,
    }
    return UpdateRecord(
        step=step,
        minibatch=minibatch,
        loss=0.0,
        grad_norm=float(
            abs(rng.normal(0.5, 0.1))
            * (12 if step == 7 and minibatch == 2 and run.seed == 1 else 1)
        ),
        nonfinite=0,
        responses=64,
        response_tokens=576,
        active_tokens=430,
        clip_fraction_tokens=clipped,
        clip_fraction_tokens_high=clipped * 0.6,
        clip_fraction_tokens_low=clipped * 0.4,
        clip_fraction_active_tokens=min(1.0, clipped * 1.3),
        **would_clip,
        effective_fraction_tokens=0.7 - clipped,
        log_ratio_std_tokens=0.05 * minibatch,
        log_ratio_std_responses=0.017 * minibatch,
        ratio_max_negative=1.0 + 0.2 * minibatch,
        stale_k3=1e-3 * minibatch,
        expert_change=float(np.mean(layers)) if moe else None,
        expert_change_layers=layers if moe else None,
    )


def evaluations(run: Run, step: int, level: float, rng: np.random.Generator) -> list[Record]:
    """Answers to every benchmark of the run."""
    out: list[Record] = []
    for bench in run.settings.bench:
        for problem in range(bench.problems or 20):
            for sample in range(bench.samples):
                correct = int(rng.random() < level)
                out.append(
                    AnswerRecord(
                        step=step,
                        bench=bench.name,
                        problem=f"{bench.name}-{problem}",
                        sample=sample,
                        text=str(correct),
                        tokens=9,
                        truncated=0,
                        reward=float(correct),
                        correct=correct,
                        grader="synthetic/1",
                    )
                )
    return out
