"""What a run was made with, as far as its log says: rule, range, mini-batches, aggregation.

Every field is None where nothing tells. Programs name these differently, and some follow from
several keys, so each program has a function here.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from gspo_lab.analysis.diagnosis.log import TrainingLog

KEYS = Path(__file__).with_name("keys.toml")
ANY = "any"
TRAINER = "trainer"
SAMPLER = "sampler"
TRL_AGGREGATIONS = {
    "grpo": "seq-mean-token-mean",
    "bnpo": "token-mean",
    "dapo": "token-mean",
    "dr_grpo": "constant",
    "luspo": "seq-mean-token-sum",
}
OTHER_TRL_LOSSES = ("cispo", "sapo", "vespo")
"""Losses of TRL without the clip."""
VERL_LOSSES = {"vanilla": "clip", "gspo": "clip"}
"""Losses of verl that clip as the papers do."""
NO_REPLAY = ("none", "disabled", "", None)
DENSE_MODELS = ("tiny-qwen3",)


@dataclass(frozen=True)
class Setup:
    """What a run was made with. None: the log does not say.

    `program` is the name whose keys the advice uses. `level` is "token" or "sequence", `loss` the
    name of a loss, "clip" for the papers'. `updates` are optimizer updates per rollout batch. `old`
    is whose log-probs the old policy's are, "trainer" or "sampler". `replay` is the kind of routing
    replay, "none" for none.
    """

    program: str
    version: str | None = None
    model: str | None = None
    level: str | None = None
    loss: str | None = None
    clip_low: float | None = None
    clip_high: float | None = None
    updates: int | None = None
    aggregation: str | None = None
    old: str | None = None
    corrected: bool | None = None
    staleness: float | None = None
    replay: str | None = None
    dense: bool | None = None
    max_tokens: int | None = None

    @property
    def rule(self) -> str | None:
        """The rule by its ratio and loss, in words."""
        if self.loss not in (None, "clip"):
            return self.loss
        return {"token": "GRPO", "sequence": "GSPO"}.get(self.level or "")

    @property
    def clips(self) -> bool:
        """Whether its loss clips as GRPO's and GSPO's do, or may do so."""
        return self.loss in (None, "clip")

    @property
    def widest(self) -> float | None:
        """The larger side of the range."""
        sides = [side for side in (self.clip_low, self.clip_high) if side is not None]
        return max(sides, default=None)

    def key(self, thing: str) -> str:
        """The program's key of a thing, in words where it has none."""
        table = key_tables()
        name = table.get(self.program, {}).get(thing)
        return name or table[ANY][thing]

    def recorded_by(self, quantity: str) -> str:
        """The setting of the program that records a quantity."""
        table = key_tables()
        name = table.get(self.program, {}).get("record", {}).get(quantity)
        return name or table[ANY]["record"][quantity]


@cache
def key_tables() -> dict[str, Any]:
    """The content of `keys.toml`."""
    return tomllib.loads(KEYS.read_text(encoding="utf-8"))


def setup_of(log: TrainingLog) -> Setup:
    """What the log says of its run."""
    settings = log.settings
    level = settings.get("objective.importance_sampling_level")
    setup = Setup(
        program=log.program,
        version=log.version,
        model=settings.get("model"),
        level="sequence" if level == "sequence-token" else level,
        clip_low=settings.get("objective.clip_low"),
        clip_high=settings.get("objective.clip_high"),
        aggregation=settings.get("objective.aggregation"),
        loss=settings.get("objective.policy_loss"),
        old=settings.get("update.old_logprobs"),
        replay=settings.get("routing_replay"),
        max_tokens=settings.get("rollout.max_tokens"),
        dense=_is_dense(log, settings.get("model")),
    )
    if setup.program in PROGRAMS:
        setup = PROGRAMS[setup.program](setup, log.config)
    return _from_numbers(setup, log)


def _is_dense(log: TrainingLog, model: Any) -> bool | None:
    """Whether the model has no experts; None if unknown."""
    if log.named("expert_change", "router_entropy", "route_gap"):
        return False
    if model in DENSE_MODELS:
        return True
    experts = [key for key in log.config if key.endswith(("num_experts", "num_local_experts"))]
    return False if any(log.config[key] for key in experts) else None


def _from_numbers(setup: Setup, log: TrainingLog) -> Setup:
    """The setup with what the log's numbers tell: AReaL logs its range."""
    logged_range = log.named("ppo_actor/eps_clip")
    if setup.widest is None and logged_range is not None:
        bound = float(f"{logged_range.mean:.6g}")
        setup = replace(setup, clip_low=bound, clip_high=bound)
    return setup


def _trl(setup: Setup, config: Mapping[str, Any]) -> Setup:
    """TRL and ms-swift: with one update per generated batch the old log-probs are the policy's own.

    TRL 1.9, grpo_trainer.py: `generate_every` against `gradient_accumulation_steps`.
    """
    program = "ms-swift" if {"rlhf_type", "swift_version", "tuner_type"} & config.keys() else "trl"
    loss = config.get("loss_type")
    setup = replace(
        setup,
        program=program,
        aggregation=TRL_AGGREGATIONS.get(str(loss), setup.aggregation),
        updates=_trl_updates(config),
        replay=config.get("router_replay_mode", setup.replay),
    )
    if loss is not None:
        setup = replace(setup, loss=loss if loss in OTHER_TRL_LOSSES else "clip")
    if config.get("epsilon") is not None and config.get("epsilon_high") is None:
        setup = replace(setup, clip_high=config["epsilon"])
    if "use_vllm" in config:
        corrected = bool(config.get("vllm_importance_sampling_correction"))
        setup = replace(setup, old=TRAINER, corrected=corrected and bool(config["use_vllm"]))
    return setup


def _trl_updates(config: Mapping[str, Any]) -> int | None:
    accumulation = config.get("gradient_accumulation_steps")
    iterations = config.get("num_iterations")
    if accumulation is None or iterations is None:
        return None
    generation = config.get("steps_per_generation") or accumulation
    return max(1, round(generation * iterations / accumulation))


def _verl(setup: Setup, config: Mapping[str, Any]) -> Setup:
    """verl: GSPO's loss has one aggregation, whatever `loss_agg_mode` says (core_algos.py)."""
    actor = "actor_rollout_ref.actor."
    mode = config.get(f"{actor}policy_loss.loss_mode")
    correction = "algorithm.rollout_correction."
    batch = config.get("data.train_batch_size")
    minibatch = config.get(f"{actor}ppo_mini_batch_size")
    updates = None
    if batch and minibatch:
        updates = max(1, round(batch / minibatch)) * int(config.get(f"{actor}ppo_epochs", 1))
    bypass = config.get(f"{correction}bypass_mode")
    old = setup.old
    if bypass is not None:
        old = SAMPLER if bypass else TRAINER
    setup = replace(
        setup,
        updates=updates,
        old=old,
        corrected=bool(config.get(f"{correction}rollout_is")) if bypass is not None else None,
        replay=config.get(f"{actor}router_replay.mode", setup.replay),
        staleness=config.get("async_training.staleness_threshold"),
    )
    if mode is not None:
        setup = replace(setup, loss=VERL_LOSSES.get(mode, mode))
    if mode == "gspo":
        setup = replace(setup, aggregation="seq-mean-token-mean")
    return setup


def _areal(setup: Setup, config: Mapping[str, Any]) -> Setup:
    """AReaL: without `recompute_logprob` and decoupled loss the old log-probs are the sampler's."""
    recompute = config.get("actor.recompute_logprob")
    decoupled = config.get("actor.use_decoupled_loss")
    old = setup.old
    if recompute is not None or decoupled is not None:
        old = TRAINER if recompute or decoupled else SAMPLER
    higher = config.get("actor.eps_clip_higher")
    loss = "sapo" if config.get("actor.use_sapo_loss") else setup.loss
    return replace(
        setup,
        updates=config.get("actor.ppo_n_minibatches"),
        old=old,
        corrected=decoupled,
        loss=loss,
        clip_high=higher if higher is not None else setup.clip_high,
        staleness=config.get("rollout.max_head_offpolicyness"),
        max_tokens=config.get("gconfig.max_new_tokens"),
    )


def _own(setup: Setup, config: Mapping[str, Any]) -> Setup:
    minibatches = config.get("update.minibatches")
    epochs = config.get("update.epochs")
    correction = config.get("objective.mismatch_correction")
    return replace(
        setup,
        level={"sequence-token": "sequence"}.get(
            str(config.get("objective.importance_sampling_level")),
            config.get("objective.importance_sampling_level"),
        ),
        loss=config.get("objective.policy_loss"),
        aggregation=config.get("objective.aggregation"),
        updates=minibatches * epochs if minibatches and epochs else None,
        old=config.get("update.old_logprobs"),
        corrected=None if correction is None else correction != "none",
        staleness=config.get("rollout.staleness"),
        replay=config.get("routing_replay"),
        max_tokens=config.get("rollout.max_tokens"),
        dense=config.get("model") in DENSE_MODELS or setup.dense,
    )


PROGRAMS: dict[str, Callable[[Setup, Mapping[str, Any]], Setup]] = {
    "trl": _trl,
    "verl": _verl,
    "areal": _areal,
    "gspo-lab": _own,
}
