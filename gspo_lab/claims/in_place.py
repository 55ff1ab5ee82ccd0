"""A claim written in the study itself: a recorded metric, a statistic of it, two arms and a bound."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gspo_lab.claims import needs
from gspo_lab.claims.claim import Claim, Roles
from gspo_lab.claims.parts import Reading, Region, Untestable, over_seeds
from gspo_lab.claims.recorded import Recorded
from gspo_lab.records import UpdateRecord
from gspo_lab.stats.series import held, last_fifth, normalised_auc
from gspo_lab.study import ClaimTable

OF, AGAINST = "of", "against"

Statistic = Callable[[Recorded, str, int, str], float]
"""(recorded, arm, seed, metric) -> one number of a run."""


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


def _last_evaluations(recorded: Recorded, arm: str, seed: int, metric: str) -> float:
    return recorded.final(arm, seed, metric)


STATISTICS: Mapping[str, Statistic] = {
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


def _by_step(recorded: Recorded, arm: str, seed: int, metric: str) -> tuple[Any, Any]:
    """The curve from its first measured value on; gaps carry the value before them."""
    if metric == "reward_mean":
        return recorded.reward(arm, seed)
    if metric in recorded.found.declaration.benches:
        rows = recorded.scores(arm, seed, metric)
        return rows["step"].to_numpy(dtype=float), rows["score"].to_numpy(dtype=float)
    table = "updates" if metric in UpdateRecord.__dataclass_fields__ else "steps"
    means = recorded.of(arm, seed, table, metric).groupby("step")[metric].mean()
    steps, heights = held(means.index, means, int(means.index.max()))
    if not len(steps):
        raise Untestable(f"{metric} is finite at no step of {arm}, seed {seed}")
    return steps, heights


def from_table(table: ClaimTable) -> Claim:
    """The claim of a `[[claim]]` table that names a metric; the table has passed the study's own checks."""
    metric, statistic, ratio = table.metric, table.statistic, table.comparison == "ratio"
    assert metric is not None
    assert statistic is not None
    of_run = STATISTICS[statistic]
    supported, contradicted = _regions(table)
    sign = "/" if ratio else "-"
    name = f"{metric}, {statistic}"

    def evaluate(recorded: Recorded, roles: Roles) -> Reading:
        found: dict[int, float] = {}
        for seed in recorded.seeds(roles.values()):
            a, b = (of_run(recorded, roles[role], seed, metric) for role in (OF, AGAINST))
            if ratio and not (a > 0 and b > 0):
                raise Untestable(
                    f"a ratio needs values above 0; at seed {seed} {roles[OF]} has {a:g} and {roles[AGAINST]} {b:g}"
                )
            found[seed] = a / b if ratio else a - b
            if not np.isfinite(found[seed]):
                raise Untestable(f"{metric} is not finite in {roles[OF]} or {roles[AGAINST]}, seed {seed}")
        label = f"{name}: {roles[OF]} {sign} {roles[AGAINST]}"
        return Reading((over_seeds(label, found, supported, contradicted, ratio=ratio),))

    return Claim(
        id=table.name,
        grade="C",
        statement=f"{name}: the {table.comparison} of the two arms lies {supported}.",
        source="this study",
        value="its own expectation",
        criterion=f"{supported}; contradicted {' or '.join(str(region) for region in contradicted)}",
        roles=(OF, AGAINST),
        needs=(needs.seeds(),),
        evaluate=evaluate,
    )


def _regions(table: ClaimTable) -> tuple[Region, list[Region]]:
    if table.inside is not None:
        low, high = table.inside
        return Region(low, high), [Region(below=low), Region(above=high)]
    if table.above is not None:
        return Region(above=table.above), [Region(below=table.above)]
    return Region(below=table.below), [Region(above=table.below)]
