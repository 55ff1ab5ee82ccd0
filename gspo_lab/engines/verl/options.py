"""What `[engine.options]` says of verl, and what of a study verl would not do: told before anything is launched."""

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.registry import nearest
from gspo_lab.study import Settings

BACKENDS = ("fsdp2", "megatron")
CHECKPOINTS, STEP = "checkpoints", "global_step_"
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
class VerlOptions:
    """The options of engine `verl`, and nothing besides.

    `backend`: fsdp2, or megatron. `processes`: training processes (GPUs) per machine, on `machines` machines.
    `tensor_parallel`: GPUs that share one copy of the model, in training (megatron) and in sampling.
    `ray`: "local", or the address of a cluster that is there. `set`: further keys of verl's configuration, which may
    contradict no key of the study.
    """

    backend: str = "fsdp2"
    processes: int = 1
    machines: int = 1
    tensor_parallel: int = 1
    ray: str = "local"
    set: Mapping[str, Any] = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        """Training processes on all machines."""
        return self.processes * self.machines

    def check(self, settings: Settings) -> None:
        """LabError for an option that cannot be, and for what verl would refuse, ignore or change of the settings."""
        if self.backend not in BACKENDS:
            known = ", ".join(BACKENDS)
            raise LabError(f"engine.options.backend = {self.backend!r}{nearest(str(self.backend), BACKENDS)}: {known}")
        for name in ("processes", "machines", "tensor_parallel"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise LabError(f"engine.options.{name} = {value!r}: a whole number from 1 on")
        if self.world_size % self.tensor_parallel:
            raise LabError(
                f"engine.options.tensor_parallel = {self.tensor_parallel} does not divide {self.world_size} processes"
            )
        if self.machines > 1 and self.ray == "local":
            raise LabError("engine.options.machines > 1 needs a Ray cluster: set engine.options.ray to its address")
        if not isinstance(self.set, Mapping):
            raise LabError("engine.options.set: a table of verl's keys, {'trainer.balance_batch' = false}")
        for why in _broken(settings, self):
            raise LabError(f"the engine 'verl' {why}")

    def check_here(self, *, on_gpu: bool) -> None:
        """LabError where this machine lacks what the options ask for."""
        if self.ray != "local":
            if self.ray != "auto":
                _probe(self.ray)
        elif on_gpu:
            import torch

            if (seen := torch.cuda.device_count()) < self.processes:
                raise LabError(f"engine.options.processes = {self.processes}: {seen} GPUs are seen here")


def _broken(settings: Settings, options: VerlOptions) -> Iterator[str]:
    objective, rollout, update = settings.objective, settings.rollout, settings.update
    if settings.routing_replay != "none" and options.backend != "megatron":
        yield (
            f"replays no routes with backend = '{options.backend}': verl would leave routing_replay = "
            f"'{settings.routing_replay}' out without a word; set engine.options.backend = 'megatron'"
        )
    if objective.aggregation not in AGGREGATIONS:
        yield f"has no aggregation = '{objective.aggregation}'; it has {', '.join(AGGREGATIONS)}"
    if objective.advantage not in ESTIMATORS:
        yield f"has no advantage = '{objective.advantage}'; it has {', '.join(ESTIMATORS)}"
    if objective.dual_clip is not None and objective.importance_sampling_level != "token":
        yield "caps no ratio of a sequence: its GSPO loss ignores objective.dual_clip"
    if objective.advantage == "gae":
        yield from _with_a_critic(settings, options)
    rows = rollout.prompts_per_step // update.minibatches * rollout.group_size
    if rows % options.world_size:
        yield f"shares a mini-batch evenly: its {rows} responses are no multiple of {options.world_size} processes"
    if len({bench.every for bench in settings.bench}) > 1:
        yield "asks all benchmarks at the same steps: give every [[bench]] the same `every`"
    for bench in settings.bench:
        if bench.decisive_samples not in (None, bench.samples):
            yield (
                "asks a benchmark equally often at every evaluation: "
                f"--set bench.{bench.name}.samples={bench.decisive_samples}"
            )
    if options.backend == "megatron" and update.dtype != "bfloat16":
        yield f"refuses update.dtype = '{update.dtype}' with Megatron; use update.dtype = 'bfloat16'"
    if options.backend == "megatron" and settings.device == "cpu":
        yield "trains with Megatron on GPUs only; use engine.options.backend = 'fsdp2' on a CPU"


def _with_a_critic(settings: Settings, options: VerlOptions) -> Iterator[str]:
    if settings.objective.importance_sampling_level == "sequence":
        yield (
            "keeps a critic's advantages by token, and its GSPO loss is then GSPO-token's: with advantage = 'gae' use "
            "the objective 'gspo-token'"
        )
    if options.backend == "megatron":
        yield "has a critic with backend = 'fsdp2' only"
    if settings.update.warmup_updates > 1:
        yield "raises no critic's learning rate from update to update: set update.warmup_updates = 0"


def _probe(address: str) -> None:
    """LabError where nobody listens at a cluster's address: Ray itself says nothing for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise LabError(f"engine.options.ray = {address!r}: 'local', 'auto' or HOST:PORT")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise LabError(f"engine.options.ray = {address!r}: nobody listens there ({error.strerror or error})") from error
