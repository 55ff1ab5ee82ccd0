"""Which arms clip, which are saturated, and which follow the two rules."""

from collections.abc import Iterator

from gspo_lab.analysis.readings import FINISHED, Source, deciding, once, runs, summarise
from gspo_lab.analysis.readings.reading import CLIP_ACTIVE
from gspo_lab.analysis.readings.runs import first_settled
from gspo_lab.common.plain_data import OptionalFloat
from gspo_lab.common.reason import Reason
from gspo_lab.study import Declaration

NO_CLIP = "no clip"
"""Stands for the clip fraction of an arm whose loss does not clip."""

SATURATED = 0.45
"""Above this clipped share of the active tokens on mini-batches >= 1, a narrower range could hardly
clip more.
"""


def clips(declared: Declaration, arm: str) -> bool:
    """Whether the arm's loss takes any token's gradient."""
    return declared.arms[arm].settings.objective.loss.clips is not None


def active_share(source: Source, arm: str) -> OptionalFloat:
    """The clipped share of the active tokens of the deciding seeds, by which saturation is
    judged.
    """
    return summarise(source, CLIP_ACTIVE, arm, deciding(source.declaration)).mean


def saturated(source: Source, arm: str) -> bool:
    """Whether the arm's clip fraction has reached its ceiling, and so does not measure its rule."""
    share = active_share(source, arm)
    return share is not None and share > SATURATED


def warm_up_only(source: Source) -> Iterator[Reason]:
    """The clipping arms without a clip fraction, because all steps of their finished runs lie in
    the warm-up.
    """
    declared = source.declaration
    settled = first_settled(source)
    for name, arm in declared.arms.items():
        starts = [settled[run.id] for run in runs(source, FINISHED) if run.arm == name]
        steps = arm.settings.steps
        if starts and clips(declared, name) and min(starts) >= steps:
            text = f"the clip fraction is not measured: {warm_up_text(name, steps, steps)}"
            yield Reason("no-clip-fraction", text)


def warm_up_text(arm: str, steps: int, planned: int, *, later: bool = False) -> str:
    """That an arm has no update after its warm-up; `later`: none of a later mini-batch."""
    after = " and minibatch >= 1" if later else ""
    return (
        f"{arm} has no update after the learning rate's warm-up{after}: {steps} of {planned} steps"
        " warm up"
    )


@once
def arms_by_level(source: Source) -> dict[str, str]:
    """The first clipping arm of each level of the ratio ("token": GRPO, "sequence": GSPO), without
    routing replay if there is one."""
    declared = source.declaration
    arms = [
        arm
        for arm in declared.arms.values()
        if declared.is_known(arm.name, "objective.importance_sampling_level")
    ]
    clipping = [arm for arm in arms if arm.settings.objective.policy_loss == "clip"]
    plain = sorted(clipping, key=lambda arm: arm.settings.routing_replay != "none")
    return {arm.settings.objective.importance_sampling_level: arm.name for arm in reversed(plain)}


def rule_arms(source: Source) -> tuple[str, str] | None:
    """GRPO's arm and GSPO's; None where one is lacking."""
    levels = arms_by_level(source)
    return (levels["token"], levels["sequence"]) if {"token", "sequence"} <= levels.keys() else None
