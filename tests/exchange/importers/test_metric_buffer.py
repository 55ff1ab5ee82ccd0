"""Rows in any order, put together step by step; handed to SQLite in twos, and all at once."""

import math

import pytest

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.exchange.importers import metric_buffer
from gspo_lab.exchange.importers.metric_buffer import MetricBuffer

Rows = list[tuple[int, JsonObject]]


@pytest.fixture(params=[2, metric_buffer.ROWS_AT_ONCE], autouse=True)
def rows_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_buffer, "ROWS_AT_ONCE", request.param)


def read(*rows: tuple[int, JsonObject]) -> tuple[Rows, list[str]]:
    """The rows and the notes of a log."""
    notes: list[str] = []
    buffer = MetricBuffer("a.log", notes)
    for step, entries in rows:
        buffer.add(step, entries)
    buffer.finish()
    return [(step, dict(row)) for step, row in buffer.rows()], notes


def rewards(*steps: int, scale: float = 1) -> Rows:
    return [(step, {"r": step * scale}) for step in steps]


def test_two_axes_are_put_together() -> None:
    """Training at every step, evaluation at 2 and 3, told afterwards."""
    rows, notes = read(*rewards(1, 2, 3), (2, {"e": 0.5}), (3, {"e": 0.6, "l": "7"}))
    assert rows == [(1, {"r": 1}), (2, {"r": 2, "e": 0.5}), (3, {"r": 3, "e": 0.6, "l": 7})]
    assert notes == []


def test_of_one_step_the_later_finite_number_counts() -> None:
    rows, notes = read(
        *rewards(1, 2, 3, 4), (2, {"r": 7}), (3, {"r": math.nan}), (3, {"r": 9}), (3, {"r": "inf"}),
        (4, {"r": 1}),
    )  # fmt: skip
    assert rows == [(1, {"r": 1}), (2, {"r": 7}), (3, {"r": 9}), (4, {"r": 1})]
    assert notes == ["r goes back from step 4 to 2 (resumed?): of one step the later number counts"]


def test_a_resumed_run_ends_where_its_log_ends() -> None:
    """Steps 1 to 6, then 3 and 4 again: 5 and 6 were abandoned. The evaluation at 2 stays."""
    rows, notes = read(*rewards(1, 2, 3, 4, 5, 6), (2, {"e": 0.5}), *rewards(3, 4, scale=10))
    assert rows == [(1, {"r": 1}), (2, {"r": 2, "e": 0.5}), (3, {"r": 30}), (4, {"r": 40})]
    assert (
        "numbers of steps that the resumed run did not reach again are left out: r, beyond step 4"
    ) in notes


def test_an_evaluation_that_a_resumed_run_repeats_is_no_second_run() -> None:
    """Evaluated at 2 and 4; resumed at 2 of 5."""
    first: Rows = [(1, {"r": 1}), (2, {"r": 2, "e": 0.2}), (3, {"r": 3}), (4, {"r": 4, "e": 0.4})]
    second: Rows = [(2, {"r": 5, "e": 0.5}), (3, {"r": 6}), (4, {"r": 7, "e": 0.7})]
    rows, _ = read(*first, *second)
    assert rows[1:] == second


def test_a_number_that_is_never_finite_stays_as_it_is() -> None:
    [(_, row), _], _ = read((1, {"r": math.nan}), (2, {"l": 1}))
    assert isinstance(row["r"], float)
    assert math.isnan(row["r"])


def test_texts_and_rounded_zeros() -> None:
    """Text in place of a number is told; a name that is always text is no metric."""
    rows, notes = read(
        (1, {"r": "n/a", "name": "x", "clip": "0.000", "zero": "0"}), (2, {"r": 0.5})
    )
    assert rows == [(1, {"clip": "0.000", "zero": 0}), (2, {"r": 0.5})]
    assert notes == ["r has a text in place of a number (n/a) at step 1: 1 left out"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (rewards(1, 2, 1), "r begins again at step 1, after step 2: two runs in one log"),
        (
            [(step, {"r": run}) for step in (1, 2, 3) for run in (0, 1)],
            "r is logged twice at step 1, 0 and 1, and so at 3 of 3 steps: two runs in one log?",
        ),
        ([(1, {"r": "high"})], "it has no number to import: steps, seeds, and names"),
        ([(1, {"r": math.nan})], "every number in it is NaN or infinite"),
    ],
)
def test_what_is_not_one_run_is_refused(rows: Rows, message: str) -> None:
    with pytest.raises(LabError) as error:
        read(*rows)
    assert str(error.value).startswith(f"a.log: {message}")
