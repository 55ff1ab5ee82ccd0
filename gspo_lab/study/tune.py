"""`Tune`: the candidates that a study's arms choose from, the rounds that decide, and what was chosen.

Successive halving (Jamieson and Talwalkar, arXiv 1502.07943; Li et al., 1603.06560, with its eta): every round trains
what is left to more steps and keeps the best. Pure: scores come from whoever has trained.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import Field

from gspo_lab.keys import Table
from gspo_lab.objectives.presets import published_range, with_published_range
from gspo_lab.study.dotted import put
from gspo_lab.study.schema import Settings

REWARD = "reward"
"""The metric that is no benchmark: the mean training reward."""


class Round(NamedTuple):
    """`candidates` of each arm train to `steps`, and `keep` of them go on; the last round keeps one."""

    steps: int
    candidates: int
    keep: int


class Tune(Table):
    """What every arm may choose from, on which trials; `chosen` is empty until all have."""

    metric: str
    seeds: list[int]
    steps: int
    eta: int
    candidates: dict[str, list[dict[str, Any]]]
    """Per arm its candidates: dotted key -> value."""
    declared: dict[str, dict[str, Any]]
    """Per arm the values that it has without trials."""
    chosen: dict[str, int] = Field({})
    """Per arm the place of its candidate."""
    journals: dict[str, str] = Field({})
    """Per trial's run id the sha256 of its journal when the arms chose."""

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The rounds of every arm, from all candidates to one."""
        out: list[Round] = []
        left, steps = self.number, self.steps
        while left > 1:
            out.append(Round(steps, left, -(-left // self.eta)))
            left, steps = out[-1].keep, steps * self.eta
        return tuple(out)

    @property
    def number(self) -> int:
        """How many candidates each arm has."""
        return len(next(iter(self.candidates.values())))

    @property
    def spent(self) -> int:
        """The steps that each arm's trials train, over all seeds; what goes on does not train its first steps again."""
        before, steps = 0, 0
        for one in self.rounds:
            steps += one.candidates * (one.steps - before)
            before = one.steps
        return steps * len(self.seeds)

    @property
    def trials(self) -> str | None:
        """The study that the trials were, once the arms have chosen: a replication's are those of the first study."""
        return next((run.partition("/")[0] for run in self.journals), None)

    def keys(self, arm: str) -> list[str]:
        """The settings that an arm chooses."""
        return list(self.candidates[arm][0])

    def values(self, arm: str) -> dict[str, Any]:
        """What an arm chose; what it declares before that."""
        return self.candidates[arm][self.chosen[arm]] if arm in self.chosen else self.declared[arm]

    def best(self, arm: str, scores: Mapping[int, float | None], keep: int) -> tuple[int, ...]:
        """The `keep` best of an arm's candidates by their scores, in the order of their lists; None: collapsed or dead,
        and never among them. Of equal scores the one nearest to what the arm declares is the better, then the earlier.
        """
        alive = {place: score for place, score in scores.items() if score is not None}
        ranked = sorted(alive, key=lambda place: (-alive[place], self._distance(arm, place), place))
        return tuple(sorted(ranked[:keep]))

    def _distance(self, arm: str, place: int) -> float:
        declared = self.declared[arm]
        # Half and double lie equally far, whatever the last bit of their logarithms says.
        return round(sum(_apart(value, declared[key]) for key, value in self.candidates[arm][place].items()), 9)


def _apart(one: Any, other: Any) -> float:
    """How far two values of a setting lie apart: by their ratio where both are positive numbers."""
    if isinstance(one, str) or not isinstance(other, int | float):
        return float(one != other)
    return abs(math.log(one / other)) if one > 0 and other > 0 else abs(one - other)


def with_values(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """The settings with some dotted keys changed. ValidationError for a value that its key does not take.

    A mismatch correction brings the bounds that it was published with, and another one's do not stay: a bound at which
    the former was published counts as brought by it. What the study gives itself stays: other bounds, and `values`.
    """
    data = settings.model_dump(mode="json")
    objective = data["objective"]
    former = objective["mismatch_correction"]
    if values.get("objective.mismatch_correction", former) != former:
        brought = published_range(former)
        objective |= {key: None for key, bound in brought.items() if objective[key] == bound}
    for key, value in values.items():
        put(data, key, value)
    return Settings.model_validate({**data, "objective": with_published_range(objective)})


def budget(tune: Tune) -> str:
    """What every arm chooses on, or chose, in words."""
    verb = "chose" if tune.chosen else "chooses"
    seeds = f"{len(tune.seeds)} seed{'s' if tune.seeds[1:] else ''}"
    trials = f"{tune.number * len(tune.seeds)} trials ({tune.number} candidates x {seeds}, {tune.spent:,} steps in all)"
    return f"each arm {verb} on {trials}, by {tune.metric}"


def schedule(tune: Tune) -> str:
    """Its rounds in words."""
    return ", then ".join(f"{one.candidates} to step {one.steps}" for one in tune.rounds)
