"""What most claims are made of: one number per run, compared by seed, or held to a limit."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gspo_lab.analysis.claims.data import ClaimData
from gspo_lab.analysis.claims.estimates import Estimate, Region, Untestable, exact, not_recorded
from gspo_lab.analysis.readings import Minibatch, Reading, Reduce, Steps, Window, by_minibatch
from gspo_lab.analysis.readings.curves import weights_within
from gspo_lab.analysis.readings.reading import CURVES

Statistic = Callable[[ClaimData, str, int], float]
"""The number of a run of an arm and a seed. Raises Untestable where it was not measured."""

EQUAL = 1e-6
"""Numbers of two arms that agree to this, relatively, are identical: training computes in float32.
"""

LAST_EVALUATIONS = "mean over the last evaluations"
"""The score of a run's end."""
STATISTICS: Mapping[str, tuple[Window, Reduce]] = {
    "mean over updates": (Window(), Reduce.MEAN),
    "mean over updates with minibatch = 0": (Window(minibatch=Minibatch.FIRST), Reduce.MEAN),
    "mean over updates with minibatch >= 1": (Window(minibatch=Minibatch.LATER), Reduce.MEAN),
    "mean over steps": (Window(Steps.ALL), Reduce.MEAN),
    "mean over the last fifth": (Window(Steps.ALL), Reduce.LAST_FIFTH),
    "area under the curve": (Window(Steps.ALL), Reduce.AREA),
    "largest": (Window(Steps.ALL), Reduce.PEAK),
}
"""How a metric becomes a number of one run: the rows that count, and their reduction. "Over
updates" means those after the learning rate's warm-up. A curve is the metric per step (of updates
their mean), or a benchmark's scores.
"""


def statistic(name: str, metric: str) -> Statistic:
    """The statistic of that name of a recorded metric or of a benchmark."""

    def of_run(data: ClaimData, arm: str, seed: int) -> float:
        if name == LAST_EVALUATIONS:
            return data.final(arm, seed, metric)
        window, reduce = STATISTICS[name]
        if metric in data.source.declaration.benches:
            return CURVES[reduce](*data.scores(arm, seed, metric))
        return data.number(Reading(metric, window, reduce), arm, seed)

    return of_run


def final_score(data: ClaimData, arm: str, seed: int) -> float:
    """The score of a run's end on the primary benchmark."""
    return data.final(arm, seed)


def largest(metric: str, window: Window) -> Statistic:
    """A metric's largest value among the rows of a window."""
    reading = Reading(metric, window, Reduce.LARGEST)
    return lambda data, arm, seed: data.number(reading, arm, seed)


def rise_over_minibatches(metric: str) -> Statistic:
    """The mean over the updates of the last mini-batch less that of mini-batch 1."""
    last = Reading(metric, Window(minibatch=Minibatch.FINAL))
    second = Reading(metric, Window(minibatch=Minibatch.SECOND))
    return lambda data, arm, seed: data.number(last, arm, seed) - data.number(second, arm, seed)


def within_responses(name: str) -> Statistic:
    """A number of the recorded responses of settled updates with minibatch >= 1."""

    def of_run(data: ClaimData, arm: str, seed: int) -> float:
        weights = weights_within(data.source, data.run(arm, seed))
        if weights is None:
            raise not_recorded("response_detail", arm, seed)
        return float(getattr(weights, name))

    return of_run


def mean_over_seeds(
    data: ClaimData,
    name: str,
    number: Statistic,
    arms: Sequence[str],
    supported: Region | None,
    contradicted: Sequence[Region] | None = None,
    *,
    ratio: bool = False,
    final_scores: bool = False,
) -> Estimate:
    """The number of an arm, or the difference (ratio) of the first arm to the second, by seed.

    `final_scores`: the interval includes the variance of finitely many answers.
    """
    values = {seed: _comparison(data, name, number, arms, seed, ratio) for seed in data.seeds}
    scores_of = arms if final_scores else ()
    return data.over_seeds(name, values, supported, contradicted, ratio=ratio, scores_of=scores_of)


def _comparison(
    data: ClaimData, name: str, number: Statistic, arms: Sequence[str], seed: int, ratio: bool
) -> float:
    values = [number(data, arm, seed) for arm in arms]
    if ratio and not all(value > 0 for value in values):
        measured = [f"{arm} has {value:g}" for arm, value in zip(arms, values, strict=True)]
        text = f"a ratio needs values above 0; at seed {seed} {' and '.join(measured)}"
        raise Untestable("ratio-of-nothing", text)
    value = values[0]
    if len(values) == 2:
        baseline = values[0] if math.isclose(*values, rel_tol=EQUAL) else values[1]
        value = value / baseline if ratio else value - baseline
    if not np.isfinite(value):
        text = f"{name} is not finite in {' or '.join(arms)}, seed {seed}"
        raise Untestable("not-finite", text)
    return value


def largest_of_runs(
    data: ClaimData, name: str, number: Statistic, arms: Sequence[str], at_most: float
) -> Estimate:
    """A number that must be at most so large in each run of the arms."""
    values = {}
    for seed in data.seeds:
        for arm in arms:
            values[f"{arm}/s{seed}"] = number(data, arm, seed)
    return exact(name, values, at_most)


def largest_in_updates(
    data: ClaimData,
    name: str,
    metric: str,
    *,
    updates: str = "rollout batch",
    relative: bool = False,
    at_most: float,
) -> Estimate:
    """The largest difference of the claim's two arms in updates of the first step, by seed.

    `updates`: of the first "mini-batch", or of the first "rollout batch". A `relative` difference
    is taken wherever one of the two is above 0.
    """
    values = {}
    for seed in data.seeds:
        differences = _differences_by_minibatch(data, metric, seed, updates, relative)
        if differences:
            values[f"s{seed}"] = max(differences)
    if not values:  # no response had an advantage
        text = (
            f"no response of any seed's first {updates} had an advantage: the gradients compared"
            " are 0"
        )
        raise Untestable("no-advantage", text)
    return exact(name, values, at_most)


def _differences_by_minibatch(
    data: ClaimData, metric: str, seed: int, updates: str, relative: bool
) -> list[float]:
    """Untestable where the arms have different numbers of mini-batches."""
    split = {data.settings(arm).update.minibatches for arm in data.arms}
    if len(split) > 1:
        counts = " and ".join(map(str, sorted(split)))
        text = (
            f"rollout batches are split into {counts} mini-batches: the first update is of other"
            " responses"
        )
        raise Untestable("other-minibatches", text)
    reading = Reading(metric, Window(Steps.STEP_0))
    by_arm = []
    for arm in data.arms:
        data.value(Reading(metric, Window(Steps.ALL)), arm, seed)
        by_arm.append(by_minibatch(data.source, reading)[data.run(arm, seed)])
    shared = sorted(by_arm[0].keys() & by_arm[1].keys())
    if updates == "mini-batch":
        shared = [index for index in shared if index == 0]
    differences = []
    for index in shared:
        a = by_arm[0][index].value
        b = by_arm[1][index].value
        if a is None or b is None:
            continue
        if not relative:
            differences.append(abs(a - b))
        elif max(a, b) > 0:
            differences.append(abs(a - b) / max(a, b))
    return differences
