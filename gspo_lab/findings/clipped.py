"""Which arms clip, and which are saturated."""

from gspo_lab.readings import Source, deciding, summarise
from gspo_lab.readings.named import CLIP_ACTIVE
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
