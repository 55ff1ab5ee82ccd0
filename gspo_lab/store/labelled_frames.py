"""From rows to labelled columns: a million rows in a second or two."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pandas import DataFrame

    Floats: TypeAlias = NDArray[np.float64]


class RunKey(NamedTuple):
    """The run of a frame's rows."""

    id: str
    arm: str
    seed: int


def framed(rows_by_run: Mapping[RunKey, Sequence[tuple[Any, ...]]], columns: Mapping[str, type]) -> "DataFrame":
    """run_id, arm, seed and the rows' `columns`, run after run.

    Columns of int or float hold numbers, NaN where nothing was measured; those of object stay as they are.
    """
    import numpy as np
    from pandas import DataFrame

    counts = [len(rows) for rows in rows_by_run.values()]
    lists: list[list[Any]] = [[] for _ in columns]
    for rows in rows_by_run.values():
        for column, part in zip(lists, zip(*rows, strict=True), strict=False):
            column.extend(part)
    data: dict[str, Any] = {
        "run_id": np.repeat(np.array([run.id for run in rows_by_run], dtype=object), counts),
        "arm": np.repeat(np.array([run.arm for run in rows_by_run], dtype=object), counts),
        "seed": np.repeat(np.array([run.seed for run in rows_by_run], dtype=np.int64), counts),
    }
    for (name, kind), values in zip(columns.items(), lists, strict=True):
        gaps = kind is int and None in values
        data[name] = np.array(
            values, dtype={int: np.float64 if gaps else np.int64, float: np.float64}.get(kind, object)
        )
    return DataFrame(data)


def arrays(rows: Sequence[tuple[float | None, ...]], names: Sequence[str]) -> "dict[str, Floats]":
    """Rows of numbers as one array per column, NaN where nothing was measured."""
    import numpy as np

    block = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
    return dict(zip(names, np.ascontiguousarray(block.T), strict=True))


def with_numbers(frame: "DataFrame", columns: Iterable[str]) -> "DataFrame":
    """The frame with `columns` as numbers: pandas reads a column that holds only NULL as objects."""
    return frame.astype({name: "float64" for name in columns if frame[name].dtype == object})
