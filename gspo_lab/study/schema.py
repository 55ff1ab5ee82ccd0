"""The TOML of a study: every key, its default and its meaning; `docs/reference/study-keys.md` is made from it."""

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from gspo_lab.objectives.presets import (
    Advantage,
    Aggregation,
    Clip,
    Correction,
    PolicyLoss,
    SequenceAdvantage,
    TurnCredit,
)
from gspo_lab.objectives.ratios import Level
from gspo_lab.study.asking import BenchTable, RolloutTable, TaskTable
from gspo_lab.study.table import HUGE, MANY, Dtype, Replay, Share, Table


class EngineTable(Table):
    """Who trains. `engine = "native"` says the same as its name alone."""

    name: str = Field(
        "native", description="`native`, `trl`, `verl`, `areal`, or `module:attribute`, `file.py:attribute`"
    )
    options: dict[str, Any] = Field({}, description="the engine's own options, which only it knows")

    @model_validator(mode="before")
    @classmethod
    def _by_its_name(cls, data: Any) -> Any:
        return {"name": data} if isinstance(data, str) else data

    @model_serializer(mode="wrap")
    def _plain(self, table: SerializerFunctionWrapHandler) -> Any:
        return table(self) if self.options else self.name


class WarmStart(Table):
    """Supervised training of an embedded model on the task's demonstrations before the study, made once and cached."""

    steps: int = Field(
        0, ge=0, le=MANY, description="supervised steps; 0: an untrained model (or the checkpoint as it is)"
    )
    batch_size: int = Field(64, ge=1, le=MANY, description="demonstrations per supervised step")
    learning_rate: float = Field(1e-3, gt=0, le=100, description="peak learning rate of the warm start")
    warmup_steps: int = Field(20, ge=0, le=MANY, description="steps over which its learning rate rises")
    per_seed: bool = Field(False, description="one warm start per seed instead of one for the whole study")
    seed: int = Field(
        0, ge=0, lt=2**63, description="seed of the whole study's one warm start; a replication takes one of its own"
    )


class UpdateTable(Table):
    """How the policy is updated on a rollout batch."""

    minibatches: int = Field(
        4, ge=1, le=MANY, description="mini-batches a rollout batch is split into; one optimizer update each"
    )
    epochs: int = Field(1, ge=1, le=MANY, description="passes over a rollout batch")
    learning_rate: float = Field(1e-4, gt=0, le=100, description="AdamW's learning rate")
    warmup_updates: int = Field(
        8, ge=0, le=MANY, description="optimizer updates over which the learning rate rises linearly"
    )
    adam_beta1: float = Field(0.9, ge=0, lt=1, description="AdamW's first decay")
    adam_beta2: float = Field(0.95, ge=0, lt=1, description="AdamW's second decay")
    weight_decay: float = Field(0.0, ge=0, le=100, description="AdamW's weight decay")
    max_grad_norm: float = Field(1.0, gt=0, le=1e30, description="gradients are clipped to this L2 norm")
    microbatch_tokens: int = Field(
        16384,
        ge=1,
        le=MANY,
        description="positions (rows x padded length) per forward pass; never changes the gradient",
    )
    skip_zero_advantage: bool = Field(
        True,
        description="no forward or backward pass for responses with A = 0: without a KL term they add nothing to the "
        "gradient, only to the denominators; what is measured of ratios then covers the others",
    )
    old_logprobs: Literal["trainer", "sampler"] = Field(
        "trainer", description="whose log-probs of the old policy the ratio uses"
    )
    lora_rank: int = Field(
        0,
        ge=0,
        le=MANY,
        description="train low-rank adapters of this rank beside the linear layers, the weights frozen; 0: all weights",
    )
    lora_alpha: int = Field(32, ge=1, le=MANY, description="adapters are scaled by lora_alpha / lora_rank")
    optimizer: Literal["adamw", "adamw-8bit"] = Field(
        "adamw", description="`adamw-8bit`: its two moments in 8 bits (bitsandbytes, on a GPU)"
    )
    gradient_checkpointing: bool = Field(
        False, description="recompute activations in the backward pass: less memory, more time"
    )
    dtype: Dtype = Field(
        "float32",
        description="precision of the trainer's arithmetic; trained weights are float32, those frozen beside adapters "
        "have this precision",
    )
    checkpoint_every: int = Field(
        10, ge=1, le=MANY, description="steps between checkpoints; a killed run goes on from the last one"
    )

    @property
    def per_rollout_batch(self) -> int:
        """Optimizer updates on one rollout batch."""
        return self.minibatches * self.epochs

    @property
    def first_settled(self) -> int:
        """The first step whose updates all have the full learning rate, where every step makes as many: update n (from
        0) has (n + 1) / warmup_updates of it. Where groups vary, `readings.settled` reads it off a run's record."""
        return -(-max(self.warmup_updates - 1, 0) // self.per_rollout_batch)


class ObjectiveTable(Table):
    """The objective of a run, every key resolved: a preset's values under those given."""

    preset: str = Field("grpo", description="the preset it started from")
    importance_sampling_level: Level
    policy_loss: PolicyLoss = "clip"
    clip: Clip
    clip_low: float = Field(gt=0, le=1)
    clip_high: float = Field(gt=0, le=HUGE)
    clip_target: float = Field(gt=0, lt=1)
    dual_clip: float | None = Field(None, gt=1, le=HUGE)
    aggregation: Aggregation
    aggregation_constant: float = Field(gt=0, le=HUGE)
    advantage: Advantage
    turn_credit: TurnCredit = "response"
    gamma: float = Field(1.0, ge=0, le=1)
    gae_lambda: float = Field(1.0, ge=0, le=1)
    whiten_advantages: bool = True
    sequence_advantage: SequenceAdvantage = "mean"
    kl_coef: float = Field(ge=0, le=HUGE)
    bapo_clip_low: float = Field(0.1, gt=0, lt=1)
    bapo_clip_high: float = Field(2.0, gt=0, le=HUGE)
    bapo_share: float = Field(0.5, gt=0, lt=1)
    sapo_tau_positive: float = Field(1.0, gt=0, le=HUGE)
    sapo_tau_negative: float = Field(1.05, gt=0, le=HUGE)
    pspo_smoothing: float = Field(0.1, ge=0, lt=1)
    vespo_k_positive: float = Field(2.0, ge=0, le=HUGE)
    vespo_lambda_positive: float = Field(3.0, gt=0, le=HUGE)
    vespo_k_negative: float = Field(3.0, ge=0, le=HUGE)
    vespo_lambda_negative: float = Field(2.0, gt=0, le=HUGE)
    mismatch_correction: Correction = "none"
    mismatch_low: float | None = Field(None, ge=0, le=HUGE)
    mismatch_high: float | None = Field(None, gt=0, le=HUGE)


class CriticTable(Table):
    """The value model of `advantage = "gae"`: the starting model with a scalar head of zeros, trained on the same
    mini-batches as the policy, with an AdamW of its own that has `[update]`'s settings but for these."""

    learning_rate: float = Field(3e-4, gt=0, le=100, description="the critic's learning rate")
    value_clip: float = Field(
        0.5,
        gt=0,
        le=HUGE,
        description="how far from its old value a value may be before the loss clips it (verl: "
        "cliprange_value); a large number: no clip",
    )


class RecordTable(Table):
    """What is recorded beside the always-on metrics."""

    rollouts: Share = Field(0.02, description="share of training prompts whose responses are stored whole")
    detail_every: int = Field(
        5, ge=1, le=MANY, description="steps between records of every response's own numbers (`response_detail`)"
    )
    token_detail: bool = Field(False, description="`response_detail` also holds the log-ratio of every token")


class TuneTable(Table):
    """Every arm chooses some of its settings on trials before the study, by successive halving, all with one budget.

    All candidates train `steps` steps; the best 1 / `eta` of them, rounded up, go on to `eta` times as many, until one
    is left: of five by two, three, two and one.
    The i-th candidate has the i-th value of every list; all lists are equally long.
    """

    seeds: list[int] = Field(min_length=1, description="the trials' seeds, none of them one of the study's")
    steps: int = Field(ge=1, le=10**6, description="steps of the first round")
    eta: int = Field(
        2, ge=2, le=100, description="of so many candidates one goes on, rounded up, to so many times the steps"
    )
    metric: str | None = Field(
        None,
        description="what is compared: a benchmark's score at the round's end, or `reward`, the mean training reward "
        "over the round's last fifth; unset: the primary benchmark",
    )
    values: dict[str, Any] = Field({}, description="dotted setting = its candidates, for every arm")
    arm: dict[str, Any] = Field({}, description="`[tune.arm.NAME]`: the same for one arm, over `values`")


class Settings(Table):
    """Everything that determines one run, but its seed."""

    model: str = Field("tiny-qwen3", description="an embedded model, a local folder or a Hub id")
    task: TaskTable
    steps: int = Field(40, ge=1, le=10**6, description="rollout batches to train on")
    engine: EngineTable = EngineTable()
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="`auto`: CUDA where there is one")
    routing_replay: Replay = Field(
        "none", description="MoE: experts replayed from nowhere, the old policy's forward (R2) or the sampler's (R3)"
    )
    warm_start: WarmStart = WarmStart()
    rollout: RolloutTable = RolloutTable()
    update: UpdateTable = UpdateTable()
    objective: ObjectiveTable
    critic: CriticTable = CriticTable()
    record: RecordTable = RecordTable()
    bench: list[BenchTable] = Field([], description="`[[bench]]`: benchmarks, evaluated as training goes")

    @property
    def embedded(self) -> bool:
        """Whether the model is made here, from a seed; others start from their checkpoint as it is."""
        return self.model.startswith("tiny-")


ARM_KEYS = ("model", "routing_replay", "rollout", "update", "critic", "engine")
"""What an arm may vary beside the objective's own keys; the engine only where that is the study's question."""

STUDY_KEYS = (
    *("question", "seeds", "verdict", "claim", "sweep", "tune", "waive", "launch", "arm", "compares_engines"),
)
"""Top-level keys that belong to the study and to no single run."""
