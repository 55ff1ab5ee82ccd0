"""TRL's GRPOTrainer as an engine: the same runs, trained by another program. This door imports none
of it.

    the worker ── torchrun ──> N processes (rank_process.py), each with the model and a share
        ^  │                   of the rollout batch
        │  └─ "written", "stop" ─> prompts, samples, grades, benchmarks, checkpoints: the lab's
        │                          (native/loop.py)
        │                          log-probs, loss, gradient, step: TRL's (trainer.py)
        └──────── records ──────── rank 0

Every key that decides the objective is given, whatever TRL's default is. TRL counts responses, and
a step of TRL is one update."""

import importlib.metadata
import os
import sys
import tempfile
import threading
from dataclasses import dataclass, fields
from pathlib import Path

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping, JsonObject, OptionalText
from gspo_lab.common.registry import nearest
from gspo_lab.common.states import State
from gspo_lab.recording.records import RunStatus, StepRecord, UpdateRecord
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.study import Run, Settings
from gspo_lab.study.schema import obeyed
from gspo_lab.training.engines.base import Capabilities, Sink, Stop
from gspo_lab.training.engines.child import STOP, WRITTEN, Child

SAMPLINGS = ("lab", "trl")
"""Who draws the responses to train on: the lab's sampler, or TRL's own generation."""


def responses(settings: Settings) -> int:
    """The responses of a rollout batch."""
    return settings.rollout.prompts_per_step * settings.rollout.group_size


def unsupported_reason(
    settings: Settings, processes: int, microbatches: int, sampling: str
) -> OptionalText:
    """Why TRL cannot train so, as the end of a sentence; None where it can."""
    if processes < 1 or microbatches < 1:
        return f"needs processes and microbatches of at least 1, not {processes} and {microbatches}"
    if sampling not in SAMPLINGS:
        return (
            f"has no sampling = {sampling!r}{nearest(str(sampling), SAMPLINGS)}, only"
            f" {' and '.join(SAMPLINGS)}"
        )
    if sampling == "trl" and (why := _ignored_by_trl(settings)):
        return (
            "with sampling = 'trl' draws by its own random numbers from the model that it"
            f" trains: set {why}"
        )
    level = settings.objective.importance_sampling_level
    if level not in ("token", "sequence"):
        return f"knows no importance_sampling_level = '{level}', only 'token' and 'sequence'"
    if settings.objective.advantage == "gae":
        return (
            "has no trainer with a critic: advantage = 'gae' trains with the engines 'native' and"
            " 'verl'"
        )
    if settings.objective.advantage == "gdpo":
        return "is given one reward a response: advantage = 'gdpo' trains with the engine 'native'"
    if settings.rollout.group_size == 1:
        return "asks every prompt more than once: set rollout.group_size to 2 or more"
    if settings.routing_replay == "rollout":
        return (
            "replays the old policy's experts, not the sampler's; use routing_replay = 'old-policy'"
            " or 'none'"
        )
    divisor = settings.update.minibatches * processes * microbatches
    if responses(settings) % divisor:
        return (
            f"splits the {responses(settings)} responses of a rollout batch equally;"
            f" {settings.update.minibatches} mini-batches x {processes} processes x {microbatches}"
            f" microbatches are {divisor} parts"
        )
    return None


def _ignored_by_trl(settings: Settings) -> OptionalText:
    """What of the study's sampling TRL's generation would ignore, as what to set."""
    rollout = settings.rollout
    required = {
        "coupled": False,
        "sampler": "transformers",
        "top_p": 1.0,
        "dtype": settings.update.dtype,
    }
    odd = [
        f"rollout.{key} = {value!r}"
        for key, value in required.items()
        if getattr(rollout, key) != value
    ]
    return ", ".join(odd) or None


def trainer_settings(settings: Settings, processes: int, microbatches: int) -> JsonObject:
    """GRPOConfig's keywords, but for the run's own: seed, steps, folder, device."""
    update = settings.update
    rollout = settings.rollout
    objective = settings.objective
    per_process = responses(settings) // (update.minibatches * processes * microbatches)
    return {
        # -mean over responses of mean over tokens of min(r A, clip(r) A): TRL's default, dapo, is
        # one mean over tokens.
        "loss_type": "grpo",
        "importance_sampling_level": objective.importance_sampling_level,
        "epsilon": objective.clip_range[0],
        "epsilon_high": objective.clip_range[1],
        "delta": None,
        "beta": 0.0,
        "scale_rewards": "group",
        "router_aux_loss_coef": 0.0,
        "mask_truncated_completions": False,
        "top_entropy_quantile": 1.0,
        "entropy_coef": 0.0,
        "off_policy_mask_threshold": None,
        "vllm_importance_sampling_correction": False,
        "num_generations": rollout.group_size,
        "num_iterations": update.epochs,
        "steps_per_generation": update.minibatches * microbatches,
        "gradient_accumulation_steps": microbatches,
        "per_device_train_batch_size": per_process,
        "temperature": rollout.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "max_grad_norm": update.max_grad_norm,
        "bf16": update.dtype == "bfloat16",
        "gradient_checkpointing": update.gradient_checkpointing,
        "disable_dropout": True,
        "shuffle_dataset": False,
        "logging_steps": 1,
    }


VERSIONS = {"trl": "1.16.0", "accelerate": "1.15.0"}
"""What this room was written for and tested with: it takes hold of the trainer's inner methods."""

ASK_EVERY = 0.2
"""Seconds between two looks whether somebody asked for an end."""

DEFINITIONS = {
    "evaluated_responses": (
        "as the lab defines it, but for what went through the model: TRL evaluates all responses,"
        " and what is measured of ratios covers those with A != 0 where update.skip_zero_advantage"
        " is true"
    ),
    "nonfinite": "as the lab defines it, but for the update: TRL does not skip it",
    "seconds_replay": "inside the routers' replay of rank 0",
    "peak_memory_bytes": "as the lab defines it, of rank 0",
}
"""Its columns that mean something else than in the lab."""
UNTOLD = (
    "version_lag_mean",
    "version_lag_max",
    "mixed_version_share",
    "waiting_responses",
    "dropped_groups",
    "overlong_penalty",
    "clip_fraction_gradient",
    "would_clip_fraction_gradient_grpo",
    "would_clip_fraction_gradient_gspo",
    "relative_update_norm",
    "kl_to_start",
)
"""What is recorded of settings of a rollout that it does not vary, and of probabilities that it
does not give.
"""


@dataclass(frozen=True, kw_only=True)
class TrlEngine:
    """TRL's GRPOTrainer in `processes` data-parallel processes; each splits its share of a
    mini-batch into `microbatches` passes. `sampling`: who draws the responses to train on, the
    lab's sampler or TRL's own generation ("trl")."""

    capabilities = Capabilities(
        settings=obeyed("trl"),
        records={
            field.name: DEFINITIONS.get(field.name, "")
            for field in (*fields(StepRecord), *fields(UpdateRecord))
            if field.name not in UNTOLD
        },
        turns=False,
    )

    processes: int = 1
    microbatches: int = 1
    sampling: str = "lab"

    def check(self, settings: Settings) -> None:
        """LabError where TRL is not there, or cannot do what the single values say."""
        for package, required in VERSIONS.items():
            try:
                version = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                version = None
            if version != required:
                has = "there is none" if version is None else f"here is {version}"
                raise LabError(
                    f"the engine 'trl' needs {package} {required}, {has}:"
                    " pip install 'gspo-lab[trl]'"
                )
        if reason := unsupported_reason(settings, self.processes, self.microbatches, self.sampling):
            raise LabError(f"the engine 'trl' {reason}")

    def translated(self, settings: Settings) -> JsonMapping:
        """What TRL's GRPOConfig is given for these settings."""
        return trainer_settings(settings, self.processes, self.microbatches)

    def train(self, run: Run, sink: Sink, folder: Path, stop: Stop) -> bool:
        """Train the run in processes of its own; whether it came to its end.

        LabError with a crash's last words.
        """
        over = threading.Event()
        with (
            tempfile.TemporaryDirectory() as logs,
            Child(self._command(folder, logs), env=_env(), listens=True) as child,
        ):

            def watch() -> None:
                while not over.wait(ASK_EVERY):
                    if stop():
                        child.send_line(STOP)
                        return

            watcher = threading.Thread(target=watch, daemon=True)
            watcher.start()
            try:
                for records in child.batches():
                    for record in records:
                        if isinstance(record, RunStatus) and record.state == State.FAILED:
                            raise LabError(record.message or "the engine 'trl' failed")
                    sink.write(records)
                    child.send_line(WRITTEN)
            finally:
                over.set()
                watcher.join()
        return RunFolder(folder).final.exists()

    def _command(self, folder: Path, logs: str) -> list[str]:
        """torchrun on this machine.

        What ranks other than 0 print goes to files, so that records stay whole lines.
        """
        quiet = ",".join(f"{rank}:3" for rank in range(1, self.processes))
        return [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--local-addr",
            "127.0.0.1",
            "--nproc-per-node",
            str(self.processes),
            "--log-dir",
            logs,
            *(("--redirects", quiet) if quiet else ()),
            "-m",
            "gspo_lab.training.engines.trl.rank_process",
            str(folder),
            str(self.processes),
            str(self.microbatches),
            self.sampling,
        ]


def _env() -> dict[str, str]:
    """This process's environment, in which processes meet on this machine alone."""
    env = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONUNBUFFERED": "1"}
    if sys.platform == "linux":
        env.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return env
