"""Whether a study's runs are matched, and the trials on which its arms chose."""

from dataclasses import replace

from gspo_lab.matching import Certificate, certificate
from gspo_lab.matching.tuned import Trials, read_trials
from gspo_lab.readings import Source, once


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
