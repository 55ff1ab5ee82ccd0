"""The TOML of a study: every key of a run with its default, its meaning and its properties
(`keys.Key`).

docs/reference/study-keys.md is made from it. What judges a study is in verdict_tables.py, and
what its models start from in start_tables.py.
"""

import math
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from gspo_lab.common.keys import (
    COLDEST,
    HUGE,
    Count,
    Dtype,
    Key,
    Name,
    Read,
    Replay,
    Share,
    Table,
    Text,
    Whole,
    keys,
)
from gspo_lab.common.plain_data import JsonMapping, JsonObject, OptionalText
from gspo_lab.study.dotted_keys import flat
from gspo_lab.study.start_tables import UpcycleTable, WarmStart
from gspo_lab.study.verdict_tables import in_last_fifth
from gspo_lab.training.objectives.losses import traits
from gspo_lab.training.objectives.presets import Objective
from gspo_lab.training.objectives.settings import BY_CRITIC

ALL = "trl verl areal"
BUILT_IN_MODELS = ("tiny-qwen3", "tiny-qwen3-moe", "tiny-qwen3-moe-fresh", "tiny-olmoe")
"""The models that are made here (`training.models.check.EMBEDDED` describes them)."""


class TaskTable(BaseModel):
    """The task's name and its own options; `task = "addition"` gives the name alone."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = Field(description="a built-in task, or `my_file.py:grade`")

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, data: Any) -> Any:
        return {"name": data} if isinstance(data, str) else data

    @property
    def options(self) -> JsonObject:
        """The keys beside the known ones."""
        return dict(self.model_extra or {})


class EngineTable(Table):
    """Who trains; `engine = "native"` gives the name alone."""

    name: str = Field(
        "native",
        description="`native`, `trl`, `verl`, `areal`, or `module:attribute`, `file.py:attribute`",
    )
    options: JsonObject = Field({}, description="the engine's own options")

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, data: Any) -> Any:
        return {"name": data} if isinstance(data, str) else data

    @model_serializer(mode="wrap")
    def _name_where_no_options(self, table: SerializerFunctionWrapHandler) -> Any:
        return table(self) if self.options else self.name


RATE = "update.learning_rate"
"""The setting of examples, and the one that most directly makes runs stable or unstable."""


class RolloutTable(Table):
    """How each step's responses are sampled."""

    prompts_per_step: Annotated[
        int, Key(cost=True, peers="trl verl=data.train_batch_size areal")
    ] = Field(32, ge=1, le=10**6, description="prompts in a rollout batch")
    group_size: Annotated[
        int,
        Key(
            cost=True,
            peers="trl=num_generations verl=actor_rollout_ref.rollout.n areal=gconfig.n_samples",
        ),
    ] = Field(
        8,
        ge=1,
        le=10**6,
        description="responses per prompt; 1 only with advantage = 'gae' or 'batch-mean-std'",
    )
    temperature: Annotated[
        float,
        Key(
            arms="choose",
            peers=(
                "trl=temperature verl=actor_rollout_ref.rollout.temperature"
                " areal=gconfig.temperature"
            ),
        ),
    ] = Field(
        1.0,
        ge=COLDEST,
        le=1e3,
        description="sampling temperature; the trainer divides its logits by it, too",
    )
    top_p: Annotated[
        float, Key(arms="choose", peers="trl=top_p verl=actor_rollout_ref.rollout.top_p areal")
    ] = Field(
        1.0,
        gt=0,
        le=1,
        description="nucleus sampling; below 1 not with old_logprobs = 'sampler'",
    )
    max_tokens: Annotated[
        Count | None,
        Key(cost=True, peers="trl=max_completion_length verl=data.max_response_length areal"),
    ] = Field(None, description="token limit of a response; unset: the task's")
    stop: Annotated[list[Text] | None, Key(peers=ALL)] = Field(
        None, description="texts that end a response; unset: the task's"
    )
    sampler: Annotated[str, Key(cost=True, peers="trl")] = Field(
        "transformers",
        description="`transformers`, `vllm`, `module:attribute` or `file.py:attribute`",
    )
    dtype: Annotated[Dtype, Key(cost=True, peers=ALL)] = Field(
        "float32", description="precision of the sampler's weights and arithmetic"
    )
    batch_invariant: Annotated[
        bool,
        Key(
            Read(lambda run: run.rollout.sampler == "vllm", "with sampler = '{0.rollout.sampler}'"),
        ),
    ] = Field(
        False,
        description=(
            "`vllm` on a GPU: a response does not depend on what is drawn beside it"
            " (VLLM_BATCH_INVARIANT)"
        ),
    )
    float32_head: Annotated[
        bool,
        Key(
            Read(lambda run: run.rollout.dtype != "float32", "with rollout.dtype = 'float32'"),
            cost=True,
        ),
    ] = Field(
        False,
        description="`transformers`: logits in float32, whatever `dtype` (2510.13786)",
    )
    at_a_time: Annotated[Count, Key(peers="trl")] = Field(
        512, description="responses drawn at a time; limits the sampler's memory"
    )
    # The first responses are drawn from the starting weights whatever its value.
    staleness: Annotated[Whole, Key(affects="update")] = Field(
        0,
        description=(
            "by how many rollout batches the sampling weights are older than the trained ones;"
            " benchmarks use the newest"
        ),
    )
    tokens_per_step: Annotated[
        Count | None,
        Key(
            Read(
                lambda run: (
                    (run.rollout.tokens_per_step or math.inf) < (run.rollout.max_tokens or math.inf)
                ),
                "where it is rollout.max_tokens or more",
            ),
            cost=True,
        ),
    ] = Field(
        None,
        description=(
            "new tokens of a response per step; it continues under the next weights, and its"
            " group trains when complete. Unset: no limit"
        ),
    )
    dynamic_sampling: Annotated[int, Key(cost=True)] = Field(
        0,
        ge=0,
        le=1000,
        description=(
            "rounds of prompts per step (DAPO): groups with equal rewards are dropped and"
            " replaced by other prompts; 0: every group trains"
        ),
    )
    overlong_buffer: Count | None = Field(
        None,
        description=(
            "tokens before the limit over which a response's reward falls linearly, by"
            " `overlong_penalty` in all (DAPO); unset: none"
        ),
    )
    overlong_penalty: Annotated[
        float,
        Key(Read(lambda run: run.rollout.overlong_buffer is not None, "without overlong_buffer")),
    ] = Field(
        1.0,
        gt=0,
        le=HUGE,
        description="reward that a response at the token limit loses",
    )
    thinking: Annotated[bool | None, Key(peers="trl")] = Field(
        None,
        description=(
            "whether the model thinks before it answers, for chat templates with"
            " `enable_thinking`; unset: the template's default"
        ),
    )
    max_grader_errors: Annotated[Share, Key(peers=ALL)] = Field(
        0.5,
        description=(
            "a run stops if the grader fails on a larger share of a step's responses; below,"
            " these train with reward 0"
        ),
    )
    coupled: Annotated[bool, Key(peers=ALL)] = Field(
        True,
        description="arms share random numbers per (seed, step, prompt, sample, position)",
    )

    @property
    def varying(self) -> bool:
        """Whether the groups that a step trains on follow from what was sampled: they wait, or some
        are dropped.
        """
        return self.tokens_per_step is not None or self.dynamic_sampling > 0


class UpdateTable(Table):
    """How the policy is updated on a rollout batch."""

    minibatches: Annotated[
        Count,
        Key(cost=True, adds_forward_passes=True, peers="trl verl areal=actor.ppo_n_minibatches"),
    ] = Field(4, description="mini-batches per rollout batch, with one optimizer update each")
    epochs: Annotated[
        Count,
        Key(
            cost=True,
            adds_forward_passes=True,
            peers="trl=num_iterations verl=actor_rollout_ref.actor.ppo_epochs",
        ),
    ] = Field(1, description="passes over a rollout batch")
    learning_rate: Annotated[
        float,
        Key(
            peers="trl=learning_rate verl=actor_rollout_ref.actor.optim.lr areal=actor.optimizer.lr"
        ),
    ] = Field(1e-4, gt=0, le=100, description="AdamW's learning rate")
    warmup_updates: Annotated[Whole, Key(peers=ALL)] = Field(
        8, description="updates over which the learning rate rises linearly"
    )
    adam_beta1: Annotated[float, Key(peers="trl=adam_beta1 verl areal")] = Field(
        0.9, ge=0, lt=1, description="AdamW's first decay"
    )
    adam_beta2: Annotated[float, Key(peers="trl=adam_beta2 verl areal")] = Field(
        0.95, ge=0, lt=1, description="AdamW's second decay"
    )
    weight_decay: Annotated[float, Key(peers="trl=weight_decay verl areal")] = Field(
        0.0, ge=0, le=100, description="AdamW's weight decay"
    )
    max_grad_norm: Annotated[float, Key(peers="trl=max_grad_norm verl areal")] = Field(
        1.0, gt=0, le=1e30, description="gradients are clipped to this L2 norm"
    )
    microbatch_tokens: Annotated[Count, Key(peers="verl areal")] = Field(
        16384,
        description="positions (rows x padded length) per forward pass; never changes the gradient",
    )
    skip_zero_advantage: Annotated[
        bool,
        Key(
            Read(
                lambda run: not run.objective.regularised,
                "with kl_coef > 0 or entropy_coef > 0: all responses train",
            ),
            cost=True,
            adds_forward_passes=True,
            peers="trl",
        ),
    ] = Field(
        True,
        description=(
            "skip the passes of responses with A = 0, whose gradient is 0; ratio metrics then"
            " cover the others"
        ),
    )
    old_logprobs: Annotated[
        Literal["trainer", "sampler"], Key(cost=True, adds_forward_passes=True)
    ] = Field("trainer", description="whose log-probs of the old policy the ratio uses")
    # Adapters are small beside what they stand at, at any rank.
    lora_rank: Annotated[
        Whole, Key(cost=True, adds_forward_passes=True, expensive_values=bool, peers="trl")
    ] = Field(
        0,
        description="rank of trained adapters beside frozen linear layers; 0: train all weights",
    )
    lora_alpha: Annotated[
        Count, Key(Read(lambda run: run.update.lora_rank > 0, "with lora_rank = 0"), peers="trl")
    ] = Field(32, description="adapters are scaled by lora_alpha / lora_rank")
    optimizer: Annotated[Literal["adamw", "adamw-8bit"], Key(peers="trl")] = Field(
        "adamw", description="`adamw-8bit`: moments in 8 bits (bitsandbytes, on a GPU)"
    )
    gradient_checkpointing: Annotated[bool, Key(cost=True, peers=ALL)] = Field(
        False, description="recompute activations in the backward pass: less memory, more time"
    )
    dtype: Annotated[Dtype, Key(cost=True, peers=ALL)] = Field(
        "float32",
        description=(
            "precision of the arithmetic and of weights frozen beside adapters; trained weights"
            " stay float32, `float16` scales the loss (2510.26788)"
        ),
    )
    float32_head: Annotated[
        bool,
        Key(
            Read(lambda run: run.update.dtype != "float32", "with update.dtype = 'float32'"),
            cost=True,
        ),
    ] = Field(
        False,
        description="logits in float32, whatever `dtype` (2510.13786)",
    )
    checkpoint_every: Annotated[Count, Key(peers=ALL)] = Field(
        10, description="steps between checkpoints; a stopped run resumes from the last"
    )

    @property
    def per_rollout_batch(self) -> int:
        """Optimizer updates on one rollout batch."""
        return self.minibatches * self.epochs

    @property
    def adamw(self) -> JsonObject:
        """AdamW's own arguments, with the full learning rate."""
        betas = [self.adam_beta1, self.adam_beta2]
        return {"lr": self.learning_rate, "betas": betas, "weight_decay": self.weight_decay}

    def warmup_factor(self, number: int) -> float:
        """The share of the learning rate that update `number`, from 0, has."""
        return min(1.0, (number + 1) / max(self.warmup_updates, 1))

    def rate(self, number: int) -> float:
        """The learning rate of update `number`, from 0."""
        return self.learning_rate * self.warmup_factor(number)

    @property
    def first_settled(self) -> int:
        """The first step whose updates all have the full learning rate, if each step makes as many.

        Update n (from 0) has (n + 1) / warmup_updates of it. Where groups vary, `first_settled` in
        analysis/readings/ reads it off a run's record."""
        return -(-max(self.warmup_updates - 1, 0) // self.per_rollout_batch)


class CriticTable(Table):
    """The value model of `advantage = "gae"`: the starting model with a scalar head of zeros.

    It trains on the policy's mini-batches. Its AdamW has the settings of `[update]` except these.
    """

    learning_rate: float = Field(3e-4, gt=0, le=100, description="the critic's learning rate")
    value_clip: float = Field(
        0.5,
        gt=0,
        le=HUGE,
        description=(
            "how far a value may move from its old value before the loss clips it; a large"
            " number: no clip"
        ),
    )


class RecordTable(Table):
    """What is recorded beside the metrics that are always on."""

    rollouts: Share = Field(
        0.02, description="share of training prompts whose responses are stored"
    )
    detail_every: Count = Field(
        5,
        description="steps between records of `response_detail`, `relative_update_norm` and"
        " `kl_to_start`",
    )
    kl_to_start: bool | None = Field(
        None,
        description="record it, which keeps the starting weights in memory; unset: for built-in"
        " models",
    )
    token_detail: bool = Field(
        False, description="`response_detail` also has every token's log-ratio"
    )


class BenchTable(Table):
    """A benchmark: a task's held-out problems and how they are sampled."""

    name: Name = Field(description="its name in records and reports")
    task: TaskTable | None = Field(
        None, description="the task asked and graded; unset: the study's"
    )
    problems: Count | None = Field(
        None, description="how many held-out problems, from the first; unset: all"
    )
    samples: int = Field(
        1, ge=1, le=10**6, description="answers per problem; the score is their mean (avg@k)"
    )
    temperature: float = Field(1.0, ge=0, le=1e3, description="sampling temperature; 0: greedy")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus sampling")
    max_tokens: Count | None = Field(None, description="token limit; unset: the task's")
    every: Count = Field(
        10, description="steps between evaluations; start and end are always evaluated"
    )
    decisive_samples: int | None = Field(
        None,
        ge=1,
        le=10**6,
        description="answers per problem at the evaluations of the final score; unset: `samples`",
    )
    decisive_evaluations: Count | None = Field(
        None,
        description="how many last evaluations those are; unset: `verdict.last`",
    )

    def moments(self, steps: int) -> list[int]:
        """After how many of a run's `steps` it is asked: at the start, every `every` steps, and at
        the end.
        """
        return sorted({0, *range(self.every, steps + 1, self.every), steps})

    def samples_at(self, step: int, steps: int) -> int:
        """Answers per problem after `step` of a run's `steps`; the start never decides."""
        if self.decisive_samples is None or step == 0:
            return self.samples
        if self.decisive_evaluations is None:
            return self.decisive_samples if in_last_fifth(step, steps) else self.samples
        later = sum(moment > step for moment in self.moments(steps))
        return self.decisive_samples if later < self.decisive_evaluations else self.samples

    @staticmethod
    def with_decisive(benches: Any, last: int | None) -> Any:
        """A study's tables; those with `decisive_samples` also get the number of decisive
        evaluations.

        A run needs it, because it does not know the verdict's rule.
        """
        for table in benches if isinstance(benches, list) else ():
            if isinstance(table, dict) and "decisive_samples" in table:
                table.setdefault("decisive_evaluations", last)
        return benches


class Settings(Table):
    """Everything that determines one run except its seed."""

    model: Annotated[
        str,
        Key(
            arms="vary",
            affects="start",
            cost=True,
            peers="trl=model_name_or_path verl=actor_rollout_ref.model.path areal=actor.path",
        ),
    ] = Field(
        "tiny-qwen3",
        description=(
            "a built-in model, a folder (its path starts at the study's file), a Hub id, or"
            " `upcycled:MODEL`, a mixture made of a dense model"
        ),
    )
    upcycle: Annotated[
        UpcycleTable,
        Key(
            Read(lambda run: run.upcycled is not None, "without model = 'upcycled:MODEL'"),
            arms="vary",
            affects="start",
            cost=True,
            peers=ALL,
        ),
    ] = UpcycleTable()
    task: Annotated[TaskTable, Key(affects="start", cost=True)]
    steps: Annotated[int, Key(peers=ALL)] = Field(40, ge=1, le=10**6, description="rollout batches")
    engine: Annotated[EngineTable, Key(arms="vary", cost=True, adds_forward_passes=True)] = (
        EngineTable()
    )
    device: Annotated[str, Key(cost=True, anywhere=True, peers=ALL)] = Field(
        "auto",
        pattern=r"^[a-z][a-z0-9_]*(:[0-9]{1,3})?$",
        description=(
            "`auto` (CUDA if there is a GPU), `cpu`, `cuda`, `cuda:1`, `xpu` or another torch"
            " device; other engines: the first three"
        ),
    )
    routing_replay: Annotated[
        Replay, Key(arms="choose", cost=True, adds_forward_passes=True, peers="trl verl")
    ] = Field(
        "none",
        description="MoE: replay the experts of the old policy's forward pass (R2) or sampler (R3)",
    )
    warm_start: Annotated[WarmStart, Key(affects="start", peers=ALL)] = WarmStart()
    rollout: Annotated[RolloutTable, Key(arms="vary", affects="sampling")] = RolloutTable()
    update: Annotated[UpdateTable, Key(arms="choose")] = UpdateTable()
    objective: Annotated[Objective, Key(arms="choose")] = Objective()
    critic: Annotated[CriticTable, Key(BY_CRITIC, arms="vary", peers="verl")] = CriticTable()
    record: Annotated[RecordTable, Key(peers=ALL)] = RecordTable()
    bench: Annotated[list[BenchTable], Key(peers=ALL)] = Field(
        [], description="`[[bench]]`: benchmarks, evaluated as training goes"
    )

    @property
    def critic_update(self) -> UpdateTable:
        """How the critic is updated: as the policy, at a learning rate of its own."""
        return self.update.model_copy(update={"learning_rate": self.critic.learning_rate})

    @property
    def embedded(self) -> bool:
        """Whether the model is made here, from a seed; others start from their checkpoint."""
        return self.model in BUILT_IN_MODELS

    @property
    def upcycled(self) -> OptionalText:
        """MODEL of `model = "upcycled:MODEL"`; None for a model as it is."""
        prefix, _, dense = self.model.partition(":")
        return dense if prefix == "upcycled" else None


KEYS = keys(Settings)
"""Every key of a run by its dotted name."""

ARM_KEYS = tuple(
    key for key in Settings.model_fields if KEYS[key].arms != "study" and key != "objective"
)
"""What an arm may vary beside the objective's own keys; the engine only where that is the study's
question.
"""

STUDY_KEYS = (
    "question",
    "seeds",
    "verdict",
    "claim",
    "sweep",
    "tune",
    "waive",
    "launch",
    "arm",
    "compares_engines",
)
"""Top-level keys that belong to the study and to no single run."""


def unread(key: str, run: Settings) -> OptionalText:
    """Why a run with these settings does not read `key`, as half a sentence behind it; None where
    it does.

    Arms that differ only in such keys would be the same run twice (`rules`). A written value
    without effect is a mistake (`lints`)."""
    read = KEYS[key].read if key in KEYS else None
    return None if read is None or read.holds(run) else f"does nothing {read.otherwise.format(run)}"


def cost(settings: JsonMapping) -> JsonObject:
    """Per key that a step's time depends on what counts of its value; runs that are equal in all
    cost alike.

    `settings` are nested plain data; a key that an imported run lacks is None or what does not
    matter. Candidates of `[tune]` may not differ in the keys that have dear
    values, each a further pass through a whole model; what the others cost, replay or a part of the
    old policy's pass, is small."""
    # Of a table of options the whole counts: it has no value of its own among dotted keys.
    values = {**flat(settings), **{key: settings.get(key) for key in ("task", "engine")}}
    return {
        name: key.expensive_values(values.get(name)) if key.expensive_values else values.get(name)
        for name, key in KEYS.items()
        if key.cost
    }


def obeyed(engine: str) -> tuple[str, ...]:
    """The keys and tables that an engine obeys, as their `peers` say."""
    return tuple(name for name, key in KEYS.items() if engine in key.names)


def clips_at_1(settings: JsonMapping) -> bool:
    """Whether the loss of an arm, by its flat settings, takes tokens' gradient where all ratios are
    1, too.
    """
    return traits(settings.get("objective.policy_loss") or "clip").clips_at_1
