"""From rows run by run to one labelled frame, column by column: a million rows in a second or two."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pandas import DataFrame

Floats = NDArray[np.float64]


class Run(NamedTuple):
    """What every row of a frame says of where it comes from."""

    id: str
    arm: str
    seed: int


def framed(found: Mapping[Run, Sequence[tuple[Any, ...]]], columns: Mapping[str, type]) -> "DataFrame":
    """run_id, arm, seed and the rows' `columns`, run after run.

    Columns of int or float hold numbers, NaN where nothing was measured; those of object stay as they are.
    """
    from pandas import DataFrame

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
    flat = np.fromiter(chain.from_iterable(rows), dtype=np.float64, count=2 * len(rows))
    return flat[0::2], flat[1::2]
