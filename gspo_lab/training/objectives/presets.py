"""An objective whole, with the keys of every policy loss, and the papers' named combinations: a
preset is a row.
"""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from gspo_lab.common.keys import Key
from gspo_lab.common.plain_data import JsonMapping, JsonObject
from gspo_lab.common.registry import installed, nearest
from gspo_lab.training.objectives.losses import LOSSES, Common, Loss, traits
from gspo_lab.training.objectives.ratios import RATIOS, Level
from gspo_lab.training.objectives.settings import Correction, clip_settings


class _Resolved(Common):
    """An objective that knows its loss."""

    policy_loss: Annotated[
        str,
        Key(
            cost=True,
            adds_forward_passes=True,
            expensive_values=lambda loss: traits(loss or "clip").sees_whole,
        ),
    ] = Field(
        "clip",
        description="the clip, another paper's rule, or `file.py:LOSS`",
    )

    @field_validator("policy_loss")
    @classmethod
    def _require_known(cls, name: str) -> str:
        names = {**installed("policy loss"), **LOSSES}
        if name not in names and ":" not in name:
            message = (
                f"must be one of {', '.join(sorted(names))}, or"
                f" 'file.py:LOSS'{nearest(name, names)}"
            )
            raise PydanticCustomError("policy_loss", "{message}", {"message": message})
        return name

    @property
    def loss(self) -> Loss[Any]:
        """What is known of its loss without opening a file."""
        return traits(self.policy_loss)


if TYPE_CHECKING:
    Objective = _Resolved
else:
    _of_losses = [
        loss.settings
        for _, loss in sorted(LOSSES.items(), reverse=True)
        if loss.settings is not Common
    ]

    class Objective(_Resolved, *_of_losses):
        """The objective that all arms share; an arm's own keys go over it.

        Keys left out take their preset's value. A key that begins with a policy loss's name has no
        effect with another loss.
        """


def _range(low: float, high: float, **settings: Any) -> JsonObject:
    return {**clip_settings((low, high)), **settings}


def _published(level: Level) -> JsonObject:
    """A ratio with the range that was published with it."""
    return _range(*RATIOS[level].band, importance_sampling_level=level)


_ROWS: dict[str, JsonObject] = {
    # arXiv 2402.03300 as restated in 2507.18071 eq. 2
    "grpo": _published("token"),
    # arXiv 1707.06347 with a critic by token, as verl has it by default; its KL in the reward left
    # out
    "ppo": _range(0.2, 0.2, aggregation="token-mean", advantage="gae"),
    # arXiv 2507.18071 eq. 5-7
    "gspo": _published("sequence"),
    # arXiv 2507.18071 eq. 13-14
    "gspo-token": _published("sequence-token"),
    # arXiv 2503.14476 eq. 8 in verl's and TRL's reading: one token mean over the mini-batch; its
    # dynamic sampling and its penalty for overlong answers are no part of a loss:
    # rollout.dynamic_sampling, rollout.overlong_buffer
    "dapo": _range(0.2, 0.28, aggregation="token-mean"),
    # arXiv 2503.20783; aggregation_constant is to be the token limit of an answer
    "dr-grpo": _range(0.2, 0.2, aggregation="constant", advantage="group-mean"),
    # arXiv 2402.14740: REINFORCE on whole answers
    "rloo": {
        "policy_loss": "reinforce",
        "aggregation": "seq-mean-token-sum",
        "advantage": "leave-one-out",
    },
    # arXiv 2501.03262: PPO's clip, advantages normalised over the batch
    "reinforce++": _range(0.2, 0.2, aggregation="token-mean", advantage="batch-mean-std"),
    "reinforce++-baseline": _range(0.2, 0.2, aggregation="token-mean", advantage="batch-std"),
    # arXiv 2506.13585; the cap of 5 is ScaleRL's (2510.13786), no lower bound as in both: TRL's
    # epsilon_high = 5, verl's clip_ratio_high = 4
    "cispo": _range(1.0, 4.0, policy_loss="cispo", aggregation="token-mean"),
    # arXiv 2507.20673: between e^-0.4 and e^0.4
    "gmpo": _range(0.3297, 0.4918, policy_loss="gmpo", importance_sampling_level="sequence"),
    # arXiv 2511.20347
    "sapo": {"policy_loss": "sapo"},
    # arXiv 2602.05261: GSPO's term times the answer's length
    "luspo": _range(
        2e-3, 2.5e-3, importance_sampling_level="sequence", aggregation="seq-mean-token-sum"
    ),
    # arXiv 2509.09177; its constant could not be read: this one is as wide as GSPO's range at 5,000
    # tokens
    "fspo": _range(0.0212, 0.0283, policy_loss="fspo", importance_sampling_level="sequence"),
    # arXiv 2602.10693, with TRL's aggregation
    "vespo": {"policy_loss": "vespo", "aggregation": "token-mean"},
    # arXiv 2602.04879; the thresholds of verl's example (run_qwen30b_dppo.sh), the aggregation of
    # its loss
    "dppo-tv": _range(0.15, 0.15, policy_loss="dppo-tv", aggregation="token-mean"),
    "dppo-kl": _range(0.05, 0.05, policy_loss="dppo-kl", aggregation="token-mean"),
    # arXiv 2509.02333, its clip alone
    "dcpo": _range(0.16, 0.2, policy_loss="dcpo"),
    # arXiv 2510.18927: from .6 and 1.2 to .9 and 3, as its repository's README gives the paper's
    # range
    "bapo": _range(0.4, 0.2, policy_loss="bapo", aggregation="token-mean"),
    # arXiv 2505.22617, with the ranges and shares of its repository's and verl's examples for 7B
    "clip-cov": _range(1.0, 1.0, policy_loss="clip-cov", aggregation="token-mean"),
    "kl-cov": {"policy_loss": "kl-cov", "aggregation": "token-mean", "kl_cov_share": 2e-3},
    # arXiv 2509.21282
    "pspo": {"policy_loss": "pspo"},
    # arXiv 2512.01374: no 1/L, no std; pi_theta / mu as (pi_old / mu, at most 5) x (pi_theta /
    # pi_old)
    "minirl": _range(
        *(0.2, 0.27),
        aggregation="seq-mean-token-sum",
        advantage="group-mean",
        mismatch_correction="tis",
        mismatch_low=0.0,
        mismatch_high=5.0,
    ),
}
PRESETS = {name: Objective(preset=name, **values) for name, values in _ROWS.items()}
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


def published_range(correction: Any) -> dict[str, float]:
    """The bounds that a mismatch correction was published with, by their keys; of anything else
    none.
    """
    return dict(
        zip(("mismatch_low", "mismatch_high"), CORRECTION_RANGES.get(correction, ()), strict=False)
    )


def with_published_range(objective: JsonMapping) -> JsonObject:
    """An objective's keys, with what its mismatch correction was published with where a bound is
    unset.
    """
    published = published_range(objective["mismatch_correction"])
    return {
        **objective,
        **{key: bound for key, bound in published.items() if objective[key] is None},
    }
