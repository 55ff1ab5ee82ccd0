"""From a study's settings to TRL's: every key that decides the objective is given, whatever TRL's default is.

G = responses per prompt, M = mini-batches; TRL counts completions, and a step of TRL is one update.
"""

from typing import Any

from gspo_lab.registry import nearest
from gspo_lab.study import Settings

LAB, OWN = SAMPLINGS = ("lab", "trl")
"""Who draws the responses to train on: the lab's sampler, or TRL's own generation."""


def responses(settings: Settings) -> int:
    """The responses of a rollout batch."""
    return settings.rollout.prompts_per_step * settings.rollout.group_size


def broken(settings: Settings, processes: int, microbatches: int, sampling: str) -> str | None:
    """Why TRL cannot train so, as the end of a sentence; None where it can."""
    if processes < 1 or microbatches < 1:
        return f"needs processes and microbatches of at least 1, not {processes} and {microbatches}"
    if sampling not in SAMPLINGS:
        return f"has no sampling = {sampling!r}{nearest(str(sampling), SAMPLINGS)}, only {' and '.join(SAMPLINGS)}"
    if sampling == OWN and (why := _not_its_own(settings)):
        return f"with sampling = '{OWN}' draws by its own random numbers from the model that it trains: set {why}"
    level = settings.objective.importance_sampling_level
    if level not in ("token", "sequence"):
        return f"knows no importance_sampling_level = '{level}', only 'token' and 'sequence'"
    if settings.objective.advantage == "gae":
        return "has no trainer with a critic: advantage = 'gae' trains with the engines 'native' and 'verl'"
    if settings.rollout.group_size == 1:
        return "asks every prompt more than once: set rollout.group_size to 2 or more"
    if settings.routing_replay == "rollout":
        return "replays the old policy's experts, not the sampler's; use routing_replay = 'old-policy' or 'none'"
    parts = settings.update.minibatches * processes * microbatches
    if responses(settings) % parts:
        return (
            f"splits the {responses(settings)} responses of a rollout batch equally; {settings.update.minibatches} "
            f"mini-batches x {processes} processes x {microbatches} microbatches are {parts} parts"
        )
    return None


def _not_its_own(settings: Settings) -> str | None:
    """What of the study's sampling TRL's generation would ignore, as what to set."""
    rollout = settings.rollout
    wanted = {"coupled": False, "sampler": "transformers", "top_p": 1.0, "dtype": settings.update.dtype}
    odd = [f"rollout.{key} = {value!r}" for key, value in wanted.items() if getattr(rollout, key) != value]
    return ", ".join(odd) or None


def trainer_settings(settings: Settings, processes: int, microbatches: int) -> dict[str, Any]:
    """GRPOConfig's keywords, but for the run's own: seed, steps, folder, device."""
    update, rollout, objective = settings.update, settings.rollout, settings.objective
    per_process = responses(settings) // (update.minibatches * processes * microbatches)
    return {
        # -mean over responses of mean over tokens of min(r A, clip(r) A): TRL's default, dapo, is one mean over tokens.
        "loss_type": "grpo",
        "importance_sampling_level": objective.importance_sampling_level,
        "epsilon": objective.clip_low,
        "epsilon_high": objective.clip_high,
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
