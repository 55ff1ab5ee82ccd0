"""Whether a study's runs are matched, and the trials on which its arms chose."""

from dataclasses import replace

from gspo_lab.matching import Certificate, certificate
from gspo_lab.matching.tuned import Trials, read_trials
from gspo_lab.readings import Source, once
from gspo_lab.stats.verdict import Reason
from gspo_lab.study import Declaration


@once
def study_certificate(of: Source) -> Certificate:
    """Whether the runs are matched, each arm with the baseline."""
    if of.base is not None:
        return replace(study_certificate(of.base), baseline=of.declaration.baseline)
    return certificate(of.evidence, of.declaration)


@once
def trials(of: Source) -> Trials | None:
    """The trials on which the arms chose, round by round; None where they did not, or those are not here."""
    tune = of.declaration.tune
    name = of.study if of.declaration.trials_of else tune and tune.trials
    there = tune is not None and name is not None and name in of.evidence.studies()
    return read_trials(of.evidence, str(name), tune) if there and tune is not None else None


def about(declared: Declaration) -> Reason | None:
    """Of which starting models verdicts are; None for one seed, and where every seed starts from a model of its own."""
    if len(declared.seeds) < 2:
        return None
    if given := _given(declared):
        return Reason("checkpoint", {"models": given})
    shared = _shared(declared)
    return None if not shared else Reason("one starting model" if len(shared) == 1 else "these starting models")


def starting_limits(declared: Declaration) -> list[str]:
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
    every = (arm.settings for arm in declared.arms.values() if declared.told(arm.name, "model"))
    return list(dict.fromkeys(one.model for one in every if not one.embedded))


def _shared(declared: Declaration) -> list[str]:
    every = (arm.settings for arm in declared.arms.values() if declared.told(arm.name, "model"))
    return list(dict.fromkeys(one.model for one in every if one.embedded and not one.warm_start.per_seed))
