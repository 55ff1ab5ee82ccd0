"""What an objective is made of, and the papers' named combinations. The fields are the TOML keys of an arm."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from gspo_lab.objectives.ratios import RATIOS, Level

Aggregation = Literal["seq-mean-token-mean", "token-mean", "seq-mean-token-sum", "constant"]
Advantage = Literal["group-mean-std", "group-mean", "leave-one-out", "batch-std", "batch-mean-std", "gae"]
SequenceAdvantage = Literal["mean", "sum"]
TurnCredit = Literal["response", "turn"]
PolicyLoss = Literal[
    "clip", "dcpo", "bapo", "gmpo", "fspo", "dppo-tv", "dppo-kl", "cispo", "reinforce", "vespo", "sapo", "pspo"
]
Clip = Literal["fixed", "calibrated"]
Correction = Literal["none", "tis", "icepop", "sequence-mask", "geometric-mask"]


def _key(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveSettings:
    """The orthogonal settings of a policy-gradient objective (see docs/reference/objectives.md for the formulas)."""

    importance_sampling_level: Level = _key("token", "one importance ratio per token, per response, or GSPO-token's")
    policy_loss: PolicyLoss = _key("clip", "what keeps the policy near the old one: the clip, or another paper's rule")
    clip: Clip = _key(
        "fixed", "'calibrated': clip_low and clip_high are found by a pilot and frozen before the first step"
    )
    clip_low: float = _key(0.2, "the ratio is clipped at 1 - clip_low")
    clip_high: float = _key(0.27, "the ratio is clipped at 1 + clip_high")
    clip_target: float = _key(
        0.15,
        "with clip = 'calibrated': share to clip on mini-batches >= 1, of active tokens (level token) or responses",
    )
    dual_clip: float | None = _key(
        None, "caps the ratio at this value (> 1) where the advantage is negative; unset: no cap"
    )
    aggregation: Aggregation = _key("seq-mean-token-mean", "how token terms become one loss")
    aggregation_constant: float = _key(
        1024.0, "with aggregation = 'constant': token terms are summed and divided by responses x this"
    )
    advantage: Advantage = _key("group-mean-std", "how rewards become advantages; 'gae': with a critic, token by token")
    turn_credit: TurnCredit = _key(
        "response",
        "tasks of several turns: every turn has its response's advantage, or its own, of what it and later ones earned",
    )
    gamma: float = _key(1.0, "with advantage = 'gae': the discount from one token to the next")
    gae_lambda: float = _key(1.0, "with advantage = 'gae': 1 trusts the rewards, 0 the critic's next value (verl: lam)")
    whiten_advantages: bool = _key(True, "with advantage = 'gae': (A - mean) / std over the rollout batch's tokens")
    sequence_advantage: SequenceAdvantage = _key(
        "mean", "with advantage = 'gae' and the level sequence: what a response's one advantage is of its tokens'"
    )
    kl_coef: float = _key(0.0, "weight of the k3 estimate of KL(policy, starting model)")
    bapo_clip_low: float = _key(
        0.1, "with policy_loss = 'bapo': where the lower bound ends, 1 - bapo_clip_low; it begins at 1 - clip_low"
    )
    bapo_clip_high: float = _key(
        2.0, "with policy_loss = 'bapo': where the upper bound ends, 1 + bapo_clip_high; it begins at 1 + clip_high"
    )
    bapo_share: float = _key(0.5, "with policy_loss = 'bapo': the share of the loss that tokens with A > 0 should have")
    sapo_tau_positive: float = _key(1.0, "with policy_loss = 'sapo': the temperature where A > 0")
    sapo_tau_negative: float = _key(1.05, "with policy_loss = 'sapo': the temperature where A <= 0")
    pspo_smoothing: float = _key(0.1, "with policy_loss = 'pspo': the share of the old probability in the smoothed one")
    vespo_k_positive: float = _key(2.0, "with policy_loss = 'vespo': the exponent k where A >= 0")
    vespo_lambda_positive: float = _key(3.0, "with policy_loss = 'vespo': the decay lambda where A >= 0")
    vespo_k_negative: float = _key(3.0, "with policy_loss = 'vespo': the exponent k where A < 0")
    vespo_lambda_negative: float = _key(2.0, "with policy_loss = 'vespo': the decay lambda where A < 0")
    mismatch_correction: Correction = _key(
        "none", "weight or mask for the difference between the sampler that drew the tokens and the old policy"
    )
    mismatch_low: float | None = _key(
        None, "lower bound of the correction's ratio; unset: what the correction was published with"
    )
    mismatch_high: float | None = _key(
        None, "upper bound of the correction's ratio; unset: what the correction was published with"
    )


def objective_of(table: Any) -> ObjectiveSettings:
    """An arm's objective, `Settings.objective`, as the mathematics reads it."""
    return ObjectiveSettings(**{key.name: getattr(table, key.name) for key in fields(ObjectiveSettings)})


def _of(level: Level) -> ObjectiveSettings:
    """A ratio with the range that was published with it."""
    return _range(*RATIOS[level].band, importance_sampling_level=level)


def _range(low: float, high: float, **others: Any) -> ObjectiveSettings:
    return ObjectiveSettings(clip_low=low, clip_high=high, **others)


PRESETS: dict[str, ObjectiveSettings] = {
    # arXiv 2402.03300 as restated in 2507.18071 eq. 2
    "grpo": _of("token"),
    # arXiv 1707.06347 with a critic by token, as verl has it by default; its KL in the reward left out
    "ppo": _range(0.2, 0.2, aggregation="token-mean", advantage="gae"),
    # arXiv 2507.18071 eq. 5-7
    "gspo": _of("sequence"),
    # arXiv 2507.18071 eq. 13-14
    "gspo-token": _of("sequence-token"),
    # arXiv 2503.14476 eq. 8 in verl's and TRL's reading: one token mean over the mini-batch; its dynamic sampling and
    # its penalty for overlong answers are no part of a loss: rollout.dynamic_sampling, rollout.overlong_buffer
    "dapo": _range(0.2, 0.28, aggregation="token-mean"),
    # arXiv 2503.20783; aggregation_constant is to be the token limit of an answer
    "dr-grpo": _range(0.2, 0.2, aggregation="constant", advantage="group-mean"),
    # arXiv 2402.14740: REINFORCE on whole answers
    "rloo": ObjectiveSettings(policy_loss="reinforce", aggregation="seq-mean-token-sum", advantage="leave-one-out"),
    # arXiv 2501.03262: PPO's clip, advantages normalised over the batch
    "reinforce++": _range(0.2, 0.2, aggregation="token-mean", advantage="batch-mean-std"),
    "reinforce++-baseline": _range(0.2, 0.2, aggregation="token-mean", advantage="batch-std"),
    # arXiv 2506.13585; the cap of 5 is ScaleRL's (2510.13786), no lower bound as in both: TRL's epsilon_high = 5,
    # verl's clip_ratio_high = 4
    "cispo": _range(1.0, 4.0, policy_loss="cispo", aggregation="token-mean"),
    # arXiv 2507.20673: between e^-0.4 and e^0.4
    "gmpo": _range(0.3297, 0.4918, policy_loss="gmpo", importance_sampling_level="sequence"),
    # arXiv 2511.20347
    "sapo": ObjectiveSettings(policy_loss="sapo"),
    # arXiv 2602.05261: GSPO's term times the answer's length
    "luspo": _range(2e-3, 2.5e-3, importance_sampling_level="sequence", aggregation="seq-mean-token-sum"),
    # arXiv 2509.09177; its constant could not be read: this one is as wide as GSPO's range at 5,000 tokens
    "fspo": _range(0.0212, 0.0283, policy_loss="fspo", importance_sampling_level="sequence"),
    # arXiv 2602.10693, with TRL's aggregation
    "vespo": ObjectiveSettings(policy_loss="vespo", aggregation="token-mean"),
    # arXiv 2602.04879; the thresholds of verl's example (run_qwen30b_dppo.sh), the aggregation of its loss
    "dppo-tv": _range(0.15, 0.15, policy_loss="dppo-tv", aggregation="token-mean"),
    "dppo-kl": _range(0.05, 0.05, policy_loss="dppo-kl", aggregation="token-mean"),
    # arXiv 2509.02333, its clip alone
    "dcpo": _range(0.16, 0.2, policy_loss="dcpo"),
    # arXiv 2510.18927: from .6 and 1.2 to .9 and 3, as its repository's README gives the paper's range
    "bapo": _range(0.4, 0.2, policy_loss="bapo", aggregation="token-mean"),
    # arXiv 2509.21282
    "pspo": ObjectiveSettings(policy_loss="pspo"),
    # arXiv 2512.01374: no 1/L, no std; pi_theta / mu as (pi_old / mu, at most 5) x (pi_theta / pi_old)
    "minirl": _range(
        *(0.2, 0.27),
        aggregation="seq-mean-token-sum",
        advantage="group-mean",
        mismatch_correction="tis",
        mismatch_low=0.0,
        mismatch_high=5.0,
    ),
}
"""The papers' named combinations."""

CORRECTION_RANGES: dict[Correction, tuple[float, float]] = {
    # Yao et al. 2025 (fengyao.notion.site/off-policy-rl); C as in verl's and slime's examples
    "tis": (0.0, 2.0),
    # arXiv 2510.18855
    "icepop": (0.5, 5.0),
    # MIS, Liu, Li et al. 2025 (richardli.xyz/rl-collapse); TRL's default bound is 3
    "sequence-mask": (0.0, 2.0),
    # Geo-RS of the same; verl's preset
    "geometric-mask": (0.999, 1.001),
}
"""The (mismatch_low, mismatch_high) that each correction was published with."""


def published_range(correction: object) -> dict[str, float]:
    """The bounds that a mismatch correction was published with, by their keys; of anything else none."""
    found = next(((low, high) for name, (low, high) in CORRECTION_RANGES.items() if name == correction), None)
    return {} if found is None else {"mismatch_low": found[0], "mismatch_high": found[1]}


def with_published_range(objective: Mapping[str, Any]) -> dict[str, Any]:
    """An objective's keys, with what its mismatch correction was published with where a bound is unset."""
    published = published_range(objective["mismatch_correction"])
    return {**objective, **{key: bound for key, bound in published.items() if objective[key] is None}}
