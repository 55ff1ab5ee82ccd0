"""Bars of readings: every seed and their mean."""

from collections.abc import Mapping, Sequence

from gspo_lab.readings import Reading, Source, average, by_minibatch, read, runs
from gspo_lab.report.chart import Series, Value

Bars = Mapping[str, Value]
"""Category -> height."""


def per_minibatch(of: Source, reading: Reading) -> tuple[Series, ...]:
    """Per arm the reading by mini-batch index: every recorded run, and their mean."""
    pools = by_minibatch(of, reading)
    out: list[Series] = []
    for colour, arm in enumerate(of.declaration.arms):
        seeds = {
            run.seed: {str(index): pool.value for index, pool in pools[run.id].items()}
            for run in runs(of)
            if run.arm == arm and pools[run.id]
        }
        indices = sorted({index for bars in seeds.values() for index in bars}, key=int)
        out += bars_of(arm, colour, indices, seeds)
    return tuple(out)


def per_arm(of: Source, reading: Reading, label: str, colour: int, arms: Mapping[str, str]) -> tuple[Series, ...]:
    """One series over categories, each with the arm that it shows: every recorded run, and their mean."""
    values = read(of, reading)
    seeds: dict[int, dict[str, Value]] = {}
    for category, arm in arms.items():
        for run in runs(of):
            if run.arm == arm and values[run.id].weight:
                seeds.setdefault(run.seed, {})[category] = values[run.id].value
    return tuple(bars_of(label, colour, list(arms), dict(sorted(seeds.items()))))


def bars_of(label: str, colour: int, categories: Sequence[str], seeds: Mapping[int, Bars]) -> list[Series]:
    """A series for each seed, where there are several, and one of their means."""
    if not categories:
        return []
    x = tuple(categories)
    out = [Series(label, colour, x, tuple(bars.get(one) for one in x), seed=seed) for seed, bars in seeds.items()]
    means = tuple(average(bars.get(one) for bars in seeds.values()) for one in x)
    return [*(out if len(seeds) > 1 else ()), Series(label, colour, x, means)]
