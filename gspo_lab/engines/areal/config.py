"""What `[engine.options]` says of AReaL, what of a study it would not do, and its configuration, whole.

What AReaL's defaults would change of the study is set."""

import json
import math
from collections.abc import Iterator
from typing import Any

from gspo_lab.engines.external.attempt import PreparedAttempt
from gspo_lab.study import Settings

SCHEDULERS = ("local", "ray", "slurm")

LEVELS = ("token", "sequence")
AGGREGATION = "token-mean"
ADVANTAGES = {"group-mean-std": "group", "group-mean": None}
"""The lab's advantages as AReaL's `reward_norm.std_level`."""


MAIN = "GSPO_LAB_AREAL_MAIN"
"""Environment variable of AReaL's processes: the main process, with which they end."""
FILES, SAVING = "files", "saving"
"""AReaL's own folder beside the attempts, with checkpoints and logs; the file that is in it while it saves one."""


def broken(settings: Settings) -> Iterator[str]:
    """What AReaL would refuse, ignore or change of an arm, each as the end of a sentence."""
    objective = settings.objective
    if objective.aggregation != AGGREGATION:
        yield (
            f"means every token alike, long responses more: it has no aggregation = '{objective.aggregation}', the "
            f"paper's; set aggregation = '{AGGREGATION}' in every arm to compare what it can do"
        )
    if objective.importance_sampling_level not in LEVELS:
        yield f"has no importance_sampling_level = '{objective.importance_sampling_level}'; it has {', '.join(LEVELS)}"
    if objective.advantage == "gae":
        yield "is not given its critic by the lab: advantage = 'gae' trains with the engines 'native' and 'verl'"
    elif objective.advantage not in ADVANTAGES:
        yield f"has no advantage = '{objective.advantage}'; it has {', '.join(ADVANTAGES)}"
    if settings.rollout.coupled:
        yield "draws by random numbers of its own, which arms do not share: set rollout.coupled = false"
    if settings.update.warmup_updates > 1:
        yield "raises the learning rate by shares of the whole training: set update.warmup_updates = 0"


CONFIG, DATA = "config.yaml", "train.json"

CPU, MEMORY = 1, 2
"""Cores and GiB that its scheduler gives a process on a CPU; its own example asks for terabytes."""
SETUP_SECONDS = 1800.0
"""For which AReaL waits for its rollout server; its own 120 are few on a busy machine."""
BESIDE_THE_LAB = 0.5
"""The share of a GPU's memory for vLLM where the lab evaluates on the same GPU; else AReaL's own, 0.9."""
PLUGIN = "gspo_lab.engines.areal.plugin"
RELOAD = f"{PLUGIN}.cpu_weight_reload.Extension"
ON_CPU = {
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
"""What AReaL's processes have in their environment without a GPU."""


def configure(prepared: PreparedAttempt, *, scheduler: str, processes: int) -> tuple[list[str], dict[str, str]]:
    """Write into the attempt's folder what AReaL reads; its command, and nothing for its processes' environment."""
    path = prepared.attempt.path
    # Each prompt as text, which AReaL's data set hands on as it is.
    (path / DATA).write_text(json.dumps([{"asked": json.dumps(prompt.to_json())} for prompt in prepared.training]))
    config = configuration(prepared, scheduler=scheduler, processes=processes)
    # JSON is YAML, and needs no package to be written.
    (path / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    return ["python", "-m", f"{PLUGIN}.main", "--config", str(path / CONFIG)], {}


def configuration(prepared: PreparedAttempt, *, scheduler: str, processes: int) -> dict[str, Any]:
    """AReaL's YAML as a dictionary."""
    attempt, model, on_gpu = prepared.attempt, prepared.model, prepared.on_gpu
    run, path, files = attempt.run, attempt.path, str(attempt.home / FILES)
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
        "scheduler": {"type": scheduler},
        "cluster": {
            "n_nodes": 1,
            "n_gpus_per_node": processes,
            "fileroot": files,
            "name_resolve": {"type": "nfs", "nfs_record_root": f"{path}/names"},
        },
        "gconfig": {
            "n_samples": rollout.group_size,
            "max_new_tokens": prepared.response_tokens,
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
            "backend": f"fsdp:d{processes}",
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
            "path": str(path / DATA),
            "type": "rl",
            "batch_size": rollout.prompts_per_step,
            "shuffle": False,
        },
        "valid_dataset": None,
        "vllm": {
            "model": model,
            "dtype": rollout.dtype,
            **({"gpu_memory_utilization": BESIDE_THE_LAB} if settings.bench and on_gpu else {}),
            "max_model_len": prepared.prompt_tokens + prepared.response_tokens,
            **({} if on_gpu else {"enforce_eager": True, "worker_extension_cls": RELOAD}),
        },
        # The one epoch's end is the run's; the lab evaluates what is saved before.
        "saver": {
            **never,
            "freq_epochs": 1,
            "freq_steps": math.gcd(*(bench.every for bench in settings.bench)) or None,
        },
        "evaluator": never,
        "recover": {**never, "mode": "on", "freq_steps": update.checkpoint_every},
        "stats_logger": {**names, "fileroot": files, "tensorboard": {"path": f"{path}/tensorboard"}},
    }


def _place(on_gpu: bool) -> dict[str, Any]:
    return {
        "cpu": CPU,
        "gpu": int(on_gpu),
        "mem": MEMORY,
        "cmd": f"python -m {PLUGIN}.rpc_server",
        "env_vars": {} if on_gpu else ON_CPU,
    }
