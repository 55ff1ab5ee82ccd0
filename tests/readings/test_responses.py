"""What was recorded response by response is read in the window of the numbers beside it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_lab import make_lab

from gspo_lab.readings import Source
from gspo_lab.readings.reading import LATER
from gspo_lab.readings.responses import band_shares, responses, shared_bounds, spread_by_length
from gspo_lab.records import Record, UpdateRecord
from gspo_lab.store import Evidence
from gspo_lab.study import Run

RUN = "toy/gspo/s0"


def detailed(run: Run, record: Record) -> Record:
    """Every second step holds two responses; every update counts what four times the range would bind: its step."""
    if not isinstance(record, UpdateRecord):
        return record
    counts = {rule: {"low": [0] * 5, "high": [0, 0, 0, 0, record.step]} for rule in ("grpo", "gspo")}
    lists: dict[str, list[Any]] = {"length": [10, 20], "sum_log_ratio": [float(record.step), 1.0]}
    detail = lists if record.step % 2 == 0 else None
    return replace(record, band_counts=counts, response_detail=detail, response_tokens=100)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_lab(tmp_path_factory.mktemp("detail"), seeds=1, steps=6, change=detailed)


def test_responses_are_of_settled_steps_and_later_minibatches(database: Path) -> None:
    """Steps 0 and 1 warm up, odd steps hold no responses: 2 steps x 3 mini-batches x 2 responses are left."""
    with Evidence.open(database) as evidence:
        found = responses(Source(evidence, "toy"), ("length", "sum_log_ratio"), LATER, range(6))[RUN]
        none = responses(Source(evidence, "toy"), ("length",), LATER, [1, 3])[RUN]
    assert found["length"].tolist() == [10, 20] * 6
    assert found["sum_log_ratio"].tolist() == [2, 1] * 3 + [4, 1] * 3
    assert none["length"].tolist() == []


def test_band_counts_are_of_all_settled_updates(database: Path) -> None:
    """Also of those without responses: steps 2 to 5, four updates of 100 tokens each."""
    with Evidence.open(database) as evidence:
        shares = band_shares(Source(evidence, "toy"), RUN)
    assert shares["gspo"].tolist() == pytest.approx([0, 0, 0, 0, 4 * (2 + 3 + 4 + 5) / 1600])


def test_bins_of_like_length_are_shared() -> None:
    lengths = [np.array([1.0, 2.0, 9.0, 10.0]), np.array([2.0, 2.0, 9.0, 9.0])]
    bounds = shared_bounds(lengths, 2)
    assert bounds.tolist() == [5.5]
    points = spread_by_length(lengths[0], np.array([0.0, 2.0, 1.0, 1.0]), bounds, 2)
    assert points == [(1.5, 1.0), (9.5, 0.0)]
    assert spread_by_length(lengths[0], lengths[0], bounds, 3) == []
