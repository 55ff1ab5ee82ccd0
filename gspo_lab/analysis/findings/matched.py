"""Whether a study's runs are matched, its tuning trials, and its starting models."""

from dataclasses import replace

from gspo_lab.analysis.matching import Certificate, certificate
from gspo_lab.analysis.matching.tuning_check import Trials, read_trials
from gspo_lab.analysis.readings import Source, once
from gspo_lab.common.reason import Reason
from gspo_lab.common.text import listed
from gspo_lab.study import Declaration


@once
def study_certificate(source: Source) -> Certificate:
    """Whether the runs are matched, each arm with the baseline."""
    if source.base is not None:
        return replace(study_certificate(source.base), baseline=source.declaration.baseline)
    return certificate(source.evidence, source.declaration)


@once
def trials(source: Source) -> Trials | None:
    """The trials by which the arms chose their settings, round by round; None without trials in
    this database.
    """
    tune = source.declaration.tune
    name = tune and tune.trials if source.declaration.has_verdict else source.study
    if tune is None or name is None or name not in source.evidence.studies():
        return None
    return read_trials(source.evidence, name, tune)


def starting_models(declared: Declaration) -> Reason | None:
    """The starting models that verdicts are limited to; None for one seed, and for one starting
    model per seed.
    """
    checkpoints, shared = _starting_models(declared)
    if checkpoints:
        return Reason("checkpoint", f"starting from {listed(checkpoints)}")
    if not shared:
        return None
    models = "this one starting model" if len(shared) == 1 else "these starting models"
    return Reason("shared-start", f"on {models}")


def starting_limits(declared: Declaration) -> list[str]:
    """What another starting model might change, in sentences."""
    checkpoints, shared = _starting_models(declared)
    if checkpoints:
        return [
            f"Every seed starts from {' and '.join(checkpoints)}: what is judged is this"
            " checkpoint, which is the question, and nothing is said of another one."
        ]
    if shared:
        return [
            f"All seeds share one start of {' and '.join(shared)}: the interval leaves out what"
            " another start would change, also one that the same recipe makes on another machine."
            " With warm_start.per_seed = true every seed has its own."
        ]
    return []


def _starting_models(declared: Declaration) -> tuple[list[str], list[str]]:
    """The downloaded checkpoints, and the built-in models whose warm start all seeds share."""
    if len(declared.seeds) < 2:
        return [], []
    arms = [arm.settings for arm in declared.arms.values() if declared.is_known(arm.name, "model")]
    checkpoints = dict.fromkeys(settings.model for settings in arms if not settings.embedded)
    shared = dict.fromkeys(
        settings.model
        for settings in arms
        if settings.embedded and not settings.warm_start.per_seed
    )
    return list(checkpoints), list(shared)
