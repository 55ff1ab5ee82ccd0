"""Which arms clip, which are saturated, and which follow the two rules."""

from functools import partial

from gspo_lab.readings import Source, deciding, once, summarise
from gspo_lab.readings.reading import CLIP_ACTIVE
from gspo_lab.study import Declaration

NO_CLIP = "no clip"
"""What stands for the clip fraction of an arm whose loss has no clip: nothing was left unmeasured."""

SATURATED = 0.45
"""Above this clipped share of the active tokens on mini-batches >= 1 a narrower range could hardly clip more: the mean
ratio is near 1."""


def clips(declared: Declaration, arm: str) -> bool:
    """Whether the arm's loss takes any token's gradient."""
    return declared.arms[arm].settings.objective.loss.clips is not None


def active_share(of: Source, arm: str) -> float | None:
    """The clipped share of the active tokens by which saturation is judged: that of the seeds that decide."""
    return summarise(of, CLIP_ACTIVE, arm, deciding(of.declaration)).mean


def saturated(of: Source, arm: str) -> bool:
    """Whether the arm's clip fraction is a ceiling, and no measurement of its rule."""
    share = active_share(of, arm)
    return share is not None and share > SATURATED


@once
def arms_by_level(of: Source) -> dict[str, str]:
    """The first arm of each level of the ratio that clips ("token": GRPO's, "sequence": GSPO's), those without routing
    replay first."""
    told = partial(of.declaration.told, key="objective.importance_sampling_level")
    arms = [arm for name, arm in of.declaration.arms.items() if told(name)]
    clipping = [arm for arm in arms if arm.settings.objective.policy_loss == "clip"]
    plain = sorted(clipping, key=lambda arm: arm.settings.routing_replay != "none")
    return {arm.settings.objective.importance_sampling_level: arm.name for arm in reversed(plain)}


def rule_arms(of: Source) -> tuple[str, str] | None:
    """GRPO's arm and GSPO's; None where one is lacking."""
    levels = arms_by_level(of)
    return (levels["token"], levels["sequence"]) if {"token", "sequence"} <= levels.keys() else None
