"""The engine `verl`: a run on verl's trainer. `plugin/` is what verl's own processes import.

Its configuration is Hydra overrides, as its command line takes them. Everything that the study
decides is set, also where verl's default differs from the lab's. A key that begins with "+" is none
of verl's own defaults.
"""

import json
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping, JsonObject, table_beside
from gspo_lab.study import Run, Settings
from gspo_lab.study.schema import obeyed
from gspo_lab.training.engines.base import Capabilities
from gspo_lab.training.engines.external.attempt import LOG, PreparedAttempt, Prompt, for_plugin
from gspo_lab.training.engines.external.engine import ExternalEngine, check_choice, check_count
from gspo_lab.training.engines.external.records import DIGESTS, FROM_ANSWERS, MEASURED

RECORDS = {
    **FROM_ANSWERS,
    **MEASURED,
    **dict.fromkeys(("loss", "seconds_old_logprobs", "seconds_update", "seconds_step"), ""),
    **DIGESTS,
    "entropy": (
        "verl's actor/entropy: aggregated as objective.aggregation says, not over all tokens alike"
    ),
    "mismatch_k1": "",
    "mismatch_k3": "",
    "seconds_rollout": "sampling and grading, which go on side by side",
    "evaluated_responses": "all responses: verl evaluates those with A = 0 too",
}

FIXED = table_beside(__file__, "fixed.toml")
"""What follows from no study, by when it is given."""

BACKENDS = ("fsdp2", "megatron")
CHECKPOINTS = "checkpoints"
STEP = "global_step_"
"""verl's folder of checkpoints beside the attempts, and the beginning of each one's name."""

AGGREGATIONS = ("seq-mean-token-mean", "token-mean", "seq-mean-token-sum")
ESTIMATORS = {
    "group-mean-std": ("grpo", True),
    "group-mean": ("grpo", False),
    "leave-one-out": ("rloo", True),
    "gae": ("gae", True),
}
"""The lab's advantages as verl's (adv_estimator, norm_adv_by_std_in_grpo)."""


@dataclass(frozen=True, kw_only=True)
class VerlEngine(ExternalEngine):
    """verl 0.9.1: FSDP2 or Megatron, vLLM for sampling, one rollout batch at a time.

    `backend`: fsdp2, or megatron. `processes`: training processes (GPUs) per machine, on `machines`
    machines. `tensor_parallel`: GPUs that share one copy of the model, in training (megatron) and
    in sampling. `ray`: "local", or the address of a cluster that is there. `set`: further keys of
    verl's configuration, which may contradict no key of the study.
    """

    name = "verl"
    program = "verl"
    starts = "Ray, model, vLLM"
    packages = ("verl", "vllm", "torch", "transformers", "tokenizers", "numpy", "ray")
    capabilities = Capabilities(settings=obeyed("verl"), records=RECORDS, turns=False)

    backend: str = "fsdp2"
    processes: int = 1
    machines: int = 1
    tensor_parallel: int = 1
    ray: str = "local"
    set: JsonMapping = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        """Training processes on all machines."""
        return self.processes * self.machines

    def refusals(self, settings: Settings) -> Iterator[str]:
        """What verl would refuse, ignore or change of the settings.

        LabError for an option that cannot be.
        """
        self._check_options()
        yield from self._broken_objective(settings)
        yield from self._broken_batches(settings)
        if self.backend == "megatron":
            yield from _broken_on_megatron(settings)
        elif settings.routing_replay != "none":
            yield (
                f"replays no routes with backend = '{self.backend}': verl would leave"
                f" routing_replay = '{settings.routing_replay}' out without a word; set"
                " engine.options.backend = 'megatron'"
            )

    def _check_options(self) -> None:
        check_choice("backend", self.backend, BACKENDS)
        for name in ("processes", "machines", "tensor_parallel"):
            check_count(name, getattr(self, name))
        if self.world_size % self.tensor_parallel:
            raise LabError(
                f"engine.options.tensor_parallel = {self.tensor_parallel} does not divide"
                f" {self.world_size} processes"
            )
        if self.machines > 1 and self.ray == "local":
            raise LabError(
                "engine.options.machines > 1 needs a Ray cluster: set engine.options.ray to its"
                " address"
            )
        if not isinstance(self.set, Mapping):
            raise LabError(
                "engine.options.set: a table of verl's keys, {'trainer.balance_batch' = false}"
            )

    def _broken_objective(self, settings: Settings) -> Iterator[str]:
        objective = settings.objective
        if objective.aggregation not in AGGREGATIONS:
            yield (
                f"has no aggregation = '{objective.aggregation}'; it has {', '.join(AGGREGATIONS)}"
            )
        if objective.advantage not in ESTIMATORS:
            yield f"has no advantage = '{objective.advantage}'; it has {', '.join(ESTIMATORS)}"
        if objective.dual_clip is not None and objective.importance_sampling_level != "token":
            yield "caps no ratio of a sequence: its GSPO loss ignores objective.dual_clip"
        if objective.advantage == "gae":
            if objective.importance_sampling_level == "sequence":
                yield (
                    "keeps a critic's advantages by token, and its GSPO loss is then GSPO-token's:"
                    " with advantage = 'gae' use the objective 'gspo-token'"
                )
            if settings.update.warmup_updates > 1:
                yield (
                    "raises no critic's learning rate from update to update: set"
                    " update.warmup_updates = 0"
                )

    def _broken_batches(self, settings: Settings) -> Iterator[str]:
        rollout = settings.rollout
        update = settings.update
        rows = rollout.prompts_per_step // update.minibatches * rollout.group_size
        if rows % self.world_size:
            yield (
                f"shares a mini-batch evenly: its {rows} responses are no multiple of"
                f" {self.world_size} processes"
            )
        if len({bench.every for bench in settings.bench}) > 1:
            yield "asks all benchmarks at the same steps: give every [[bench]] the same `every`"
        for bench in settings.bench:
            if bench.decisive_samples not in (None, bench.samples):
                yield (
                    "asks a benchmark equally often at every evaluation: "
                    f"--set bench.{bench.name}.samples={bench.decisive_samples}"
                )

    def check_here(self, *, on_gpu: bool) -> None:
        """LabError where this machine lacks what the options ask for."""
        if self.ray != "local":
            if self.ray != "auto":
                _probe(self.ray)
        elif on_gpu:
            import torch

            if (gpus := torch.cuda.device_count()) < self.processes:
                raise LabError(
                    f"engine.options.processes = {self.processes}: {gpus} GPUs are seen here"
                )

    def ready(self) -> None:
        """LabError where verl's environment was not made, or nobody listens at the cluster's
        address.
        """
        self.check_here(on_gpu=False)
        super().ready()

    def configure(self, prepared: PreparedAttempt) -> tuple[list[str], dict[str, str]]:
        """Prompts as verl reads them, and its configuration as words of its command line."""
        attempt = prepared.attempt
        path = attempt.path
        group = attempt.run.settings.rollout.prompts_per_step
        _write(
            path / TRAIN,
            [row(prompt, prompt.step * group + prompt.place) for prompt in prepared.training],
        )
        if prepared.benches:
            _write(path / VAL, [row(prompt, prompt.place) for prompt in prepared.benches])
        (path / AGENT).write_text(f"- name: gspo_lab\n  _target_: {PLUGIN}.agent_loop.LabLoop\n")
        words = arguments(overrides(prepared, self))
        (path / OVERRIDES).write_text("\n".join(words) + "\n")
        return ["python", "-u", "-m", f"{PLUGIN}.main", *words], environment(prepared)

    def saved_steps(self, home: Path, run: Run, recorded: int) -> int:
        """verl saves a step's checkpoint before it tells of the step: the last one may be of a step
        too many.
        """
        saved = {
            int(path.name.removeprefix(STEP)): path
            for path in (home / CHECKPOINTS).glob(f"{STEP}*")
        }
        complete = [
            step for step, path in saved.items() if step <= recorded and (path / "data.pt").exists()
        ]
        last = max(complete, default=0)
        for step, path in saved.items():
            if step != last:
                shutil.rmtree(path)
        return last

    def model_after(self, home: Path, run: Run, step: int) -> Path:
        """The Hugging Face folder beside verl's checkpoint."""
        return home / CHECKPOINTS / f"{STEP}{step}" / "actor" / "huggingface"

    def step_columns(self, data: JsonMapping) -> JsonObject:
        """`data` is that of verl's file logger.

        The time of a checkpoint is no part of the step's.
        """
        return {
            "seconds_step": (
                float(data["timing_s/step"]) - float(data.get("timing_s/save_checkpoint", 0.0))
            ),
            "seconds_rollout": data.get("timing_s/gen"),
            "seconds_old_logprobs": data.get("timing_s/old_log_prob"),
            "seconds_update": data.get("timing_s/update_actor"),
            "entropy": data.get("actor/entropy"),
            "mismatch_k1": data.get("rollout_corr/kl"),
            "mismatch_k3": data.get("rollout_corr/k3_kl"),
        }


def _probe(address: str) -> None:
    """LabError where nobody listens at a cluster's address: Ray itself says nothing for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise LabError(f"engine.options.ray = {address!r}: 'local', 'auto' or HOST:PORT")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise LabError(
            f"engine.options.ray = {address!r}: nobody listens there ({error.strerror or error})"
        ) from error


NO_DUAL_CLIP = 1e9
"""verl's token loss caps ratios where A < 0, at 3 unless told.

It keeps ratios below e^20 = 4.9e8 before that.
"""
POOL = 2048
"""Tokens that vLLM computes at once on a CPU."""
PLUGIN = "gspo_lab.training.engines.verl.plugin"
TRAIN = "train.jsonl"
VAL = "val.jsonl"
AGENT = "agent.yaml"
OVERRIDES = "overrides.txt"
DEVICE = "gspo-lab"
"""The device by whose name verl finds the lab's engines (VERL_ENGINE_DEVICE)."""
REPLAY = {"none": "disabled", "old-policy": "R2", "rollout": "R3"}
PREFIX = "lab-"
"""Before the names of verl's policy losses that the lab records."""


def row(prompt: Prompt, index: int) -> JsonObject:
    """verl's columns of a prompt."""
    return {
        "data_source": prompt.bench or "rollout",
        "prompt": [{"role": "user", "content": prompt.problem.prompt}],
        "ability": "lab",
        "reward_model": {"style": "rule", "ground_truth": prompt.problem.reference},
        "__rollout_n__": prompt.samples,
        "extra_info": {"index": index, **prompt.to_json()},
    }


def _write(path: Path, rows: Sequence[JsonMapping]) -> None:
    """One row a line, as JSON: verl reads that as well as Parquet."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def overrides(prepared: PreparedAttempt, options: VerlEngine) -> JsonObject:
    """verl's keys and their values.

    LabError where `options.set` names one that the study decides.
    """
    run = prepared.attempt.run
    out = {
        **FIXED["always"],
        **({} if prepared.on_gpu else FIXED["cpu"]),
        **(FIXED["fsdp2"] if options.backend == "fsdp2" else {}),
        **_training(prepared, options),
        **_model_and_actor(prepared, options),
        **_rollout(prepared, options),
    }
    out |= _critic(prepared) if run.settings.objective.advantage == "gae" else {}
    out |= _machine(prepared, options)
    for key, value in options.set.items():
        if (
            key.lstrip("+~") in {name.lstrip("+") for name in out}
            or key.lstrip("+~") == "model_engine"
        ):
            raise LabError(
                f"engine.options.set: '{key}' follows from the study; set it there, or leave it out"
            )
        out[key] = value
    return out


def _below(prefix: str, keys: JsonMapping) -> JsonObject:
    """Keys below `prefix`; the "+" of a key that verl does not know stands before it."""
    return {
        "+" * key.startswith("+") + f"{prefix}.{key.lstrip('+')}": value
        for key, value in keys.items()
    }


def arguments(keys: JsonMapping) -> list[str]:
    """The command line's words."""
    return [f"{key}={_word(value)}" for key, value in keys.items()]


def environment(prepared: PreparedAttempt) -> dict[str, str]:
    """What verl's processes need in their environment."""
    path = prepared.attempt.path
    return {
        **FIXED["environment"],
        **({} if prepared.on_gpu else FIXED["cpu_environment"]),
        **for_plugin(path),
        "VERL_ENGINE_DEVICE": DEVICE,
        "VERL_FILE_LOGGER_PATH": str(path / LOG),
        "HF_DATASETS_CACHE": str(path / "datasets"),
    }


def _word(value: Any) -> str:
    """A value as Hydra's grammar reads it back."""
    if isinstance(value, str):
        return value if value.isidentifier() else json.dumps(value)
    if isinstance(value, list):
        return "[" + ",".join(map(_word, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_word(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


def _broken_on_megatron(settings: Settings) -> Iterator[str]:
    dtype = settings.update.dtype
    if settings.objective.advantage == "gae":
        yield "has a critic with backend = 'fsdp2' only"
    if dtype != "bfloat16":
        yield f"refuses update.dtype = '{dtype}' with Megatron; use update.dtype = 'bfloat16'"
    if settings.device == "cpu":
        yield "trains with Megatron on GPUs only; use engine.options.backend = 'fsdp2' on a CPU"


def _training(prepared: PreparedAttempt, options: VerlEngine) -> JsonObject:
    """The trainer, its prompts and its advantages."""
    attempt = prepared.attempt
    settings = prepared.attempt.run.settings
    run = attempt.run
    path = attempt.path
    home = attempt.home
    first_step = attempt.first_step
    evaluates = bool(settings.bench)
    objective = settings.objective
    estimator, by_std = ESTIMATORS[objective.advantage]
    resume = (
        {"trainer.resume_from_path": str(home / CHECKPOINTS / f"{STEP}{first_step}")}
        if first_step
        else {}
    )
    return {
        **({"model_engine": "megatron"} if options.backend == "megatron" else {}),
        "trainer.device": "cuda" if prepared.on_gpu else "cpu",
        "trainer.nnodes": options.machines,
        "trainer.n_gpus_per_node": options.processes,
        "trainer.project_name": run.study,
        "trainer.experiment_name": f"{run.arm}-s{run.seed}",
        "trainer.total_training_steps": settings.steps,
        "trainer.val_before_train": evaluates and not first_step,
        "trainer.test_freq": settings.bench[0].every if evaluates else -1,
        "trainer.save_freq": settings.update.checkpoint_every,
        "trainer.default_local_dir": str(home / CHECKPOINTS),
        "trainer.resume_mode": "resume_path" if first_step else "disable",
        **resume,
        "data.train_files": str(path / TRAIN),
        "data.val_files": str(path / (VAL if evaluates else TRAIN)),
        "data.train_batch_size": settings.rollout.prompts_per_step,
        "data.max_prompt_length": prepared.prompt_tokens,
        "data.max_response_length": prepared.response_tokens,
        "algorithm.adv_estimator": estimator,
        "algorithm.norm_adv_by_std_in_grpo": by_std,
        "algorithm.gamma": objective.gamma,
        "algorithm.lam": objective.gae_lambda,
        "algorithm.rollout_correction.rollout_is": None,
        "algorithm.rollout_correction.rollout_rs": None,
    }


def _model_and_actor(prepared: PreparedAttempt, options: VerlEngine) -> JsonObject:
    run = prepared.attempt.run
    update = run.settings.update
    objective = run.settings.objective
    rollout = run.settings.rollout
    prompts = rollout.prompts_per_step // update.minibatches
    rows = rows_at_a_time(
        prompts * rollout.group_size // options.world_size,
        prepared.prompt_tokens + prepared.response_tokens,
        update.microbatch_tokens,
    )
    loss = "vanilla" if objective.importance_sampling_level == "token" else "gspo"
    actor = {
        "ppo_mini_batch_size": prompts,
        "ppo_micro_batch_size_per_gpu": rows,
        "ppo_epochs": update.epochs,
        "policy_loss.loss_mode": PREFIX + loss,
        "loss_agg_mode": objective.aggregation,
        "clip_ratio_low": objective.clip_range[0],
        "clip_ratio_high": objective.clip_range[1],
        "clip_ratio_c": NO_DUAL_CLIP if objective.dual_clip is None else objective.dual_clip,
        **_below("optim", update.adamw),
        "optim.clip_grad": update.max_grad_norm,
    }
    if options.backend == "megatron":
        backend = {
            "strategy": "megatron",
            "megatron.tensor_model_parallel_size": options.tensor_parallel,
            "megatron.dtype": update.dtype,
            "megatron.router_replay.mode": REPLAY[run.settings.routing_replay],
        }
    else:
        backend = {
            "fsdp_config.dtype": update.dtype,
            "+fsdp_config.mixed_precision": _precision(run),
        }
    return {
        "actor_rollout_ref.model.path": prepared.model,
        "actor_rollout_ref.model.use_remove_padding": prepared.on_gpu,
        "actor_rollout_ref.model.enable_gradient_checkpointing": update.gradient_checkpointing,
        **_below("actor_rollout_ref.actor", actor | backend),
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": rows,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": rows,
    }


def _precision(run: Run) -> dict[str, str]:
    """Weights and sums in float32, arithmetic as the study says. Under FSDP verl's `dtype` decides
    nothing: unless this table is given, the forward pass is in bfloat16."""
    short = {"float32": "fp32", "bfloat16": "bf16"}[run.settings.update.dtype]
    return {"param_dtype": short, "reduce_dtype": "fp32", "buffer_dtype": "fp32"}


def _rollout(prepared: PreparedAttempt, options: VerlEngine) -> JsonObject:
    run = prepared.attempt.run
    rollout = run.settings.rollout
    keys: JsonObject = {
        "n": rollout.group_size,
        "temperature": rollout.temperature,
        "top_p": rollout.top_p,
        "dtype": rollout.dtype,
        "tensor_model_parallel_size": options.tensor_parallel,
        "max_model_len": prepared.prompt_tokens + prepared.response_tokens,
        "enable_rollout_routing_replay": run.settings.routing_replay == "rollout",
        "agent.agent_loop_config_path": str(prepared.attempt.path / AGENT),
    }
    if not prepared.on_gpu:
        keys["max_num_batched_tokens"] = max(POOL, keys["max_model_len"])
    return _below("actor_rollout_ref.rollout", keys)


def _critic(prepared: PreparedAttempt) -> JsonObject:
    """verl's critic, on the actor's mini-batches and epochs; transformers draws its head at
    random.
    """
    run = prepared.attempt.run
    update = run.settings.update
    critic = run.settings.critic
    attention = "+critic.model.override_config.attn_implementation"
    return {
        **FIXED["critic"],
        **({} if prepared.on_gpu else {attention: "sdpa"}),
        "critic.model.path": prepared.model,
        "critic.model.use_remove_padding": prepared.on_gpu,
        "critic.model.enable_gradient_checkpointing": update.gradient_checkpointing,
        "critic.cliprange_value": critic.value_clip,
        **_below("critic.optim", run.settings.critic_update.adamw),
        "critic.optim.clip_grad": update.max_grad_norm,
        "+critic.fsdp.mixed_precision": _precision(run),
    }


def _machine(prepared: PreparedAttempt, options: VerlEngine) -> JsonObject:
    """Ray: its own, which ends with the run; or a cluster that is there, whose workers need the
    environment told.
    """
    if options.ray != "local":
        env = {
            f"+ray_kwargs.ray_init.runtime_env.env_vars.{k}": v
            for k, v in environment(prepared).items()
        }
        return {"+ray_kwargs.ray_init.address": options.ray, **env}
    keys = dict(FIXED["local_ray"])
    if not prepared.on_gpu:
        keys["+ray_kwargs.ray_init.num_gpus"] = options.processes
        keys["+ray_kwargs.ray_init.object_store_memory"] = 500_000_000
    return keys


def rows_at_a_time(rows: int, positions: int, microbatch_tokens: int) -> int:
    """The largest divisor of a process's `rows` whose positions fit into `microbatch_tokens`; at
    least one row.
    """
    fitting = max(1, microbatch_tokens // positions)
    return max(number for number in range(1, rows + 1) if rows % number == 0 and number <= fitting)
