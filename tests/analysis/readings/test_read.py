"""A pool keeps its weight: SQL, numpy and every way of splitting rows give one mean."""

import math
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from case_tables import cases
from hypothesis import given
from hypothesis import strategies as st
from laboratory import source
from synthetic_lab import TWO_ARMS, Change, make_lab

from gspo_lab.analysis.claims.data import ClaimData
from gspo_lab.analysis.claims.estimates import Untestable
from gspo_lab.analysis.readings import (
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
from gspo_lab.analysis.readings.curves import (
    band_counts,
    onsets,
    responses,
    shared_bounds,
    spread_by_length,
)
from gspo_lab.analysis.readings.reading import CLIP, LATER
from gspo_lab.analysis.readings.runs import first_settled
from gspo_lab.analysis.readings.spans import read_spans
from gspo_lab.common.plain_data import OptionalFloat, OptionalInt
from gspo_lab.recording.records import Record, UpdateRecord
from gspo_lab.recording.store import Evidence
from gspo_lab.study import Run

RUN = "toy/grpo/s0"
Row = tuple[OptionalFloat, OptionalInt, OptionalInt]
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
        (share, 1 if weight is Weight.ROWS or not tokens else tokens)
        for share, tokens, _ in rows
        if share is not None
    ]
    total = sum(tokens for _, tokens in known)
    return Value(
        sum(share * tokens for share, tokens in known) / total if total else None, float(total)
    )


def test_k3_weighs_an_update_by_the_tokens_that_it_covers(database: Path) -> None:
    """.9 on the 10 tokens of the two responses with A != 0, then .1 on all 40: (9 + 4) / 50.

    By all response tokens it would be .5, by active ones .3.
    """
    recorded(database, [(None, 40, 10), (None, 40, 30)])
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "UPDATE updates SET responses = 4, evaluated_responses = 2 + 2 * minibatch,"
            " stale_k3 = 0.9 - 0.8 * minibatch WHERE run_id = ?",
            (RUN,),
        )
    with source(database) as of:
        found = read(of, Reading("stale_k3", Window(Steps.ALL)))[RUN]
    assert found == (pytest.approx(0.26), 50.0)


@given(
    ROWS,
    st.sampled_from(Weight),
    st.sampled_from((Minibatch.ALL, Minibatch.FIRST, Minibatch.LATER)),
)
def test_sql_numpy_and_every_split_give_one_mean(
    database: Path, rows: list[Row], weight: Weight, minibatch: Minibatch
) -> None:
    """`pooled` of the spans, of the mini-batches and of the steps equals `read`.

    This holds for records with gaps and without rows.
    """
    recorded(database, rows)
    reading = Reading("clip_fraction_tokens", Window(Steps.ALL, minibatch), weight=weight)
    keep = {Minibatch.ALL: range(3), Minibatch.FIRST: range(1), Minibatch.LATER: range(1, 3)}[
        minibatch
    ]
    expected = by_hand((row for place, row in enumerate(rows) if place % 3 in keep), weight)
    with source(database) as of:
        found = read(of, reading).get(RUN, Value(None))
        curve = by_step(of, reading)[RUN]
        pools = [pool for index, pool in by_minibatch(of, reading)[RUN].items() if index in keep]
    assert (found.value is None) == (expected.value is None)
    if expected.value is not None:
        assert found == (pytest.approx(expected.value, rel=1e-12, abs=1e-15), expected.weight)
    for size in (1, 2, 5):
        spans = [
            pooled(curve.values[i : i + size], curve.weights[i : i + size])
            for i in range(0, len(curve.steps), size)
        ]
        for split in (spans, pools):
            values = np.array([math.nan if pool.value is None else pool.value for pool in split])
            again = pooled(values, np.array([pool.weight for pool in split]))
            assert again.weight == found.weight
            assert again.value == (
                None if found.value is None else pytest.approx(found.value, rel=1e-12, abs=1e-15)
            )


def test_each_window_weight_and_reduction_by_hand(database: Path) -> None:
    """Steps 0 and 1 warm up.

    Step 2: (0.2 x 100 + 0.6 x 300) / 400 = 0.5 without mini-batch 0; step 3: 0.1.
    """
    first = (0.9, 50, 10)
    second = (0.0, 50, 10)
    recorded(
        database, [first] * 6 + [second, (0.2, 100, 10), (0.6, 300, 10), second, (0.1, 100, 10)]
    )
    later = Window(minibatch=Minibatch.LATER)
    with source(database) as of:

        def value(
            window: Window, reduce: Reduce = Reduce.MEAN, weight: Weight = Weight.OWN
        ) -> OptionalFloat:
            return read(of, Reading("clip_fraction_tokens", window, reduce, weight))[RUN].value

        assert value(later) == pytest.approx((0.2 * 100 + 0.6 * 300 + 0.1 * 100) / 500)
        assert value(later, weight=Weight.ROWS) == pytest.approx(0.9 / 3)
        assert value(Window(Steps.ALL, Minibatch.FIRST)) == pytest.approx((0.9 + 0.9) / 4)
        assert value(Window(Steps.STEP_0)) == pytest.approx(0.9)
        assert value(later, Reduce.LARGEST) == 0.6
        assert value(later, Reduce.PEAK) == pytest.approx(0.5)
        assert value(later, Reduce.MEDIAN) == pytest.approx((0.5 + 0.1) / 2)
        # The run is finished: its last measured step holds up to step 11, so ten settled steps
        # count.
        assert value(later, Reduce.AREA) == pytest.approx(((0.5 + 0.1) / 2 + 8 * 0.1) / 9)
        assert value(later, Reduce.LAST_FIFTH) == pytest.approx(0.1)
        assert value(Window(Steps.LAST)) is None


def test_an_arm_is_the_mean_of_its_runs_of_one_set_of_seeds(tmp_path: Path) -> None:
    """Seed 2 of GSPO is unfinished; a look resolved the study after seeds 0 and 1."""
    path = make_lab(
        tmp_path, end=lambda run: "stopped" if (run.arm, run.seed) == ("gspo", 2) else "finished"
    )
    reading = Reading("clip_fraction_tokens")
    with source(path) as of:
        every = summarise(of, reading, "gspo", RECORDED)
        finished = summarise(of, reading, "gspo", FINISHED)
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


GSPO_RUN = "toy/gspo/s0"


def detailed(run: Run, record: Record) -> Record:
    """Every second step holds two responses.

    Every update counts what four times the range would bind: its step.
    """
    if not isinstance(record, UpdateRecord):
        return record
    counts = {
        rule: {"low": [0] * 5, "high": [0, 0, 0, 0, record.step]} for rule in ("grpo", "gspo")
    }
    lists: dict[str, list[Any]] = {"length": [10, 20], "sum_log_ratio": [float(record.step), 1.0]}
    detail = lists if record.step % 2 == 0 else None
    return replace(record, band_counts=counts, response_detail=detail, response_tokens=100)


@pytest.fixture(scope="module")
def detailed_lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_lab(tmp_path_factory.mktemp("detail"), seeds=1, steps=6, change=detailed)


def test_responses_are_of_settled_steps_and_later_minibatches(detailed_lab: Path) -> None:
    """Steps 0 and 1 warm up, and odd steps hold no responses.

    2 steps x 3 mini-batches x 2 responses are left.
    """
    with source(detailed_lab) as studied:
        found = responses(studied, ("length", "sum_log_ratio"), LATER, range(6))[GSPO_RUN]
        none = responses(studied, ("length",), LATER, [1, 3])[GSPO_RUN]
    assert found["length"].tolist() == [10, 20] * 6
    assert found["sum_log_ratio"].tolist() == [2, 1] * 3 + [4, 1] * 3
    assert none["length"].tolist() == []


def test_band_counts_are_of_all_settled_updates(detailed_lab: Path) -> None:
    """Also of those without responses: steps 2 to 5, four updates of 100 tokens each."""
    with source(detailed_lab) as studied:
        counts, tokens = band_counts(studied, GSPO_RUN)
    assert tokens == 1600
    assert counts["gspo"].tolist() == pytest.approx([0, 0, 0, 0, 4 * (2 + 3 + 4 + 5)])


def test_bins_of_like_length_are_shared() -> None:
    lengths = [np.array([1.0, 2.0, 9.0, 10.0]), np.array([2.0, 2.0, 9.0, 9.0])]
    bounds = shared_bounds(lengths, 2)
    assert bounds.tolist() == [5.5]
    points = spread_by_length(lengths[0], np.array([0.0, 2.0, 1.0, 1.0]), bounds, 2)
    assert points == [(1.5, 1.0), (9.5, 0.0)]
    assert spread_by_length(lengths[0], lengths[0], bounds, 3) == []


DROPPED = TWO_ARMS + "rollout = {{dynamic_sampling = 2}}\n"
"""GSPO's groups vary.

The rate rises over eight updates, four a step: by the schedule step 2 is the first settled.
"""


def rising(updates: Sequence[int], *, unknown: bool = False) -> Change:
    """Each step makes so many updates; the last entry holds for all later steps.

    Update n has (n + 1) / 8 of the learning rate.
    """

    def change(run: Run, record: Record) -> Record | None:
        if not isinstance(record, UpdateRecord):
            return record
        made = [*updates, *[updates[-1]] * run.settings.steps]
        if record.minibatch >= made[record.step]:
            return None
        part = min(1.0, (sum(made[: record.step]) + record.minibatch + 1) / 8)
        return replace(
            record, learning_rate=None if unknown else part * run.settings.update.learning_rate
        )

    return change


@pytest.mark.parametrize(
    ("updates", "unknown", "first"),
    cases(__file__, "where_groups_vary_the_record_says_when_the_rate_is_full"),
)
def test_where_groups_vary_the_record_says_when_the_rate_is_full(
    tmp_path: Path, updates: Sequence[int], unknown: bool, first: int
) -> None:
    with source(
        make_lab(tmp_path, DROPPED, seeds=1, change=rising(updates, unknown=unknown))
    ) as studied:
        # GRPO's groups do not vary: its schedule holds, whatever a record says.
        assert first_settled(studied) == {"toy/grpo/s0": 2, "toy/gspo/s0": first}


def test_claims_clip_shares_onsets_and_spikes_begin_there(tmp_path: Path) -> None:
    """Of 54 steps GSPO's last 50 are settled, with four updates of 576 tokens each.

    These 50 are the reference of norms and signals, and none is left to be judged. GRPO's are
    settled from step 2 on: two are left.
    """
    with source(
        make_lab(tmp_path, DROPPED, seeds=1, steps=54, change=rising((0, 2, 2, 4)))
    ) as found:
        assert [pool.weight for pool in by_minibatch(found, CLIP)["toy/gspo/s0"].values()] == [
            50 * 576
        ] * 4
        assert first_settled(found) == {"toy/grpo/s0": 2, "toy/gspo/s0": 4}
        judged = {arm: onsets(found, f"toy/{arm}/s0")["grad_norm"].judged for arm in found.arms}
        assert judged == {"grpo": True, "gspo": False}


def test_a_run_whose_rate_never_became_full_has_nothing_that_is_settled(tmp_path: Path) -> None:
    with (
        Evidence.open(
            make_lab(tmp_path, DROPPED, seeds=1, steps=7, change=rising((1,)))
        ) as evidence,
        pytest.raises(Untestable, match=r"gspo has no update .*: 7 of 7 steps warm up"),
    ):
        ClaimData(Source(evidence, "toy")).value(CLIP, "gspo", 0)


def test_a_value_beyond_all_numbers_stays_what_it_is(tmp_path: Path) -> None:
    database = make_lab(tmp_path, seeds=1)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "UPDATE updates SET grad_norm = CASE step WHEN 2 THEN 9e999 ELSE -9e999 END WHERE"
            " step > 1"
        )
    with Evidence.open(database) as evidence:
        [first, _] = read_spans(evidence, "toy", "updates", ["grad_norm"], buckets=12).values()
    assert np.isfinite(first["grad_norm"][:2]).all()
    assert list(first["grad_norm"][2:4]) == [np.inf, -np.inf]
