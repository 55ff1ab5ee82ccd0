"""The orthogonal settings of a policy-gradient objective, each a TOML key of `[objective]` and of
an arm.

A policy loss that has settings of its own declares them in its file (`losses/`);
`presets.Objective` has them all.
"""

from typing import Annotated, Literal

from pydantic import Field

from gspo_lab.common.keys import HUGE, Key, Read, Table
from gspo_lab.common.plain_data import Interval, JsonObject, OptionalFloat
from gspo_lab.training.objectives.ratios import Level

Aggregation = Literal["seq-mean-token-mean", "token-mean", "seq-mean-token-sum", "constant"]
Advantage = Literal[
    "group-mean-std", "group-mean", "leave-one-out", "batch-std", "batch-mean-std", "gae", "gdpo"
]
SequenceAdvantage = Literal["mean", "sum"]
TurnCredit = Literal["response", "turn"]
Clip = Literal["fixed", "calibrated"]
Truncated = Literal["train", "mask", "drop"]
KlEstimate = Literal["k3", "unbiased"]
Correction = Literal["none", "tis", "icepop", "sequence-mask", "geometric-mask"]

BY_CRITIC = Read(lambda run: run.objective.advantage == "gae", "without advantage = 'gae'")
RANGED = Read(
    lambda run: run.objective.loss.reads_range, "with policy_loss = '{0.objective.policy_loss}'"
)
CORRECTED = Key(
    read=Read(
        lambda run: run.objective.mismatch_correction != "none", "without mismatch_correction"
    )
)
CLIP_RANGE = ("clip_low", "clip_high")
"""The keys of the range's two ends."""
CLIP_KEYS = " and ".join(CLIP_RANGE)


class Common(Table):
    """The keys that every policy loss may read (docs/reference/objectives.md has the formulas)."""

    preset: Annotated[str, Key(affects="ratio", arms="vary")] = Field(
        "grpo", description="the preset that gives the other keys their values"
    )
    importance_sampling_level: Annotated[
        Level,
        Key(
            affects="ratio",
            peers="trl=importance_sampling_level verl areal=actor.importance_sampling_level",
        ),
    ] = Field("token", description="one importance ratio per token, per response, or GSPO-token's")
    policy_loss: str = "clip"  # presets.Objective knows the names
    loss_options: Annotated[
        JsonObject,
        Key(
            Read(lambda run: not run.objective.loss.source, "without a policy_loss of your own"),
            arms="vary",
        ),
    ] = Field({}, description="the settings of a `file.py:LOSS`")
    clip: Annotated[Clip, Key(affects="ratio", peers="trl verl")] = Field(
        "fixed",
        description="'calibrated': a pilot finds clip_low and clip_high before the first step",
    )
    clip_low: Annotated[
        float,
        Key(
            RANGED,
            affects="ratio",
            peers="trl=epsilon verl=actor_rollout_ref.actor.clip_ratio_low areal=actor.eps_clip",
        ),
    ] = Field(0.2, gt=0, le=1, description="the ratio is clipped at 1 - clip_low")
    clip_high: Annotated[
        float,
        Key(
            RANGED,
            affects="ratio",
            peers="trl=epsilon_high verl=actor_rollout_ref.actor.clip_ratio_high areal",
        ),
    ] = Field(0.27, gt=0, le=HUGE, description="the ratio is clipped at 1 + clip_high")
    clip_target: Annotated[
        float,
        Key(
            Read(lambda run: run.objective.clip != "fixed", "with clip = 'fixed'"),
            affects="ratio",
            peers="trl verl",
        ),
    ] = Field(
        0.15,
        gt=0,
        lt=1,
        description="share of active tokens (level token) or responses to clip after mini-batch 0",
    )
    dual_clip: Annotated[OptionalFloat, Key(affects="ratio", peers="verl areal")] = Field(
        None,
        gt=1,
        le=HUGE,
        description="caps the ratio at this value (> 1) where A < 0; unset: no cap",
    )
    aggregation: Annotated[
        Aggregation, Key(peers="verl=actor_rollout_ref.actor.loss_agg_mode areal")
    ] = Field("seq-mean-token-mean", description="how token terms become one loss")
    aggregation_constant: Annotated[
        float,
        Key(
            Read(
                lambda run: run.objective.aggregation == "constant",
                "without aggregation = 'constant'",
            )
        ),
    ] = Field(
        1024.0, gt=0, le=HUGE, description="the sum of token terms is divided by responses x this"
    )
    advantage: Annotated[
        Advantage,
        Key(
            cost=True,
            adds_forward_passes=True,
            expensive_values=lambda value: value == "gae",
            peers="trl verl areal",
        ),
    ] = Field(
        "group-mean-std",
        description=(
            "how rewards become advantages; 'gae': by token, with a critic; 'gdpo': from rewards"
            " by name"
        ),
    )
    reward_weights: Annotated[
        dict[str, float],
        Key(
            Read(lambda run: run.objective.advantage == "gdpo", "without advantage = 'gdpo'"),
            arms="vary",
        ),
    ] = Field(
        {},
        description="weights of rewards by name; others have 1",
    )
    truncated: Annotated[Truncated, Key()] = Field(
        "train",
        description=(
            "responses cut at the token limit: train them, mask their terms, or drop them from"
            " the denominator too; their rewards stay in their groups"
        ),
    )
    turn_credit: TurnCredit = Field(
        "response",
        description=(
            "tasks of several turns: a turn has its response's advantage, or one from the rewards"
            " of that turn and later ones"
        ),
    )
    gamma: Annotated[float, Key(BY_CRITIC, peers="verl")] = Field(
        1.0, ge=0, le=1, description="discount from token to token"
    )
    gae_lambda: Annotated[float, Key(BY_CRITIC, peers="verl")] = Field(
        1.0, ge=0, le=1, description="1 trusts the rewards, 0 the critic's next value"
    )
    whiten_advantages: Annotated[bool, Key(BY_CRITIC)] = Field(
        True, description="(A - mean) / std over the rollout batch's tokens"
    )
    sequence_advantage: Annotated[
        SequenceAdvantage,
        Key(
            Read(
                lambda run: (
                    BY_CRITIC.holds(run) and run.objective.importance_sampling_level == "sequence"
                ),
                "without advantage = 'gae' and importance_sampling_level = 'sequence'",
            )
        ),
    ] = Field("mean", description="how a response's advantage follows from its tokens'")
    # The starting model's pass is made whatever the weight.
    kl_coef: Annotated[float, Key(cost=True, adds_forward_passes=True, expensive_values=bool)] = (
        Field(0.0, ge=0, le=HUGE, description="weight of KL(policy, starting model)")
    )
    kl_estimate: Annotated[
        KlEstimate, Key(Read(lambda run: run.objective.kl_coef > 0, "with kl_coef = 0"))
    ] = Field("k3", description="per token: k3, or k3 x pi / pi_old ('unbiased', DeepSeek-V3.2)")
    mismatch_correction: Correction = Field(
        "none",
        description="weight or mask for the difference between sampler and old policy",
    )
    mismatch_low: Annotated[OptionalFloat, CORRECTED] = Field(
        None,
        ge=0,
        le=HUGE,
        description="lower bound of the correction's ratio; unset: the published one",
    )
    mismatch_high: Annotated[OptionalFloat, CORRECTED] = Field(
        None,
        gt=0,
        le=HUGE,
        description="upper bound of the correction's ratio; unset: the published one",
    )
    # Every response then has a gradient, and is passed through the model.
    entropy_coef: Annotated[
        float, Key(cost=True, adds_forward_passes=True, expensive_values=bool)
    ] = Field(
        0.0,
        ge=0,
        le=HUGE,
        description="entropy bonus: coefficient * H is added to the objective",
    )
    off_policy_mask: Annotated[OptionalFloat, Key()] = Field(
        None,
        gt=0,
        le=HUGE,
        description=(
            "mask responses with A < 0 whose mean log mu - log pi (mu: the sampler) exceeds this"
            " many nats per token; unset: no mask"
        ),
    )

    @property
    def clip_range(self) -> Interval:
        """How far below and above 1 the ratio is clipped."""
        return self.clip_low, self.clip_high

    @property
    def regularised(self) -> bool:
        """Whether responses without an advantage have a gradient too: a KL term's, or the
        entropy's.
        """
        return self.kl_coef > 0 or self.entropy_coef > 0

    @property
    def weighs_tokens(self) -> bool:
        """Whether token terms have factors: a mismatch correction's, or a mask's."""
        return self.mismatch_correction != "none" or self.off_policy_mask is not None
