"""What becomes of the records of a run: one number, which claims compare from arm to arm."""

from collections.abc import Callable, Mapping

import numpy as np

from gspo_lab.claims.estimates import Untestable
from gspo_lab.claims.needs import length_bins
from gspo_lab.claims.recorded import Recorded
from gspo_lab.records import UpdateRecord
from gspo_lab.stats.arrays import Floats
from gspo_lab.stats.series import held, last_fifth, normalised_auc


def _over_updates(recorded: Recorded, arm: str, seed: int, metric: str) -> float:
    return float(recorded.settled(arm, seed, metric)[metric].mean())


def _over_first_updates(recorded: Recorded, arm: str, seed: int, metric: str) -> float:
    rows = recorded.settled(arm, seed, metric)
    return float(rows[rows["minibatch"] == 0][metric].mean())


def _over_later_updates(recorded: Recorded, arm: str, seed: int, metric: str) -> float:
    return float(recorded.settled(arm, seed, metric, later=True)[metric].mean())


def _over_steps(recorded: Recorded, arm: str, seed: int, metric: str) -> float:
    return float(recorded.of(arm, seed, "steps", metric)[metric].mean())


def _largest(recorded: Recorded, arm: str, seed: int, metric: str) -> float:
    return float(_by_step(recorded, arm, seed, metric)[1].max())


def _last_fifth(recorded: Recorded, arm: str, seed: int, metric: str) -> float:
    return last_fifth(_by_step(recorded, arm, seed, metric)[1])


def _area(recorded: Recorded, arm: str, seed: int, metric: str) -> float:
    return normalised_auc(*_by_step(recorded, arm, seed, metric))


def _last_evaluations(recorded: Recorded, arm: str, seed: int, metric: str | None = None) -> float:
    return recorded.final(arm, seed, metric)


STATISTICS: Mapping[str, Callable[[Recorded, str, int, str], float]] = {
    "mean over updates": _over_updates,
    "mean over updates with minibatch = 0": _over_first_updates,
    "mean over updates with minibatch >= 1": _over_later_updates,
    "mean over steps": _over_steps,
    "mean over the last fifth": _last_fifth,
    "area under the curve": _area,
    "largest": _largest,
    "mean over the last evaluations": _last_evaluations,
}
"""What becomes of a metric in one run. Over updates: those after the learning rate's warm-up. A curve is the metric per
step (an update's metric: its mean over the step), or a benchmark's score at its evaluations."""


def _by_step(recorded: Recorded, arm: str, seed: int, metric: str) -> tuple[Floats, Floats]:
    """The curve from its first measured value on; gaps carry the value before them."""
    if metric == "reward_mean":
        return recorded.reward(arm, seed)
    if metric in recorded.found.declaration.benches:
        rows = recorded.scores(arm, seed, metric)
        return rows["step"].to_numpy(dtype=np.float64), rows["score"].to_numpy(dtype=np.float64)
    table = "updates" if metric in UpdateRecord.__dataclass_fields__ else "steps"
    means = recorded.of(arm, seed, table, metric).groupby("step")[metric].mean()
    steps, heights = held(means.index, means, int(means.index.max()))
    if not len(steps):
        raise Untestable(f"{metric} is finite at no step of {arm}, seed {seed}")
    return steps, heights


def _at_first_minibatch(recorded: Recorded, arm: str, seed: int, metric: str) -> float:
    rows = recorded.of(arm, seed, "updates", metric)
    return float(rows[rows["minibatch"] == 0][metric].max())


def _at_later_minibatches(recorded: Recorded, arm: str, seed: int, metric: str) -> float:
    return float(recorded.settled(arm, seed, metric, later=True)[metric].max())


def _steps_until_collapse(recorded: Recorded, arm: str, seed: int) -> float:
    onset = recorded.stability(arm, seed).collapse
    return float(recorded.settings[arm].steps if onset is None else onset)


def _clipped_in_part(recorded: Recorded, arm: str, seed: int) -> float:
    one = recorded.details(arm, seed)
    return float(((one.clipped > 0) & (one.clipped < one.length)).sum())


def _std_within_responses(recorded: Recorded, arm: str, seed: int) -> float:
    return float(np.sqrt(np.maximum(_variance_within(recorded, arm, seed), 0)).mean())


def _median_variance_within_responses(recorded: Recorded, arm: str, seed: int) -> float:
    return float(np.median(_variance_within(recorded, arm, seed)))


def _variance_within(recorded: Recorded, arm: str, seed: int) -> Floats:
    one = recorded.details(arm, seed)
    long = one.length > 1
    variance: Floats = one.squares[long] / one.length[long] - (one.total[long] / one.length[long]) ** 2
    return variance


def _clipped_shortest_minus_longest(recorded: Recorded, arm: str, seed: int) -> float:
    one = recorded.details(arm, seed)
    low, high = np.quantile(one.length, [1 / 3, 2 / 3])
    short, long = one.length <= low, one.length >= high
    shares = [one.clipped[third].sum() / one.length[third].sum() for third in (short, long)]
    return float(shares[0] - shares[1])


def _slope_of_mean(recorded: Recorded, arm: str, seed: int) -> float:
    log_length, spread, _ = _by_length(recorded, arm, seed)
    return float(np.polyfit(log_length, np.log(spread), 1)[0])


def _slope_of_sum(recorded: Recorded, arm: str, seed: int) -> float:
    log_length, _, variance = _by_length(recorded, arm, seed)
    return float(np.polyfit(log_length, np.log(variance), 1)[0])


def _by_length(recorded: Recorded, arm: str, seed: int) -> tuple[Floats, Floats, Floats]:
    """Per length bin: log of the mean length, std of the responses' mean l, variance of their sum."""
    one = recorded.details(arm, seed)
    bins = length_bins(one.length)
    spread = np.array([(one.total[own] / one.length[own]).std() for own in bins])
    if not (spread > 0).all():
        raise Untestable(f"a length bin of {arm}, seed {seed}, has no spread of log-ratios")
    log_length = np.log([one.length[own].mean() for own in bins])
    return log_length, spread, np.array([one.total[own].var() for own in bins])


NUMBERS: Mapping[str, Callable[..., float]] = {
    **STATISTICS,
    "largest with minibatch = 0": _at_first_minibatch,
    "largest with minibatch >= 1": _at_later_minibatches,
    "steps until collapse": _steps_until_collapse,
    "responses clipped in part": _clipped_in_part,
    "std within responses": _std_within_responses,
    "median variance within responses": _median_variance_within_responses,
    "clipped share, shortest - longest third": _clipped_shortest_minus_longest,
    "slope of log std of means on log length": _slope_of_mean,
    "slope of log variance of sums on log length": _slope_of_sum,
}
"""What the library's rows may name beside that. With a metric: the largest over all steps, and over settled updates.
Without: all planned steps where a run stands; then of l_t in the recorded responses of settled updates with minibatch
>= 1. "mean over the last evaluations" without a metric is of the primary benchmark."""
