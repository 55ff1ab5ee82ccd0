"""What an objective is made of, and the papers' named combinations. The fields are the TOML keys of an arm."""

from dataclasses import dataclass, field
from typing import Any, Literal

from gspo_lab.objectives.ratios import RATIOS, Level

Aggregation = Literal["seq-mean-token-mean", "token-mean", "seq-mean-token-sum", "constant"]
Advantage = Literal["group-mean-std", "group-mean", "leave-one-out", "batch-std"]
Clip = Literal["fixed", "calibrated"]
Correction = Literal["none", "tis", "icepop", "sequence-mask", "geometric-mask"]


def _key(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveSettings:
    """The orthogonal settings of a clipped policy-gradient objective (see docs/objectives.md for the formulas)."""

    importance_sampling_level: Level = _key("token", "one importance ratio per token, per response, or GSPO-token's")
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
    advantage: Advantage = _key("group-mean-std", "how rewards become advantages")
    kl_coef: float = _key(0.0, "weight of the k3 estimate of KL(policy, starting model)")
    mismatch_correction: Correction = _key(
        "none", "weight or mask for the difference between the sampler that drew the tokens and the old policy"
    )
    mismatch_low: float | None = _key(
        None, "lower bound of the correction's ratio; unset: what the correction was published with"
    )
    mismatch_high: float | None = _key(
        None, "upper bound of the correction's ratio; unset: what the correction was published with"
    )


def _of(level: Level) -> ObjectiveSettings:
    """A ratio with the range that was published with it."""
    low, high = RATIOS[level].band
    return ObjectiveSettings(importance_sampling_level=level, clip_low=low, clip_high=high)


PRESETS: dict[str, ObjectiveSettings] = {
    # arXiv 2402.03300 as restated in 2507.18071 eq. 2
    "grpo": _of("token"),
    # arXiv 2507.18071 eq. 5-7
    "gspo": _of("sequence"),
    # arXiv 2507.18071 eq. 13-14
    "gspo-token": _of("sequence-token"),
}

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
