"""What a verdict over several seeds is about: a model that each seed makes anew, one for all of them, a checkpoint."""

from gspo_lab.stats.verdict import Reason
from gspo_lab.study import Declaration


def about(declared: Declaration) -> Reason | None:
    """Of which starting models verdicts are; None for one seed, and where every seed starts from a model of its own."""
    if len(declared.seeds) < 2:
        return None
    if given := _given(declared):
        return Reason("checkpoint", {"models": given})
    shared = _shared(declared)
    return None if not shared else Reason("one starting model" if len(shared) == 1 else "these starting models")


def limits(declared: Declaration) -> list[str]:
    """The same at length: what another start might change."""
    if len(declared.seeds) < 2:
        return []
    if given := _given(declared):
        return [
            f"Every seed starts from {' and '.join(given)}: what is judged is this checkpoint, which is the question, "
            "and nothing is said of another one."
        ]
    if shared := _shared(declared):
        return [
            f"All seeds share one start of {' and '.join(shared)}: the interval leaves out what another start would "
            "change, also one that the same recipe makes on another machine. With warm_start.per_seed = true every "
            "seed has its own."
        ]
    return []


def _given(declared: Declaration) -> list[str]:
    """The arms' models that were not made here."""
    every = (arm.settings for arm in declared.arms.values() if declared.told(arm.name, "model"))
    return list(dict.fromkeys(one.model for one in every if not one.embedded))


def _shared(declared: Declaration) -> list[str]:
    """The arms' models that were made here once, for all seeds."""
    every = (arm.settings for arm in declared.arms.values() if declared.told(arm.name, "model"))
    return list(dict.fromkeys(one.model for one in every if one.embedded and not one.warm_start.per_seed))
