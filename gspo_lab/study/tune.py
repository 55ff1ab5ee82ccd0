"""`Tune`: the candidates that a study's arms choose from, the rounds that decide, and the chosen
ones.

Successive halving (Jamieson and Talwalkar, arXiv 1502.07943; Li et al., 1603.06560, with its eta):
each round trains the remaining candidates to more steps and keeps the best.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import Field

from gspo_lab.common.keys import Seed, Table
from gspo_lab.common.plain_data import JsonMapping, JsonObject, OptionalText
from gspo_lab.common.text import counted
from gspo_lab.study.dotted_keys import set_dotted
from gspo_lab.study.schema import Settings
from gspo_lab.training.objectives.presets import published_range, with_published_range

REWARD = "reward"
"""The metric beside the benchmarks: the mean training reward."""


class Round(NamedTuple):
    """`candidates` of each arm train to `steps`, and `keep` of them go on; the last round keeps
    one.
    """

    steps: int
    candidates: int
    keep: int


class TuneTable(Table):
    """Every arm chooses settings on trials before the study, by successive halving.

    The i-th candidate has the i-th value of every list; all lists are equally long. All candidates
    train `steps` steps. The best 1 / `eta`, rounded up, train `eta` times as many, until one is
    left.
    """

    seeds: list[Seed] = Field(min_length=1, description="the trials' seeds; none of the study's")
    steps: int = Field(ge=1, le=10**6, description="steps of the first round")
    eta: int = Field(
        2,
        ge=2,
        le=100,
        description="one of this many candidates, rounded up, trains this many times longer",
    )
    metric: OptionalText = Field(
        None,
        description=(
            "a benchmark's score at the round's end, or `reward`, the mean over the round's last"
            " fifth; unset: the primary benchmark"
        ),
    )
    values: JsonObject = Field({}, description="dotted setting = its candidates")
    arm: JsonObject = Field({}, description="`[tune.arm.NAME]`: the same for one arm")


class Tune(Table):
    """The candidates of each arm, and the trials; `chosen` is empty until all arms have chosen."""

    metric: str
    seeds: list[int]
    steps: int
    eta: int
    candidates: dict[str, list[JsonObject]]
    """Per arm its candidates: dotted key -> value."""
    declared: dict[str, JsonObject]
    """Per arm the values that it declares."""
    chosen: dict[str, int] = Field({})
    """Per arm the index of the chosen candidate."""
    journals: dict[str, str] = Field({})
    """Per trial's run id the sha256 of its journal when the arms chose."""

    @property
    def undecided(self) -> "Tune":
        """The table as it was before any arm chose."""
        return self.replace(chosen={}, journals={})

    @property
    def rounds(self) -> list[Round]:
        """The rounds of every arm, from all candidates to one."""
        out: list[Round] = []
        remaining = self.number
        steps = self.steps
        while remaining > 1:
            out.append(Round(steps, remaining, -(-remaining // self.eta)))
            remaining = out[-1].keep
            steps = steps * self.eta
        return out

    @property
    def number(self) -> int:
        """How many candidates each arm has."""
        return len(next(iter(self.candidates.values())))

    @property
    def spent(self) -> int:
        """The steps that each arm's trials train, over all seeds; later rounds resume the earlier
        ones.
        """
        ends = [0, *(round_.steps for round_ in self.rounds)]
        steps = sum(
            round_.candidates * (round_.steps - end)
            for round_, end in zip(self.rounds, ends, strict=False)
        )
        return steps * len(self.seeds)

    @property
    def trials(self) -> OptionalText:
        """The study of the trials, once the arms have chosen; a replication has those of its
        original.
        """
        return next((run.partition("/")[0] for run in self.journals), None)

    def keys(self, arm: str) -> list[str]:
        """The settings that an arm chooses."""
        return list(self.declared[arm])

    def values(self, arm: str) -> JsonObject:
        """The values that an arm chose, before that those that it declares."""
        return self.candidates[arm][self.chosen[arm]] if arm in self.chosen else self.declared[arm]

    def best(self, arm: str, scores: Mapping[int, float | None], keep: int) -> list[int]:
        """The `keep` best of an arm's candidates by score, in the order of their lists.

        A candidate that collapsed has None and is left out. Of equal scores the one nearest to the
        declared values is better, then the earlier one.
        """

        def rank(index: int) -> tuple[float, float, int]:
            distance = sum(
                _distance(value, self.declared[arm][key])
                for key, value in self.candidates[arm][index].items()
            )
            # Half and double are equally far, so round off the last bits of their logarithms.
            return -(scores[index] or 0.0), round(distance, 9), index

        return sorted(
            sorted((index for index, score in scores.items() if score is not None), key=rank)[:keep]
        )


def _distance(value: Any, declared: Any) -> float:
    """The distance of a value from the declared one: by their ratio where both are positive
    numbers.
    """
    if isinstance(value, str) or not isinstance(declared, int | float):
        return float(value != declared)
    return abs(math.log(value / declared)) if value > 0 and declared > 0 else abs(value - declared)


def with_values(settings: Settings, values: JsonMapping) -> Settings:
    """The settings with some dotted keys changed. ValidationError for a value that its key does not
    take.

    A mismatch correction comes with its published bounds. A changed correction drops the published
    bounds of the former one. Other bounds of the study, and `values`, stay.
    """
    data = settings.model_dump(mode="json")
    objective = data["objective"]
    former = objective["mismatch_correction"]
    if values.get("objective.mismatch_correction", former) != former:
        brought = published_range(former)
        objective |= {key: None for key, bound in brought.items() if objective[key] == bound}
    for key, value in values.items():
        set_dotted(data, key, value)
    return Settings.model_validate({**data, "objective": with_published_range(objective)})


def label(values: JsonMapping) -> str:
    """A candidate's values, as they name its trials."""
    return "_".join(value if isinstance(value, str) else f"{value:g}" for value in values.values())


def trial(arm: str, values: JsonMapping) -> str:
    """The name of a candidate among the arms of the trials."""
    return f"{arm}@{label(values)}"


def budget(tune: Tune) -> str:
    """The trials on which each arm chooses or chose, in words."""
    seeds = counted(len(tune.seeds), "seed")
    trials = (
        f"{tune.number * len(tune.seeds)} trials ({tune.number} candidates x {seeds},"
        f" {tune.spent:,} steps in all)"
    )
    verb = "chose" if tune.chosen else "chooses"
    return f"each arm {verb} on {trials}, by {tune.metric}"


def schedule(tune: Tune) -> str:
    """Its rounds in words."""
    return ", then ".join(f"{round_.candidates} to step {round_.steps}" for round_ in tune.rounds)
