"""Stability as a number: the swept value (dose) at which half of an arm's runs collapse, and its ratio between arms.

`stats.collapse` judges each run. `stats.ed50` fits Firth-penalised logistic regression on log10 of the dose, with
profile intervals, which exist for all-or-none data too. Ratios share alpha by Holm's rule, and their intervals hold for
new starting models. Values and arms that were added after the first step do not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gspo_lab.findings.length_scaling import KEY as LENGTH
from gspo_lab.findings.matched import starting_models
from gspo_lab.findings.run_outcomes import RunOutcome, outcomes
from gspo_lab.readings import Source, average, once
from gspo_lab.readings.runs import deciding_runs
from gspo_lab.stats.ed50 import DoseLimits, dose_ratios, half_collapse
from gspo_lab.stats.verdict import Reason

FIT = ("estimate", "low", "high", "resolved", "reason")
"""Of a fit or a ratio, for plain data."""


@dataclass(frozen=True)
class DosePoint:
    """One arm at one dose: its finished runs long enough to be judged, how many of them collapsed; all final scores."""

    dose: float
    runs: int
    collapsed: int
    scores: tuple[float, ...]

    @property
    def score(self) -> float | None:
        """The mean final score of the runs with this dose; None where none has one."""
        return average(self.scores)


@dataclass(frozen=True)
class ArmResponse:
    """One arm over all doses; `half` is None while no finished run can be judged."""

    arm: str
    points: tuple[DosePoint, ...]
    half: DoseLimits | None


@dataclass(frozen=True)
class DoseResponse:
    """All arms of a sweep over `key`, and the ratio of each arm's 50 % collapse point to the baseline's.

    `about` names the starting models where seeds share them. `added` arms came after the first step.
    """

    key: str
    baseline: str
    arms: tuple[ArmResponse, ...]
    ratios: dict[str, DoseLimits]
    about: Reason | None = None
    added: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data, as the report's JSON has it."""
        return {
            "key": self.key,
            "baseline": self.baseline,
            "arms": {
                arm.arm: {
                    "points": [_fields(point, ("dose", "runs", "collapsed", "score")) for point in arm.points],
                    "half_collapse": None if arm.half is None else _fields(arm.half, FIT),
                }
                for arm in self.arms
            },
            "ratios": {arm: _fields(ratio, (*FIT, "p")) for arm, ratio in self.ratios.items()},
            "not_counted": list(self.added),
        }


@once
def dose_response(source: Source) -> DoseResponse | None:
    """The dose response so far, from the finished runs of the deciding seeds; None without a sweep.

    None, too, for a sweep of answer lengths, which `length_scaling.py` reads. Of a run too short to be judged
    only the score counts.
    """
    declared = source.declaration
    if declared.sweep is None or declared.sweep.key == LENGTH:
        return None
    added = set(declared.arms_added)
    counted = [arm for arm in declared.arms.values() if arm.dose is not None and arm.name not in added]
    names = [name for name in declared.families if any(arm.of == name for arm in counted)]
    baseline = declared.verdict.baseline or names[0]
    runs: dict[str, list[tuple[float, RunOutcome]]] = {name: [] for name in names}
    by_name = {arm.name: arm for arm in counted}
    deciding = deciding_runs(source)
    for run in outcomes(source, declared.primary):
        arm = by_name.get(run.arm)
        if (run.arm, run.seed) in deciding and arm is not None and arm.of is not None and arm.dose is not None:
            runs[arm.of].append((arm.dose, run))
    doses = sorted({arm.dose for arm in counted if arm.dose is not None})
    arms = tuple(_response(name, doses, runs[name]) for name in names)
    judged = {name: columns for name in names if (columns := _columns(runs[name]))[0]}
    base = judged.pop(baseline, None)
    ratios = {} if base is None else dose_ratios(base, judged, declared.verdict.alpha)
    return DoseResponse(declared.sweep.key, baseline, arms, ratios, starting_models(declared), declared.arms_added)


def _response(name: str, doses: list[float], runs: list[tuple[float, RunOutcome]]) -> ArmResponse:
    points = []
    for dose in doses:
        ended = [run for run_dose, run in runs if run_dose == dose]
        scores = tuple(run.final for run in ended if run.final is not None)
        points.append(DosePoint(dose, sum(run.judged for run in ended), sum(run.collapsed for run in ended), scores))
    judged, collapsed, _ = _columns(runs)
    return ArmResponse(name, tuple(points), half_collapse(judged, collapsed) if judged else None)


def _columns(runs: list[tuple[float, RunOutcome]]) -> tuple[list[float], list[int], list[int]]:
    """Dose, collapsed and seed of every run that could be judged; none before runs at two doses could."""
    judged = [(dose, run) for dose, run in runs if run.judged]
    if len({dose for dose, _ in judged}) < 2:
        return [], [], []
    return [dose for dose, _ in judged], [int(run.collapsed) for _, run in judged], [run.seed for _, run in judged]


def _fields(of: object, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}
