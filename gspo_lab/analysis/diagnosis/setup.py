"""What a run was made with, as far as its log says: rule, range, mini-batches, aggregation.

Every field is None where nothing tells. Programs name these differently, and some follow from
several keys, so each program has a function here.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from gspo_lab.analysis.diagnosis.log import TrainingLog
from gspo_lab.common.plain_data import (
    JsonMapping,
    OptionalFloat,
    OptionalInt,
    OptionalText,
    table_beside,
)
from gspo_lab.exchange.importers.trl import MODEL_KEYS
from gspo_lab.study.dotted_keys import BAND
from gspo_lab.study.schema import BUILT_IN_MODELS

ANY = "any"
TRAINER = "trainer"
SAMPLER = "sampler"
AGGREGATIONS = {
    "grpo": "seq-mean-token-mean",
    "bnpo": "token-mean",
    "dapo": "token-mean",
    "dr_grpo": "constant",
    "luspo": "seq-mean-token-sum",
}
"""loss_type of TRL with the clip -> its aggregation."""
CLIP = "clip"
VERL_LOSSES = {"vanilla": CLIP, "gspo": CLIP}
"""Losses of verl that clip as the papers do."""
NO_REPLAY = ("none", "disabled", None)
SWIFT = {"rlhf_type", "swift_version", "tuner_type", "memory(GiB)"}
"""Keys and names of ms-swift, which logs as TRL does."""
DENSE = BUILT_IN_MODELS[0]


@dataclass(frozen=True)
class Setup:
    """What a run was made with. None: the log does not say.

    `program` is the name whose keys the advice uses. `level` is "token" or "sequence", `loss` the
    name of a loss, "clip" for the papers'. `updates` are optimizer updates per rollout batch. `old`
    is whose log-probs the old policy's are, "trainer" or "sampler". `replay` is the kind of routing
    replay, "none" for none. `configured`: a configuration was read.
    """

    program: str
    version: OptionalText = None
    level: OptionalText = None
    loss: OptionalText = None
    low: OptionalFloat = None
    high: OptionalFloat = None
    updates: OptionalInt = None
    aggregation: OptionalText = None
    old: OptionalText = None
    corrected: bool | None = None
    staleness: OptionalFloat = None
    replay: OptionalText = None
    dense: bool | None = None
    max_tokens: OptionalInt = None
    configured: bool = False

    @property
    def rule(self) -> OptionalText:
        """The rule by its ratio and loss, in words."""
        if not self.clips:
            return self.loss
        return {"token": "GRPO (token ratio)", "sequence": "GSPO (sequence ratio)"}.get(
            str(self.level)
        )

    @property
    def clips(self) -> bool:
        """Whether its loss clips as GRPO's and GSPO's do, or may do so."""
        return self.loss in (None, CLIP)

    @property
    def widest(self) -> OptionalFloat:
        """The larger side of the range."""
        return max(self.low or 0, self.high or 0) or None

    @property
    def range_text(self) -> OptionalText:
        """The range as text, "?" for a side that is not recorded."""
        texts = ["?" if side is None else f"{side:g}" for side in (self.low, self.high)]
        return " / ".join(texts) if self.widest is not None else None

    def keys(self, *things: str) -> str:
        """The program's keys of these things, in words where it has none."""
        table = table_beside(__file__, "keys.toml")
        keys = table[ANY] | table.get(self.program, {})
        return ", ".join(keys[thing] for thing in things)

    def recorded_by(self, quantity: str) -> str:
        """The setting of the program that records a quantity."""
        if quantity == "settings" and self.configured:
            quantity = "unstated"
        text = self.keys(f"record-{quantity}")
        return text if "logged" in text else f"to record: {text}"


def setup_of(log: TrainingLog) -> Setup:
    """What the log says of its run."""
    get = log.settings.get
    level = get("objective.importance_sampling_level")
    low = get(BAND[0])
    high = get(BAND[1])
    logged_range = log.first_of("ppo_actor/eps_clip")
    if not (low or high) and logged_range is not None:
        low = high = float(f"{logged_range.end:.6g}")
    dense = True if get("model") == DENSE else None
    if log.first_of("expert_change", "router_entropy", "route_gap"):
        dense = False
    minibatches = get("update.minibatches")
    correction = get("objective.mismatch_correction")
    setup = Setup(
        program="ms-swift" if SWIFT & {*log.config, *log.metrics} else log.program,
        version=log.version,
        level="sequence" if level == "sequence-token" else level,
        loss=get("objective.policy_loss"),
        low=low,
        high=high,
        updates=minibatches and minibatches * get("update.epochs", 1),
        aggregation=get("objective.aggregation"),
        old=get("update.old_logprobs"),
        corrected=None if correction is None else correction != "none",
        staleness=get("rollout.staleness"),
        replay=get("routing_replay"),
        max_tokens=get("rollout.max_tokens"),
        dense=dense,
        configured=not log.config.keys() <= set(MODEL_KEYS),
    )
    return PROGRAMS[log.program](setup, log.config) if log.program in PROGRAMS else setup


def _trl(setup: Setup, config: JsonMapping) -> Setup:
    """TRL and ms-swift: the old log-probs are the trainer's, and with one update per generated
    batch the policy's own (grpo_trainer.py: `generate_every`). TRL before 0.16 has no iterations
    and makes one update.
    """
    get = config.get
    loss = get("loss_type", setup.loss)
    accumulation = get("gradient_accumulation_steps")
    iterations = get("num_iterations", 1 if "num_generations" in config else None)
    updates = None
    if accumulation and iterations:
        generation = get("steps_per_generation") or accumulation
        updates = max(1, round(generation * iterations / accumulation))
    vllm = get("use_vllm")
    return replace(
        setup,
        loss=CLIP if loss in AGGREGATIONS else loss,
        aggregation=AGGREGATIONS.get(loss, setup.aggregation),
        high=setup.high or get("epsilon"),
        updates=updates,
        old=TRAINER if iterations else setup.old,
        corrected=vllm and bool(get("vllm_importance_sampling_correction")),
        replay=get("router_replay_mode", setup.replay),
    )


def _verl(setup: Setup, config: JsonMapping) -> Setup:
    """verl: GSPO's loss has one aggregation, whatever `loss_agg_mode` says (core_algos.py). A
    version without `bypass_mode` recomputes the old log-probs.
    """
    get = config.get
    mode = get("actor_rollout_ref.actor.policy_loss.loss_mode")
    batch = get("data.train_batch_size")
    minibatch = get("actor_rollout_ref.actor.ppo_mini_batch_size")
    updates = setup.updates
    if batch and minibatch:
        epochs = get("actor_rollout_ref.actor.ppo_epochs", 1)
        updates = max(1, round(batch / minibatch)) * epochs
    bypass = get("algorithm.rollout_correction.bypass_mode", False if minibatch else None)
    if bypass is not None:
        corrected = bool(get("algorithm.rollout_correction.rollout_is"))
        setup = replace(setup, old=SAMPLER if bypass else TRAINER, corrected=corrected)
    return replace(
        setup,
        updates=updates,
        replay=get("actor_rollout_ref.actor.router_replay.mode", setup.replay),
        staleness=get("async_training.staleness_threshold"),
        loss=VERL_LOSSES.get(str(mode), mode),
        aggregation="seq-mean-token-mean" if mode == "gspo" else setup.aggregation,
    )


def _areal(setup: Setup, config: JsonMapping) -> Setup:
    """AReaL: its loss is a mean over tokens (areal/utils/functional). Without `recompute_logprob`
    and decoupled loss the old log-probs are the sampler's.
    """
    get = config.get
    recompute = get("actor.recompute_logprob")
    decoupled = get("actor.use_decoupled_loss")
    if recompute is not None or decoupled is not None:
        old = TRAINER if recompute or decoupled else SAMPLER
        setup = replace(setup, old=old, corrected=bool(decoupled))
    return replace(
        setup,
        loss="sapo" if get("actor.use_sapo_loss") else setup.loss,
        aggregation="token-mean",
        high=get("actor.eps_clip_higher") or setup.high,
        staleness=get("rollout.max_head_offpolicyness"),
    )


PROGRAMS: dict[str, Callable[[Setup, JsonMapping], Setup]] = {
    "trl": _trl,
    "verl": _verl,
    "areal": _areal,
}
