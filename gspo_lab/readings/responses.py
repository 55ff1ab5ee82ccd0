"""What was recorded response by response, and the counts of tokens that a range would bind: one window for both."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from gspo_lab.readings.read import rows_of
from gspo_lab.readings.reading import Window
from gspo_lab.readings.runs import recorded_runs
from gspo_lab.readings.source import Source, once
from gspo_lab.records import RULES
from gspo_lab.stats.arrays import Floats

Columns: TypeAlias = Mapping[str, Floats]


def responses(of: Source, names: Sequence[str], window: Window, at: Iterable[int]) -> Mapping[str, Columns]:
    """Per run id the lists `names` of `response_detail`, put together over the window's updates of the steps `at`; an
    empty array where nothing was recorded."""
    lists = ", ".join(f"json_extract(response_detail, '$.{name}')" for name in names)
    where = "response_detail IS NOT NULL AND step IN (SELECT value FROM json_each(?))"
    out = {}
    for run in recorded_runs(of):
        rows = rows_of(of, run, lists, window, where, json.dumps(sorted(at)))
        parts = [[np.asarray(json.loads(text), dtype=np.float64) for text in row] for row in rows]
        columns = zip(*parts, strict=True) if parts else [[np.zeros(0)] for _ in names]
        out[run.id] = {name: np.concatenate(list(column)) for name, column in zip(names, columns, strict=True)}
    return out


@once
def band_counts(of: Source, run: str) -> tuple[Mapping[str, Floats], float]:
    """Per rule the response tokens of a run that its reference range x BAND_SCALES would bind, over all settled updates
    that counted them, and these updates' tokens; ({}, 0) where none did."""
    row = next(recorded for recorded in recorded_runs(of) if recorded.id == run)
    found = rows_of(of, row, "band_counts, response_tokens", Window(), "band_counts IS NOT NULL")
    tokens = float(sum(count or 0 for _, count in found))
    counts = [json.loads(text) for text, _ in found]
    if not tokens:
        return {}, 0.0
    sides = {rule: [np.add(update[rule]["low"], update[rule]["high"]) for update in counts] for rule in RULES}
    return {rule: np.asarray(updates, dtype=np.float64).sum(axis=0) for rule, updates in sides.items()}, tokens


def band_shares(of: Source, run: str) -> Mapping[str, Floats]:
    """Per rule these counts as shares of the tokens; empty where nothing was counted."""
    counts, tokens = band_counts(of, run)
    return {rule: counted / tokens for rule, counted in counts.items()}


def shared_bounds(lengths: Iterable[Floats], bins: int) -> Floats:
    """Bounds of so many bins of like length, each with as many of all the responses."""
    levels: Floats = np.quantile(np.concatenate(list(lengths)), np.linspace(0, 1, bins + 1)[1:-1])
    return np.unique(levels)


def spread_by_length(length: Floats, value: Floats, bounds: Floats, least: int) -> list[tuple[float, float]]:
    """Mean length and standard deviation of `value` of the responses between the bounds; bins with fewer than `least`
    responses are left out."""
    bins = np.searchsorted(bounds, length, side="right")
    full = [index for index in range(len(bounds) + 1) if np.count_nonzero(bins == index) >= least]
    return [(float(length[bins == index].mean()), float(value[bins == index].std())) for index in full]
