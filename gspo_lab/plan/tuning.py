"""The trials of `[tune]`: which runs they are, and how many of their steps are still to be trained."""

from dataclasses import dataclass
from pathlib import Path

from gspo_lab.files import read_json
from gspo_lab.layout import STUDY
from gspo_lab.runfolder import RunFolder
from gspo_lab.study import Declaration, Run, Study
from gspo_lab.study.trials import trial_study


@dataclass(frozen=True)
class TrialsLeft:
    """The trials of a study whose arms have yet to choose; `steps` of all rounds and arms, at most `left` to go."""

    runs: tuple[Run, ...] = ()
    steps: int = 0
    left: int = 0

    @property
    def each(self) -> float:
        """The steps to go of one trial, on average: most end early."""
        return self.left / len(self.runs) if self.runs else 0.0


def trials_left(study: Study, runs: Path) -> TrialsLeft:
    """What is left of a study's trials in the folder `runs`; nothing where its arms have chosen, or choose nothing."""
    if study.tune is None or study.tune.chosen:
        return TrialsLeft()
    data = read_json(runs / study.name / STUDY)
    before = None if data is None else Declaration.parse(data, runs / study.name / STUDY).tune
    if before is not None and before.chosen:
        return TrialsLeft()
    trials = tuple(trial_study(study).runs())
    steps = study.tune.spent * len(study.arms)
    done = sum(RunFolder(run.folder(runs)).standing().steps for run in trials)
    return TrialsLeft(trials, steps, max(0, steps - done))
