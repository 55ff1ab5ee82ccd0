"""What a number is a reading of, and what reading gives."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.analysis.stats.collapse import FROZEN
from gspo_lab.common.plain_data import OptionalFloat
from gspo_lab.recording.records.update import CLIP_FRACTION
from gspo_lab.recording.store.schema import RECORD_TABLES, Column

if TYPE_CHECKING:
    from gspo_lab.analysis.readings.runs import Seeds


class Steps(StrEnum):
    """Which steps of a run count."""

    ALL = "all"
    SETTLED = "settled"
    """From the first step on whose updates, and all later ones, have the full learning rate."""
    BASELINE = "baseline"
    """The first `stats.collapse.FROZEN` of the settled steps, which signals are held against."""
    STEP_0 = "step0"
    LAST = "last"
    """The last planned step alone."""


class Minibatch(StrEnum):
    """Which updates of a step count, by their index within the rollout batch."""

    ALL = "all"
    FIRST = "first"
    SECOND = "second"
    """Index 1: the policy has made one update since it sampled."""
    LATER = "later"
    """Index 1 and above: on the first mini-batch all ratios are 1."""
    FINAL = "final"
    """The last index that the arm's settings have."""


class Weight(StrEnum):
    """How rows are weighed in a mean."""

    OWN = "own"
    """By the column that the metric's field declares (`per`)."""
    ROWS = "rows"
    """Every row alike."""


class Reduce(StrEnum):
    """What becomes of a run's rows: of all of them, or of its curve by step."""

    MEAN = "mean"
    SUM = "sum"
    LARGEST = "largest"
    MEDIAN = "median"
    """Of the curve's measured steps."""
    PEAK = "peak"
    """The highest step of the curve. Here and below gaps hold the value before."""
    LATEST = "latest"
    """The curve's last step."""
    AREA = "area"
    LAST_FIFTH = "last-fifth"


@dataclass(frozen=True)
class Window:
    """The rows that count.

    A record of a rollout batch has no mini-batch: there all rows of the steps count.
    """

    steps: Steps = Steps.SETTLED
    minibatch: Minibatch = Minibatch.ALL


SAID = {
    Steps.SETTLED: "after the learning rate's warm-up",
    Steps.BASELINE: f"first {FROZEN} steps after the learning rate's warm-up",
    Steps.STEP_0: "step 0",
    Steps.LAST: "last step",
    Minibatch.FIRST: "mini-batch 0",
    Minibatch.SECOND: "mini-batch 1",
    Minibatch.LATER: "mini-batches ≥ 1",
    Minibatch.FINAL: "last mini-batch",
    Reduce.SUM: "sum",
    Reduce.LARGEST: "largest",
    Reduce.MEDIAN: "median over steps",
    Reduce.PEAK: "highest step",
    Reduce.LATEST: "last recorded step",
    Reduce.AREA: "area under the curve",
    Reduce.LAST_FIFTH: "last fifth of the steps",
    Weight.ROWS: "every row alike",
}
"""The parts of a label; what is not here goes without saying."""


@dataclass(frozen=True)
class Reading:
    """One question to a run's record.

    The default is the metric's mean over settled steps by its own weight.
    """

    metric: str
    window: Window = Window()
    reduce: Reduce = Reduce.MEAN
    weight: Weight = Weight.OWN

    @property
    def table(self) -> str:
        """The table that records the metric: `updates` or `steps`."""
        return "updates" if self.metric in RECORD_TABLES["updates"].names else "steps"

    @property
    def column(self) -> Column:
        """The metric's column: its unit and its meaning."""
        return RECORD_TABLES[self.table].column(self.metric)

    @classmethod
    def parse(cls, key: str) -> "Reading":
        """The reading that has this key."""
        metric, reduce, steps, minibatch, weight = key.split(".")
        return cls(
            metric, Window(Steps(steps), Minibatch(minibatch)), Reduce(reduce), Weight(weight)
        )

    @property
    def key(self) -> str:
        """A stable name, as "clip_fraction_tokens.mean.settled.later.own"."""
        return ".".join(
            (self.metric, self.reduce, self.window.steps, self.window.minibatch, self.weight)
        )

    def label(self) -> str:
        """The reading for people: "mini-batches ≥ 1, after the learning rate's warm-up"."""
        parts = (self.reduce, self.window.minibatch, self.window.steps, self.weight)
        return ", ".join(SAID[part] for part in parts if part in SAID)


class Value(NamedTuple):
    """A number of one run with the weight that it was made of; None: not measured."""

    value: OptionalFloat
    weight: float = 0.0

    @property
    def total(self) -> float:
        """What a mean per unit of weight adds up to; 0 where nothing was measured."""
        return 0.0 if self.value is None else self.value * self.weight


class Curve(NamedTuple):
    """A run's rows pooled by step: steps, values (NaN: not measured) and their weights."""

    steps: Floats
    values: Floats
    weights: Floats


@dataclass(frozen=True)
class Summary:
    """One reading of an arm: the value of each run by its seed, and their mean, each run once."""

    reading: Reading
    seeds: "Seeds"
    by_seed: Mapping[int, Value]

    @property
    def mean(self) -> OptionalFloat:
        """The mean over the runs that measured it."""
        return average(number.value for number in self.by_seed.values())

    @property
    def largest(self) -> OptionalFloat:
        """The largest of the runs that measured it."""
        return max(
            (number.value for number in self.by_seed.values() if number.value is not None),
            default=None,
        )


def average(values: Iterable[OptionalFloat]) -> OptionalFloat:
    """The mean of the known values, each once; None where there are none."""
    present = _known(values)
    return sum(present) / len(present) if present else None


def middle(values: Iterable[OptionalFloat]) -> OptionalFloat:
    """The median of the known values; None where there are none."""
    present = _known(values)
    return median(present) if present else None


def _known(values: Iterable[OptionalFloat]) -> list[float]:
    return [float(value) for value in values if value is not None and value == value]


LATER = Window(minibatch=Minibatch.LATER)

CLIP_EVERYWHERE = Reading(CLIP_FRACTION)
"""The share of response tokens that the clip binds, over all mini-batches."""
CLIP = Reading(CLIP_FRACTION, LATER)
"""The same of mini-batches >= 1: on the first one all ratios are 1.

What a page calls "clipped" without more.
"""
CLIP_GRADIENT = Reading("clip_fraction_gradient", LATER)
"""The share of the gradient that the clip takes. Only the native engine records it."""
CLIP_ACTIVE = Reading("clip_fraction_active_tokens", LATER)
"""The share of the tokens with an advantage, by which saturation is judged."""
WOULD_CLIP = {
    rule: Reading(f"would_clip_fraction_tokens_{rule}", LATER) for rule in ("grpo", "gspo")
}
"""Per rule the share that it would have clipped on the same batches."""
CHANGE_LATER = Reading("expert_change", LATER)
"""The share of activated experts that the router would choose differently by now."""

REWARD = Reading("reward_mean", Window(Steps.ALL), Reduce.LAST_FIFTH)
"""The mean training reward over the last fifth of the steps."""
LATEST_REWARD = Reading("reward_mean", Window(Steps.ALL), Reduce.LATEST)
"""The mean training reward where a run stands."""
DEVICE_SECONDS = Reading("device_seconds_total", Window(Steps.LAST))
"""The seconds of all devices together up to a run's planned end."""
PEAK_MEMORY = Reading("peak_memory_bytes", Window(Steps.ALL), Reduce.LARGEST)
"""The peak memory of any step."""
