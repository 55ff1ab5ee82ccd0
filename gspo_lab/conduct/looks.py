"""A declared look at what has finished: does it resolve the study, and what is then not spent?"""

from dataclasses import dataclass
from pathlib import Path

from gspo_lab.layout import database_of
from gspo_lab.progress import duration
from gspo_lab.readings import FINISHED, average, read
from gspo_lab.readings import runs as runs_of
from gspo_lab.readings.named import DEVICE_SECONDS
from gspo_lab.store import Evidence
from gspo_lab.study import Study


@dataclass(frozen=True)
class Look:
    """What the finished pairs say: `stopped` where they resolve every arm before the last look, after `seeds` of
    `planned` seeds; `missing` are the runs without a score that this look is still short of.

    `saved_runs` are declared and not begun, `saved_seconds` the device time that they would take by the mean of those
    that finished; None: not measured.
    """

    stopped: bool
    missing: tuple[str, ...]
    seeds: int
    planned: int
    saved_runs: int
    saved_seconds: float | None

    @property
    def line(self) -> str:
        """For people."""
        about = "" if self.saved_seconds is None else f", about {duration(self.saved_seconds)} of device time"
        saved = f"{self.saved_runs} declared run{'' if self.saved_runs == 1 else 's'} not begun{about}"
        return f"resolved at the look after {self.seeds} of {self.planned} seeds; saved: {saved}"


def look_at(study: Study, look: int, runs: Path) -> Look:
    """At the pairs of the first `look` seeds in the database; `findings.decision` judges them."""
    from gspo_lab.findings.decision import decision
    from gspo_lab.readings import Source

    with Evidence.open(database_of(runs), runs) as evidence:
        found = Source(evidence, study.name)
        decided = decision(found)
        declared = found.declaration
        short = decided.missing.values() if len(decided.seeds) <= look else ()
        unscored = tuple(dict.fromkeys(run for own in short for run in own))
        spent = read(found, DEVICE_SECONDS)
        usual = average(spent[run.id].value for run in runs_of(found, FINISHED))
    begun = {(run.arm, run.seed) for run in runs_of(found)}
    left = sum((arm, seed) not in begun for arm in declared.arms for seed in declared.deciding)
    seconds = None if usual is None else usual * left
    return Look(decided.stopped, unscored, len(decided.seeds), decided.planned, left, seconds)
