"""An objective whole, with the keys of every policy loss, and the papers' named combinations."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from gspo_lab.common.keys import Key
from gspo_lab.common.plain_data import Interval, JsonMapping, JsonObject, table_beside
from gspo_lab.common.registry import installed, nearest
from gspo_lab.training.objectives.losses import LOSSES, Common, Loss, traits
from gspo_lab.training.objectives.settings import Correction


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


PRESETS = {
    name: Objective(preset=name, **keys)
    for name, keys in table_beside(__file__, "presets.toml").items()
}
"""The papers' named combinations."""

CORRECTION_RANGES: dict[Correction, Interval] = {
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
