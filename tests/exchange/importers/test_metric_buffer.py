"""Numbers that come metric by metric, put together step by step; handed to SQLite in twos, and all
at once.
"""

import math

import pytest

from gspo_lab.common.errors import LabError
from gspo_lab.exchange.importers import base
from gspo_lab.exchange.importers.base import MetricBuffer


@pytest.fixture(params=[2, base.AT_ONCE], autouse=True)
def numbers_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "AT_ONCE", request.param)


def of(*numbers: tuple[str, int, float], notes: list[str] | None = None) -> MetricBuffer:
    found = MetricBuffer("a.log", [] if notes is None else notes)
    for number in numbers:
        found.add(*number)
    return found


def test_two_axes_are_put_together() -> None:
    """Training at every step, evaluation at 2 and 3, told afterwards."""
    found = of(
        ("r", 1, 0.1),
        ("l", 1, 7),
        ("r", 2, 0.2),
        ("l", 2, 8),
        ("r", 3, 0.3),
        ("e", 2, 0.5),
        ("e", 3, 0.6),
    )
    assert list(found.rows()) == [
        (1, {"r": 0.1, "l": 7}),
        (2, {"r": 0.2, "l": 8, "e": 0.5}),
        (3, {"r": 0.3, "e": 0.6}),
    ]


def test_of_one_step_the_later_finite_number_counts() -> None:
    notes: list[str] = []
    found = of(
        *(("r", s, s / 4) for s in (1, 2, 3, 4)),
        ("r", 2, 7),
        ("r", 3, math.nan),
        ("r", 3, 9),
        ("r", 3, math.inf),
        notes=notes,
    )
    assert list(found.rows()) == [(1, {"r": 0.25}), (2, {"r": 7}), (3, {"r": 9}), (4, {"r": 1})]
    assert notes == ["r goes back from step 4 to 2: of one step the later number counts"]


def test_a_number_that_is_never_finite_stays_as_it_is() -> None:
    [(step, row)] = of(("r", 1, math.nan)).rows()
    assert (step, math.isnan(row["r"])) == (1, True)


def test_what_is_void_is_gone() -> None:
    """A start at step 3, and then another file, which goes on with r at 4 and brings e."""
    found = of(*((name, s, s) for s in (1, 2, 3, 4) for name in "rl"))
    found.drop(3)
    for step in (3, 4, 5):
        found.add("r", step, 10 * step)
    found.take(of(("r", 4, 400), ("e", 1, 0.5)))
    assert list(found.rows()) == [
        (1, {"r": 1, "l": 1, "e": 0.5}),
        (2, {"r": 2, "l": 2}),
        (3, {"r": 30}),
        (4, {"r": 400}),
    ]
    assert found.names == {"r", "l", "e"}


def test_a_metric_that_begins_again_is_another_run_s() -> None:
    of(
        ("r", 1, 0), ("r", 1, 1), ("e", 0, 1), ("r", 2, 1)
    )  # several at one step, and metrics of their own
    with pytest.raises(
        LabError, match=r"a\.log: r begins again at step 1, after step 2: two runs in one log"
    ):
        of(("r", 1, 0), ("r", 2, 0), ("r", 1, 0))
