"""What becomes of the records of a run: one number, which claims compare from arm to arm."""

from collections.abc import Callable, Mapping

import numpy as np

from gspo_lab.claims.estimates import Untestable
from gspo_lab.claims.needs import length_bins
from gspo_lab.claims.recorded import Details, Recorded
from gspo_lab.objectives.measures import WITHOUT_CLIP
from gspo_lab.records import UpdateRecord
from gspo_lab.stats.arrays import Floats
from gspo_lab.stats.series import held, last_fifth, normalised_auc


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


def _variance_within(recorded: Recorded, arm: str, seed: int) -> Floats:
    one = recorded.details(arm, seed)
    long = one.length > 1
    variance: Floats = one.squares[long] / one.length[long] - (one.total[long] / one.length[long]) ** 2
    return variance


def _clipped(recorded: Recorded, arm: str, seed: int) -> Details:
    """The responses' own numbers, of an arm whose loss clips."""
    loss = recorded.settings[arm].objective.policy_loss
    if loss in WITHOUT_CLIP:
        raise Untestable(f"{arm} clips nothing: policy_loss = '{loss}'")
    return recorded.details(arm, seed)


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
    one = recorded.details(arm, seed)
    bins = length_bins(one.length)
    spread = np.array([(one.total[own] / one.length[own]).std() for own in bins])
    if not (spread > 0).all():
        raise Untestable(f"a length bin of {arm}, seed {seed}, has no spread of log-ratios")
    log_length = np.log([one.length[own].mean() for own in bins])
    return log_length, spread, np.array([one.total[own].var() for own in bins])


def _slope(log_length: Floats, spread: Floats) -> float:
    return float(np.polyfit(log_length, np.log(spread), 1)[0])


STATISTICS: Mapping[str, Callable[..., float]] = {
    "mean over updates": lambda of, arm, seed, metric: of.settled(arm, seed, metric)[metric].mean(),
    "mean over updates with minibatch = 0": lambda of, arm, seed, metric: (rows := of.settled(arm, seed, metric))[
        rows["minibatch"] == 0
    ][metric].mean(),
    "mean over updates with minibatch >= 1": lambda of, arm, seed, metric: of.settled(arm, seed, metric, later=True)[
        metric
    ].mean(),
    "mean over steps": lambda of, arm, seed, metric: of.of(arm, seed, "steps", metric)[metric].mean(),
    "mean over the last fifth": lambda *run: last_fifth(_by_step(*run)[1]),
    "area under the curve": lambda *run: normalised_auc(*_by_step(*run)),
    "largest": lambda *run: _by_step(*run)[1].max(),
    "mean over the last evaluations": lambda of, arm, seed, metric=None: of.final(arm, seed, metric),
}
"""What becomes of a metric in one run. Over updates: those after the learning rate's warm-up. A curve is the metric per
step (an update's metric: its mean over the step), or a benchmark's score at its evaluations."""

NUMBERS: Mapping[str, Callable[..., float]] = {
    **STATISTICS,
    "largest with minibatch = 0": lambda of, arm, seed, metric: (rows := of.of(arm, seed, "updates", metric))[
        rows["minibatch"] == 0
    ][metric].max(),
    "largest with minibatch >= 1": lambda of, arm, seed, metric: of.settled(arm, seed, metric, later=True)[
        metric
    ].max(),
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
"""What the library's rows may name beside that. With a metric: the largest over all steps, and over settled updates.
Without: all planned steps where a run stands; then of l_t in the recorded responses of settled updates with minibatch
>= 1. "mean over the last evaluations" without a metric is of the primary benchmark."""
