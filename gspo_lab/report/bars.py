"""Bars by mini-batch index, every seed and their mean."""

import pandas as pd

from gspo_lab.report.chart import Series
from gspo_lab.report.frames import groups, mean, value


def per_minibatch(frame: pd.DataFrame, order: list[str], metric: str) -> tuple[Series, ...]:
    """Per arm the metric by mini-batch index, weighted by tokens within a run: every seed, and their mean.

    `frame` is what `Evidence.by_minibatch` gives.
    """
    out: list[Series] = []
    for colour, arm in enumerate(order):
        runs = {
            int(seed): {int(index): value(height) for index, height in zip(own["minibatch"], own[metric], strict=True)}
            for seed, own in groups(frame[frame["arm"] == arm], "seed")
        }
        indices = sorted({index for run in runs.values() for index in run})
        x = tuple(str(index) for index in indices)
        if len(runs) > 1:
            out += [
                Series(arm, colour, x, tuple(run.get(index) for index in indices), seed=seed)
                for seed, run in runs.items()
            ]
        out.append(Series(arm, colour, x, tuple(mean([run.get(i) for run in runs.values()]) for i in indices)))
    return tuple(out)
