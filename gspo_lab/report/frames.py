"""From Evidence's labelled frames to the series of a chart."""

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from gspo_lab.report.chart import Chart, Series, Value

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

ENVELOPE = "The shaded range reaches from the lowest to the highest value of any seed"
MEAN = "Thin: one line per seed. Thick: their mean, drawn where every seed of the arm has a value."


def arms(evidence: "Evidence", study: str) -> list[str]:
    """The study's arms in their declared order, which is also the order of the colours."""
    return list(evidence.study(study)["arms"])


def value(number: Any) -> Value:
    """A float, or None for what was not measured or is not finite."""
    if number is None or number is pd.NA or not math.isfinite(number):
        return None
    return float(number)


def mean(values: Sequence[Value]) -> Value:
    """The mean of the known values; None where there are none."""
    known = [one for one in values if one is not None]
    return sum(known) / len(known) if known else None


def groups(frame: pd.DataFrame, *columns: str) -> list[tuple[Any, pd.DataFrame]]:
    """The rows of each value of a column (of each tuple of several), in order."""
    return list(frame.groupby(columns[0] if len(columns) == 1 else list(columns), sort=True))


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows, one dictionary each."""
    return [{str(key): entry for key, entry in row.items()} for row in frame.to_dict("records")]


def json_column(column: "pd.Series[Any]") -> list[Any]:
    """A column of JSON texts as objects; None where nothing was recorded."""
    return [json.loads(text) if isinstance(text, str) else None for text in column]


def over_seeds(frame: pd.DataFrame, order: Sequence[str], x: str, y: str) -> tuple[Series, ...]:
    """Per arm one series per seed (where there are several) and their mean, at every x that all its seeds have.

    `frame` holds one row per arm, seed and x; rows without a value are not measured. With columns `low` and `high`
    beside `y` the mean carries an envelope over all seeds.
    """
    found: dict[str, dict[int, dict[float, float]]] = {arm: {} for arm in order}
    for arm, seed, at, height in zip(*(frame[name].tolist() for name in ("arm", "seed", x, y)), strict=True):
        if arm in found and value(height) is not None:
            found[arm].setdefault(int(seed), {})[float(at)] = float(height)
    edges = _edges(frame, x) if "low" in frame.columns else {}
    out: list[Series] = []
    for colour, (arm, seeds) in enumerate(found.items()):
        if not seeds:
            continue
        positions = tuple(sorted({at for points in seeds.values() for at in points}))
        columns = {seed: tuple(points.get(at) for at in positions) for seed, points in sorted(seeds.items())}
        if len(columns) > 1:
            out += [Series(arm, colour, positions, column, seed=seed) for seed, column in columns.items()]
        means = tuple(None if None in row else mean(row) for row in zip(*columns.values(), strict=True))
        low = tuple(edges.get((arm, at), (None, None))[0] for at in positions)
        high = tuple(edges.get((arm, at), (None, None))[1] for at in positions)
        out.append(
            Series(arm, colour, positions, means, low=low if low != high else (), high=high if low != high else ())
        )
    return tuple(out)


def _edges(frame: pd.DataFrame, x: str) -> dict[tuple[str, float], tuple[float, float]]:
    """Per arm and x the lowest and the highest value of any seed."""
    out: dict[tuple[str, float], tuple[float, float]] = {}
    for arm, at, low, high in zip(*(frame[name].tolist() for name in ("arm", x, "low", "high")), strict=True):
        if value(low) is not None and value(high) is not None:
            before = out.get((arm, float(at)), (low, high))
            out[arm, float(at)] = (min(before[0], low), max(before[1], high))
    return out


def curve(
    evidence: "Evidence",
    study: str,
    table: str,
    metric: str,
    *,
    id: str,
    title: str,
    unit: str,
    note: str = "",
    log: bool = False,
    whole: bool = False,
    small: bool = False,
    envelope: bool = False,
) -> Chart:
    """One metric over the training steps: bucket means of every seed, and per arm their mean."""
    frame = evidence.buckets(study, table, metric)
    if not envelope:
        frame = frame.drop(columns=["low", "high"])
    series = over_seeds(frame, arms(evidence, study), "x", "mean")
    if any(one.low for one in series):
        note = f"{note} {ENVELOPE}.".strip()
    return Chart(id, title, "step", unit, series, log=log, note=note, small=small, whole=whole)
