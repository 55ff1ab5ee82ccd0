"""Readings: numbers of a study's record, by metric, rows, weights and runs.

Only this package pools rows. Packages above it compare and show its values.
"""

from gspo_lab.analysis.readings.reading import (
    Minibatch,
    Reading,
    Reduce,
    Steps,
    Value,
    Weight,
    Window,
    average,
    by_layer,
    by_minibatch,
    by_step,
    middle,
    pooled,
    read,
    summarise,
)
from gspo_lab.analysis.readings.runs import (
    FINISHED,
    RECORDED,
    Seeds,
    Source,
    decided,
    deciding,
    once,
    runs,
)

__all__ = [
    "FINISHED",
    "RECORDED",
    "Minibatch",
    "Reading",
    "Reduce",
    "Seeds",
    "Source",
    "Steps",
    "Value",
    "Weight",
    "Window",
    "average",
    "by_layer",
    "by_minibatch",
    "by_step",
    "decided",
    "deciding",
    "middle",
    "once",
    "pooled",
    "read",
    "runs",
    "summarise",
]
