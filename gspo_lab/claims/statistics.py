"""What becomes of the records of a run: one number, which claims compare from arm to arm."""

from collections.abc import Callable, Mapping

import numpy as np

from gspo_lab.claims.estimates import Untestable
from gspo_lab.claims.needs import length_bins
from gspo_lab.claims.recorded import Details, Recorded, details
from gspo_lab.readings import Minibatch, Reading, Reduce, Steps, Window
from gspo_lab.readings.read import CURVES
from gspo_lab.stats.arrays import Floats

Template = tuple[Window, Reduce]
"""Which rows of a run count, and what becomes of them."""


def _variance_within(recorded: Recorded, arm: str, seed: int) -> Floats:
    one = details(recorded, arm, seed)
    long = one.length > 1
    variance: Floats = one.squares[long] / one.length[long] - (one.total[long] / one.length[long]) ** 2
    return variance


def _clipped(recorded: Recorded, arm: str, seed: int) -> Details:
    """The responses' own numbers, of an arm whose loss clips."""
    objective = recorded.settings[arm].objective
    if objective.loss.clips is None:
        raise Untestable(f"{arm} clips nothing: policy_loss = '{objective.policy_loss}'")
    return details(recorded, arm, seed)


def _clipped_in_part(recorded: Recorded, arm: str, seed: int) -> float:
    one = _clipped(recorded, arm, seed)
    return float(((one.clipped > 0) & (one.clipped < one.length)).sum())


def _clipped_shortest_minus_longest(recorded: Recorded, arm: str, seed: int) -> float:
    one = _clipped(recorded, arm, seed)
    low, high = np.quantile(one.length, [1 / 3, 2 / 3])
    short, long = one.length <= low, one.length >= high
    shares = [one.clipped[third].sum() / one.length[third].sum() for third in (short, long)]
    return float(shares[0] - shares[1])


def _by_length(recorded: Recorded, arm: str, seed: int) -> tuple[Floats, Floats, Floats]:
    """Per length bin: log of the mean length, std of the responses' mean l, variance of their sum."""
    one = details(recorded, arm, seed)
    bins = length_bins(one.length)
    spread = np.array([(one.total[own] / one.length[own]).std() for own in bins])
    if not (spread > 0).all():
        raise Untestable(f"a length bin of {arm}, seed {seed}, has no spread of log-ratios")
    log_length = np.log([one.length[own].mean() for own in bins])
    return log_length, spread, np.array([one.total[own].var() for own in bins])


def _slope(log_length: Floats, spread: Floats) -> float:
    return float(np.polyfit(log_length, np.log(spread), 1)[0])


LAST_EVALUATIONS = "mean over the last evaluations"
"""The score of a run's end; without a metric that of the primary benchmark."""
STATISTICS: Mapping[str, Template] = {
    "mean over updates": (Window(), Reduce.MEAN),
    "mean over updates with minibatch = 0": (Window(minibatch=Minibatch.FIRST), Reduce.MEAN),
    "mean over updates with minibatch >= 1": (Window(minibatch=Minibatch.LATER), Reduce.MEAN),
    "mean over steps": (Window(Steps.ALL), Reduce.MEAN),
    "mean over the last fifth": (Window(Steps.ALL), Reduce.LAST_FIFTH),
    "area under the curve": (Window(Steps.ALL), Reduce.AREA),
    "largest": (Window(Steps.ALL), Reduce.PEAK),
    "largest with minibatch = 0": (Window(Steps.ALL, Minibatch.FIRST), Reduce.LARGEST),
    "largest with minibatch >= 1": (Window(minibatch=Minibatch.LATER), Reduce.LARGEST),
}
"""What becomes of a metric in one run. Over updates: those after the learning rate's warm-up. A curve is the metric per
step (an update's metric: the mean of the step's updates), or a benchmark's score at its evaluations."""


def number(recorded: Recorded, arm: str, seed: int, statistic: str, metric: str | None = None) -> float:
    """A run's number by a statistic's name, of a metric or benchmark where the statistic has one. May be Untestable."""
    if statistic == LAST_EVALUATIONS:
        return recorded.final(arm, seed, metric)
    if statistic not in STATISTICS:
        return float(RUN_STATISTICS[statistic](recorded, arm, seed))
    window, reduce = STATISTICS[statistic]
    if metric in recorded.found.declaration.benches:
        rows = recorded.scores(arm, seed, metric)
        return CURVES[reduce](rows["step"].to_numpy(dtype=np.float64), rows["score"].to_numpy(dtype=np.float64))
    return recorded.number(Reading(metric or "", window, reduce), arm, seed)


RUN_STATISTICS: Mapping[str, Callable[[Recorded, str, int], float]] = {
    "steps until collapse": lambda of, arm, seed: (
        of.settings[arm].steps if (onset := of.stability(arm, seed).collapse) is None else onset
    ),
    "responses clipped in part": _clipped_in_part,
    "std within responses": lambda *run: np.sqrt(np.maximum(_variance_within(*run), 0)).mean(),
    "median variance within responses": lambda *run: np.median(_variance_within(*run)),
    "clipped share, shortest - longest third": _clipped_shortest_minus_longest,
    "slope of log std of means on log length": lambda *run: _slope(*_by_length(*run)[:2]),
    "slope of log variance of sums on log length": lambda *run: _slope(*_by_length(*run)[::2]),
}
"""What the library's rows may name without a metric. "steps until collapse" is the planned number where the run stands.
The others are of l_t in the recorded responses of settled updates with minibatch >= 1."""
