"""The calibration at a size for every day; `gspo-lab certify --rule` runs it at 2,000 studies a
cell.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from gspo_lab.analysis.claims.estimates import CLAIM_CELLS
from gspo_lab.analysis.stats import calibration, simulation_cells
from gspo_lab.analysis.stats.calibration import Calibration, run_calibration
from gspo_lab.analysis.stats.simulation_cells import (
    NOISE,
    Benchmark,
    benchmark_scores,
    curves,
    scores,
)
from gspo_lab.analysis.stats.verdict import Comparison, decide
from gspo_lab.common.errors import LabError
from gspo_lab.report.views.calibration import record


@pytest.fixture(scope="module")
def found() -> Calibration:
    return run_calibration(
        300, np.random.default_rng(0), cells=(*simulation_cells.CELLS, *CLAIM_CELLS)
    )


def test_production_code_keeps_its_promise(found: Calibration) -> None:
    assert [row for row in found.rows if not row.passed] == []
    assert found.ok
    assert {row.n for row in found.rows if row.method == "paired t over seeds"} == {3, 4, 5, 8}
    assert all(row.studies == 300 for row in found.rows)


def test_rows_that_no_rule_holds_are_stated_with_their_rate() -> None:
    """Only one arm is unstable or skewed, means are equal: scores, four arms, looks, claims, a
    contrast, an order.
    """
    stated = {
        (row["cell"], row["n"]): row["rate"]
        for row in record()["rows"]
        if row["expectation"] == "stated"
    }
    assert {cell.partition(",")[0] for cell, _ in stated} >= {
        "score",
        "4 arms against one",
        "4 claims",
        "2 x 2",
    }
    assert len(stated) == 8 + 8 + 2 + 6 + 4
    assert all(0.04 < rate < 0.2 for rate in stated.values())
    # .85 ** 5 of the studies show no unstable run; a fifth of those say "better".
    assert stated["score, 15 % of one arm's runs unstable", 5] == pytest.approx(
        0.2 * 0.85**5, abs=0.02
    )


def test_negative_controls_fail_loudly(found: Calibration) -> None:
    rates = {
        row.method: row.rate.rate
        for row in found.rows
        if row.expectation == "must fail" and row.n == 3
    }
    assert rates.keys() == {
        "bootstrap over seeds",
        "items only, seeds pooled",
        "last 100 steps of one seed, Welch",
        "each arm by its own interval",
    }
    assert rates["last 100 steps of one seed, Welch"] > 0.5
    assert (
        min(rate for name, rate in rates.items() if rate is not None and "own interval" not in name)
        > 0.15
    )
    assert (rates["each arm by its own interval"] or 0) > 0.09


def test_the_rows_are_those_of_the_record(found: Calibration) -> None:
    kinds = [(row.cell, row.n, row.method, row.expectation) for row in found.rows]
    assert kinds == [
        (row["cell"], row["n"], row["method"], row["expectation"]) for row in record()["rows"]
    ]


def test_equivalence_has_the_power_that_five_and_eight_pairs_buy(found: Calibration) -> None:
    said = {
        (row.cell, row.n): row.rate
        for row in found.rows
        if row.method == "equivalent, truth: no difference"
    }
    # Of 300 studies; the whole table has .64 and .97 of 2,000.
    for n, power in ((5, 0.63), (8, 0.97)):
        rate = said["seed sd 0.3, answers' sd 0.5 margins", n]
        assert rate.low < power < rate.high


def test_a_decision_that_takes_1_96_for_t_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def normal(
        a: np.ndarray, b: np.ndarray, margin: float, alpha: float, **rest: tuple[str, str]
    ) -> Comparison:
        verdict = decide(a, b, margin, alpha)
        paired = verdict.paired
        half = 1.96 * paired.se
        return replace(
            verdict, paired=replace(paired, low=paired.estimate - half, high=paired.estimate + half)
        )

    monkeypatch.setattr(simulation_cells, "decide", normal)
    normal_cells = [cell for cell in simulation_cells.CELLS if cell.name == "score, normal"]
    broken = run_calibration(300, np.random.default_rng(0), cells=normal_cells)
    assert not broken.ok
    assert any(
        row.n == 3 and row.method == "paired t over seeds" and not row.passed for row in broken.rows
    )


def test_the_same_generator_gives_the_same_table() -> None:
    heard: list[calibration.CalibrationRow] = []
    some = simulation_cells.CELLS[::8]  # with the bootstrap, which draws from the generator too
    once = run_calibration(100, np.random.default_rng(5), heard.append, cells=some)
    assert (
        tuple(heard) == once.rows == run_calibration(100, np.random.default_rng(5), cells=some).rows
    )


def test_too_few_studies_are_refused() -> None:
    with pytest.raises(LabError, match="use 100"):
        run_calibration(99, np.random.default_rng(0))


def test_simulated_noise_has_the_declared_moments() -> None:
    rng = np.random.default_rng(0)
    normal = scores(rng, NOISE["normal"], 20000, 3)
    unequal = scores(rng, NOISE["one arm 4x as noisy"], 20000, 3)
    assert np.corrcoef(normal.a.ravel(), normal.b.ravel())[0, 1] == pytest.approx(0.5, abs=0.02)
    assert unequal.b.var() == pytest.approx(17, rel=0.03)
    for name, noise in NOISE.items():
        drawn = scores(rng, noise, 20_000, 3)
        assert (drawn.b - drawn.a).mean() == pytest.approx(0, abs=0.08), name
    collapsed = scores(rng, NOISE["15 % collapse"], 20_000, 3)
    assert collapsed.a.mean() == pytest.approx(-0.9, abs=0.05)


def test_coverage_is_what_the_rate_leaves(found: Calibration) -> None:
    for row in found.rows:
        if row.coverage is not None and row.withheld == 0:
            assert row.coverage == pytest.approx(1 - row.rate.k / row.studies)
    assert {row.coverage for row in found.rows if row.method.startswith("words")} == {None}


def test_simulated_benchmarks_and_curves_have_their_shapes() -> None:
    rng = np.random.default_rng(0)
    drawn = benchmark_scores(rng, Benchmark(30, 16, arm_by_item=0.7), studies=50, seeds=3)
    assert drawn.a.shape == (50, 3, 30)
    assert set(np.unique(drawn.a * 16)) <= set(range(17))
    walks = curves(rng, studies=200, seeds=3, steps=100)
    assert walks.a.shape == (200, 3, 100)
    # Variance at the end: offset .09 + walk 100 x .0025 + white .25.
    assert walks.a[:, :, -1].std() == pytest.approx(math.sqrt(0.09 + 0.25 + 0.25), rel=0.08)
