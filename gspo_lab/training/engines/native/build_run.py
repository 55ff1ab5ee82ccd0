"""Builds what a run needs before its first step: models, sampler, tasks and optimizer."""

import copy
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gspo_lab.common.errors import LabError
from gspo_lab.common.registry import check_made, look_up
from gspo_lab.study import Run, Settings
from gspo_lab.tasks.base import Task
from gspo_lab.training.engines.native.asynchrony import StalePolicy
from gspo_lab.training.engines.native.critic import Critic
from gspo_lab.training.engines.native.optimizer_update import Updater
from gspo_lab.training.engines.native.policy import Policy
from gspo_lab.training.engines.native.prompt_stream import check_fit, tasks_of, training_sampling
from gspo_lab.training.engines.native.trainable_model import (
    TrainableModel,
    is_large,
    trim_freed_memory,
)
from gspo_lab.training.models.builtin_models import param_counts
from gspo_lab.training.models.check import check_eight_bit
from gspo_lab.training.models.load import (
    check_dtype,
    context_of,
    device_of,
    load_model,
    set_thinking,
)
from gspo_lab.training.models.lora import add_adapters
from gspo_lab.training.models.shapes import keeps_start
from gspo_lab.training.objectives import Recorder
from gspo_lab.training.objectives.losses import loss_of
from gspo_lab.training.samplers import METHODS, SAMPLERS, Sampler, Sampling, no_routes


@dataclass(slots=True)
class RunComponents:
    """The models, sampler, tasks and optimizer that a training loop works with."""

    policy: Policy
    updater: Updater
    trained: dict[str, TrainableModel]
    """Every trained model by name: "policy", and "critic" if there is one. Checkpoints hold all."""
    critic: Critic | None
    reference: Policy | None
    lag: StalePolicy
    """The weights that the sampler draws from: the policy's, or those of some steps ago."""
    sampler: Sampler
    sampling: Sampling
    tokenizer: Any
    task: Task
    bench_tasks: dict[str, Task]
    task_keys: dict[str, str]
    """The keys of the tasks, as `tasks_of` returns them."""
    device: torch.device
    active_parameters: int
    evaluates_old_policy: bool
    """Whether the trainer runs the old policy: for its log-probs, or for the experts to replay."""


def _check_eight_bit(device: torch.device) -> None:
    check_eight_bit()
    if device.type != "cuda":
        raise LabError(
            "update.optimizer = 'adamw-8bit' works on a GPU only; use optimizer = 'adamw' here"
        )


def _sampler(settings: Settings, base: Path, model: Any, tokenizer: Any) -> Sampler:
    """The study's sampler, drawing from `model`. LabError if replay needs routes that it lacks."""
    rollout = settings.rollout
    options: dict[str, Any] = {}
    if rollout.batch_invariant and rollout.sampler == "vllm":
        options["batch_invariant"] = True
    if rollout.float32_head:
        options["float32_head"] = True
    make_sampler = look_up("sampler", rollout.sampler, SAMPLERS, base)
    sampler: Sampler = make_sampler(model, tokenizer, rollout.dtype, rollout.at_a_time, **options)
    check_made("sampler", rollout.sampler, sampler, (*METHODS, "separate", "returns_routes"))
    if settings.routing_replay == "rollout" and not sampler.returns_routes:
        raise LabError(no_routes(rollout.sampler))
    return sampler


def thread_count() -> int:
    """The first number in OMP_NUM_THREADS, which is the outermost level's; 1 without a number."""
    outermost = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return max(1, int(outermost)) if outermost.isdecimal() else 1


def set_up(run: Run, warm_start: Path | None) -> RunComponents:
    """Load the models of a run and build everything else from its settings.

    `warm_start` is the folder of a built-in model's cached warm start; None for other models.
    """
    settings = run.settings
    device = device_of(settings.device)
    check_dtype("update.dtype", settings.update.dtype, device)
    check_dtype("rollout.dtype", settings.rollout.dtype, device)
    if device.type == "cpu":
        torch.set_num_threads(thread_count())
    torch.manual_seed(run.seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Deterministic mode would fill every new tensor, which costs a pass and serves debugging only.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    base = Path(run.base)
    adapted = settings.update.lora_rank > 0
    dtype = settings.update.dtype if adapted else "float32"
    model, tokenizer = load_model(run.model, dtype=dtype, device=str(device), checkpoint=warm_start)
    set_thinking(tokenizer, settings.rollout.thinking)
    # After the model: only the cached files show whether a model of the Hub is a chat model.
    task, bench_tasks, task_keys = tasks_of(run)
    check_fit(task.problems("train"), tokenizer, context_of(model))
    if adapted:
        add_adapters(model, rank=settings.update.lora_rank, alpha=settings.update.lora_alpha)
    if settings.update.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    disable_dropout(model)
    if is_large(model.parameters()):
        trim_freed_memory()

    def policy_of(model: Any) -> Policy:
        return Policy(
            model,
            temperature=settings.rollout.temperature,
            dtype=settings.update.dtype,
            microbatch_tokens=settings.update.microbatch_tokens,
            float32_head=settings.update.float32_head,
        )

    policy = policy_of(model)
    if settings.routing_replay != "none" and policy.routers is None:
        raise LabError(
            f"routing_replay = '{settings.routing_replay}': the model '{settings.model}' has no"
            " experts"
        )
    reference = None
    if keeps_start(settings):
        reference = policy if adapted else policy_of(copy.deepcopy(model).requires_grad_(False))
    update = settings.update
    lag = StalePolicy(model, settings.rollout.staleness)
    sampler = _sampler(settings, base, lag.model, tokenizer)
    if update.optimizer == "adamw-8bit":
        _check_eight_bit(device)
    # The critic copies the model, so build it before TrainableModel changes a large embedding.
    critic = Critic(model, settings) if settings.objective.advantage == "gae" else None
    trained = {"policy": TrainableModel(model, update)}
    if critic is not None:
        trained["critic"] = critic.trained
    loss, objective = loss_of(settings.objective, base)
    updater = Updater(
        policy,
        trained["policy"],
        objective,
        loss,
        Recorder(
            objective,
            run.reference_bands,
            settings.record.detail_every,
            settings.record.token_detail,
        ),
        replay=settings.routing_replay,
        sampler_is_old=update.old_logprobs == "sampler",
        critic=critic,
    )
    return RunComponents(
        policy=policy,
        updater=updater,
        trained=trained,
        critic=critic,
        reference=reference,
        lag=lag,
        sampler=sampler,
        sampling=training_sampling(settings, task),
        tokenizer=tokenizer,
        task=task,
        bench_tasks=bench_tasks,
        task_keys=task_keys,
        device=device,
        active_parameters=param_counts(model)[1],
        evaluates_old_policy=update.old_logprobs == "trainer"
        or settings.routing_replay == "old-policy",
    )


def disable_dropout(model: Any) -> None:
    """Turn off all dropout.

    Two passes at the same weights must give the same log-probs, or every ratio is noise.
    """
    for module in model.modules():
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if getattr(module, "jitter_noise", 0) or getattr(module, "router_jitter_noise", 0):
            raise LabError(
                f"the model's routers add noise while training ({type(module).__name__}), so that"
                " no two passes agree; set router_jitter_noise to 0 in its config.json"
            )
