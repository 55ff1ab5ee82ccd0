"""From rows run by run to one labelled frame, column by column: a million rows in a second or two."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

Floats = NDArray[np.float64]


class Run(NamedTuple):
    """What every row of a frame says of where it comes from."""

    id: str
    arm: str
    seed: int


def framed(found: Mapping[Run, Sequence[tuple[Any, ...]]], columns: Mapping[str, type]) -> DataFrame:
    """run_id, arm, seed and the rows' `columns`, run after run.

    Columns of int or float hold numbers, NaN where nothing was measured; those of object stay as they are.
    """
    counts = [len(rows) for rows in found.values()]
    lists: list[list[Any]] = [[] for _ in columns]
    for rows in found.values():
        for column, part in zip(lists, zip(*rows, strict=True), strict=False):
            column.extend(part)
    data: dict[str, Any] = {
        "run_id": np.repeat(np.array([run.id for run in found], dtype=object), counts),
        "arm": np.repeat(np.array([run.arm for run in found], dtype=object), counts),
        "seed": np.repeat(np.array([run.seed for run in found], dtype=np.int64), counts),
    }
    for (name, kind), values in zip(columns.items(), lists, strict=True):
        gaps = kind is int and None in values
        data[name] = np.array(
            values, dtype={int: np.float64 if gaps else np.int64, float: np.float64}.get(kind, object)
        )
    return DataFrame(data)


def pairs(rows: Sequence[tuple[float, float]]) -> tuple[Floats, Floats]:
    """Rows of two numbers as two arrays."""
    table = np.array(rows, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def summed(parts: Sequence[tuple[Any, ...]], metrics: int) -> list[tuple[Any, ...]]:
    """Rows (minibatch, weighted sum, weight, ...) added up by mini-batch: (minibatch, weighted mean, weight, ...)."""
    if not parts:
        return []
    table = np.array(parts, dtype=np.float64)
    minibatches, where = np.unique(table[:, 0].astype(np.int64), return_inverse=True)
    totals = np.zeros((len(minibatches), 2 * metrics))
    np.add.at(totals, where, table[:, 1:])
    sums, weights = totals[:, 0::2], totals[:, 1::2]
    totals[:, 0::2] = np.divide(sums, weights, out=np.full_like(sums, np.nan), where=weights > 0)
    return [(int(index), *row) for index, row in zip(minibatches, totals.tolist(), strict=True)]
