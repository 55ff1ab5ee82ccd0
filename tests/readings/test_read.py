"""A pool keeps its weight: SQL, numpy and every way of splitting rows give one mean."""

import math
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_lab import make_lab

from gspo_lab.readings import (
    FINISHED,
    RECORDED,
    Minibatch,
    Reading,
    Reduce,
    Source,
    Steps,
    Value,
    Weight,
    Window,
    by_minibatch,
    by_step,
    decided,
    pooled,
    read,
    runs,
    summarise,
)
from gspo_lab.store import Evidence

RUN = "toy/grpo/s0"
Row = tuple[float | None, int | None, int | None]
"""Clipped share of the response tokens, response tokens, active tokens."""

ROWS = st.lists(
    st.tuples(
        st.none() | st.floats(0, 1, allow_subnormal=False),
        st.none() | st.integers(1, 5000),
        st.none() | st.integers(1, 5000),
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_lab(tmp_path_factory.mktemp("rows"), seeds=1, steps=12)


def recorded(database: Path, rows: Sequence[Row]) -> None:
    """GRPO's run with these updates, three a step from step 0 on, and no others."""
    columns = "run_id, step, minibatch, clip_fraction_tokens, response_tokens, active_tokens"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("DELETE FROM updates WHERE run_id = ?", (RUN,))
        for place, row in enumerate(rows):
            values = (RUN, place // 3, place % 3, *row)
            connection.execute(f"INSERT INTO updates ({columns}) VALUES (?, ?, ?, ?, ?, ?)", values)


def by_hand(rows: Iterator[Row], weight: Weight) -> Value:
    known = [
        (share, 1 if weight is Weight.ROWS or not tokens else tokens) for share, tokens, _ in rows if share is not None
    ]
    total = sum(tokens for _, tokens in known)
    return Value(sum(share * tokens for share, tokens in known) / total if total else None, float(total))


@given(ROWS, st.sampled_from(Weight), st.sampled_from((Minibatch.ALL, Minibatch.FIRST, Minibatch.LATER)))
def test_sql_numpy_and_every_split_give_one_mean(
    database: Path, rows: list[Row], weight: Weight, minibatch: Minibatch
) -> None:
    """`pooled` of the spans, of the mini-batches and of the steps is `read`, for records with gaps and without rows."""
    recorded(database, rows)
    reading = Reading("clip_fraction_tokens", Window(Steps.ALL, minibatch), weight=weight)
    keep = {Minibatch.ALL: range(3), Minibatch.FIRST: range(1), Minibatch.LATER: range(1, 3)}[minibatch]
    expected = by_hand((row for place, row in enumerate(rows) if place % 3 in keep), weight)
    with Evidence.open(database) as evidence:
        of = Source(evidence, "toy")
        found, curve = read(of, reading).get(RUN, Value(None)), by_step(of, reading)[RUN]
        pools = [pool for index, pool in by_minibatch(of, reading)[RUN].items() if index in keep]
    assert (found.value is None) == (expected.value is None)
    if expected.value is not None:
        assert found == (pytest.approx(expected.value, rel=1e-12, abs=1e-15), expected.weight)
    for size in (1, 2, 5):
        spans = [
            pooled(curve.values[i : i + size], curve.weights[i : i + size]) for i in range(0, len(curve.steps), size)
        ]
        for split in (spans, pools):
            values = np.array([math.nan if pool.value is None else pool.value for pool in split])
            again = pooled(values, np.array([pool.weight for pool in split]))
            assert again.weight == found.weight
            assert again.value == (None if found.value is None else pytest.approx(found.value, rel=1e-12, abs=1e-15))


def test_each_window_weight_and_reduction_by_hand(database: Path) -> None:
    """Steps 0 and 1 warm up. Step 2: (0.2 x 100 + 0.6 x 300) / 400 = 0.5 without mini-batch 0; step 3: 0.1."""
    first, second = (0.9, 50, 10), (0.0, 50, 10)
    recorded(database, [first] * 6 + [second, (0.2, 100, 10), (0.6, 300, 10), second, (0.1, 100, 10)])
    later = Window(minibatch=Minibatch.LATER)
    with Evidence.open(database) as evidence:
        of = Source(evidence, "toy")

        def value(window: Window, reduce: Reduce = Reduce.MEAN, weight: Weight = Weight.OWN) -> float | None:
            return read(of, Reading("clip_fraction_tokens", window, reduce, weight))[RUN].value

        assert value(later) == pytest.approx((0.2 * 100 + 0.6 * 300 + 0.1 * 100) / 500)
        assert value(later, weight=Weight.ROWS) == pytest.approx(0.9 / 3)
        assert value(Window(Steps.ALL, Minibatch.FIRST)) == pytest.approx((0.9 + 0.9) / 4)
        assert value(Window(Steps.STEP_0)) == pytest.approx(0.9)
        assert value(later, Reduce.LARGEST) == 0.6
        assert value(later, Reduce.PEAK) == pytest.approx(0.5)
        assert value(later, Reduce.MEDIAN) == pytest.approx((0.5 + 0.1) / 2)
        # The run is finished: its last measured step holds up to step 11, so ten settled steps count.
        assert value(later, Reduce.AREA) == pytest.approx(((0.5 + 0.1) / 2 + 8 * 0.1) / 9)
        assert value(later, Reduce.LAST_FIFTH) == pytest.approx(0.1)
        assert value(Window(Steps.LAST)) is None


def test_an_arm_is_the_mean_of_its_runs_of_one_set_of_seeds(tmp_path: Path) -> None:
    """Seed 2 of GSPO is unfinished; a look resolved the study after seeds 0 and 1."""
    path = make_lab(tmp_path, end=lambda run: "stopped" if (run.arm, run.seed) == ("gspo", 2) else "finished")
    reading = Reading("clip_fraction_tokens")
    with Evidence.open(path) as evidence:
        of = Source(evidence, "toy")
        every, finished = (summarise(of, reading, "gspo", seeds) for seeds in (RECORDED, FINISHED))
        assert (list(every.by_seed), list(finished.by_seed)) == ([0, 1, 2], [0, 1])
        values = [value.value for value in finished.by_seed.values()]
        assert finished.mean == (values[0] + values[1]) / 2
        assert list(summarise(of, reading, "gspo", decided([1])).by_seed) == [1]
        assert {run.seed for run in runs(of, FINISHED, ("grpo", "gspo"))} == {0, 1}
        assert summarise(of, Reading("kl"), "gspo", RECORDED).mean is None


def test_a_reading_has_a_key_and_a_label() -> None:
    reading = Reading("clip_fraction_tokens", Window(minibatch=Minibatch.LATER))
    assert reading.key == "clip_fraction_tokens.mean.settled.later.own"
    assert reading.label() == "mini-batches ≥ 1, after the learning rate's warm-up"
    assert (reading.table, reading.column.unit) == ("updates", "share of response tokens")
    assert Reading("reward_mean").table == "steps"
