"""From a run to AReaL's configuration, whole: what its defaults would change of the study is set."""

from typing import Any

from gspo_lab.engines.areal.options import ADVANTAGES, Options
from gspo_lab.study import Run

CPU, MEMORY = 1, 2
"""Cores and GiB that its scheduler gives a process on a CPU; its own example asks for terabytes."""
SETUP_SECONDS = 1800.0
"""For which AReaL waits for its rollout server; its own 120 are few on a busy machine."""
INSIDE = "gspo_lab.engines.areal.inside"
ON_CPU = {
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
"""What AReaL's processes have in their environment without a GPU."""


def configuration(
    run: Run, options: Options, *, home: str, files: str, model: str, prompt_tokens: int, max_tokens: int, on_gpu: bool
) -> dict[str, Any]:
    """AReaL's YAML as a dictionary. `home` is the folder of this start, `files` that for checkpoints and logs, `model`
    a folder or Hub id; `prompt_tokens` and `max_tokens` are those of the longest prompt and response."""
    settings = run.settings
    rollout, update, objective = settings.rollout, settings.update, settings.objective
    names = {"experiment_name": run.study, "trial_name": f"{run.arm}-s{run.seed}"}
    never = {**names, "fileroot": files, "freq_epochs": None, "freq_steps": None, "freq_secs": None}
    group_norm = {
        "mean_level": "group",
        "std_level": ADVANTAGES[objective.advantage],
        "group_size": rollout.group_size,
    }
    return {
        **names,
        "seed": run.seed,
        "total_train_epochs": 1,
        "total_train_steps": settings.steps,
        "tokenizer_path": model,
        "scheduler": {"type": options.scheduler},
        "cluster": {
            "n_nodes": 1,
            "n_gpus_per_node": options.processes,
            "fileroot": files,
            "name_resolve": {"type": "nfs", "nfs_record_root": f"{home}/names"},
        },
        "gconfig": {
            "n_samples": rollout.group_size,
            "max_new_tokens": max_tokens,
            "temperature": rollout.temperature,
            "top_p": rollout.top_p,
        },
        "rollout": {
            **names,
            "fileroot": files,
            "backend": "vllm:d1",
            "setup_timeout": SETUP_SECONDS,
            "tokenizer_path": model,
            "max_concurrent_rollouts": rollout.prompts_per_step,
            "consumer_batch_size": rollout.prompts_per_step,
            "max_head_offpolicyness": 0,
            "scheduling_spec": [_place(on_gpu)],
        },
        "actor": {
            **names,
            "backend": f"fsdp:d{options.processes}",
            "path": model,
            "dtype": update.dtype,
            "attn_impl": "flash_attention_2" if on_gpu else "sdpa",
            "temperature": rollout.temperature,
            "disable_dropout": True,
            "gradient_checkpointing": update.gradient_checkpointing,
            "weight_update_mode": "xccl" if on_gpu else "disk",
            "mb_spec": {"max_tokens_per_mb": update.microbatch_tokens},
            "optimizer": {
                "type": "adam",
                "lr": update.learning_rate,
                "beta1": update.adam_beta1,
                "beta2": update.adam_beta2,
                "weight_decay": update.weight_decay,
                "gradient_clipping": update.max_grad_norm,
                "lr_scheduler_type": "constant",
                "warmup_steps_proportion": 0.0,
            },
            "importance_sampling_level": objective.importance_sampling_level,
            "eps_clip": objective.clip_low,
            "eps_clip_higher": objective.clip_high,
            "c_clip": objective.dual_clip,
            "ppo_n_minibatches": update.minibatches,
            "reward_norm": group_norm,
            "adv_norm": None,
            "reward_scaling": 1.0,
            "reward_bias": 0.0,
            "kl_ctl": 0.0,
            "recompute_logprob": True,  # the trainer's old log-probs, as in the lab
            "use_decoupled_loss": False,
            "rejection_sampling": None,
            "scheduling_spec": [_place(on_gpu)],
        },
        "ref": None,
        "train_dataset": {
            "path": f"{home}/train.json",
            "type": "rl",
            "batch_size": rollout.prompts_per_step,
            "shuffle": False,
        },
        "valid_dataset": None,
        "vllm": {
            "model": model,
            "dtype": rollout.dtype,
            "max_model_len": prompt_tokens + max_tokens,
            **({} if on_gpu else {"enforce_eager": True, "worker_extension_cls": f"{INSIDE}.reloading.Extension"}),
        },
        "saver": {**never, "freq_epochs": 1},  # the one epoch's end is the run's
        "evaluator": never,
        "recover": {**never, "mode": "on", "freq_steps": update.checkpoint_every},
        "stats_logger": {**names, "fileroot": files, "tensorboard": {"path": f"{home}/tensorboard"}},
    }


def _place(on_gpu: bool) -> dict[str, Any]:
    return {
        "cpu": CPU,
        "gpu": int(on_gpu),
        "mem": MEMORY,
        "cmd": f"python -m {INSIDE}.serving",
        "env_vars": {} if on_gpu else ON_CPU,
    }
