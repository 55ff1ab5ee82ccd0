"""The calibration at a size for every day.

`gspo-lab certify --rule` runs it at 2,000 studies a cell.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from calling import lab_error

from gspo_lab.analysis.claims.estimates import CLAIM_CELLS
from gspo_lab.analysis.stats import simulation_cells
from gspo_lab.analysis.stats.calibration import (
    SEED,
    STUDIES,
    CalibrationRow,
    recorded_rates,
    run_calibration,
)
from gspo_lab.analysis.stats.simulation_cells import CELLS
from gspo_lab.analysis.stats.simulation_draws import (
    SAMPLERS,
    Benchmark,
    benchmark_scores,
    curves,
    scores,
)
from gspo_lab.analysis.stats.verdict import Comparison, decide

ALL_CELLS = (*CELLS, *CLAIM_CELLS)


def test_production_code_keeps_its_promise() -> None:
    """One cell of every kind whose rates have a limit, at 200 studies."""
    limited = {
        (cell.name, cell.methods): cell
        for cell in ALL_CELLS
        if {method.expectation for method in cell.methods} - {"stated", "power"}
    }
    rates = run_calibration(200, np.random.default_rng(0), cells=list(limited.values()))
    assert [row for row in rates if not row.passed] == []


@pytest.mark.slow
def test_the_calibration_on_the_page_is_what_this_code_measures() -> None:
    measured = run_calibration(STUDIES, np.random.default_rng(SEED), cells=ALL_CELLS)
    assert measured == recorded_rates()


def test_every_method_on_every_kind_of_study_has_a_recorded_rate() -> None:
    kinds = []
    for cell in ALL_CELLS:
        kinds += [(cell.name, cell.n, method.name, method.expectation) for method in cell.methods]
    recorded = recorded_rates()
    assert kinds == [(row.cell, row.n, row.method, row.expectation) for row in recorded]
    assert [row for row in recorded if not row.passed] == []


def rate_of(cell: str, n: int, method: str) -> CalibrationRow:
    [row] = [row for row in recorded_rates() if (row.cell, row.n, row.method) == (cell, n, method)]
    return row


def test_false_words_favour_the_side_that_falls() -> None:
    """If 15 % of the baseline's runs collapse, .85 ** 5 of the studies show no collapse.

    A fifth of them call the baseline better; hardly any calls the other arm better.
    """
    row = rate_of("score, 15 % of one arm's runs unstable", 5, "paired t over seeds")
    assert row.for_baseline / row.studies == pytest.approx(0.2 * 0.85**5, abs=0.02)
    assert row.for_treatment < 0.15 * row.for_baseline
    uneven = [row for row in recorded_rates() if "unstable" in row.cell or "fall by" in row.cell]
    stated = [row for row in uneven if row.expectation == "stated"]
    assert {row.cell.partition(",")[0] for row in stated} >= {
        "score",
        "2 arms against one",
        "2 x 2",
        "4 claims",
    }
    for row in stated:
        sides = (row.for_baseline, row.for_treatment)
        favoured, other = reversed(sides) if "every treatment" in row.cell else sides
        assert favoured > other, row


def test_a_row_holds_its_limits() -> None:
    row = CalibrationRow("score, normal", 3, "paired t", "inside the band", 2000, 126, 60, 66)
    assert row.limits == (0.038, 0.063)
    assert row.passed
    assert not replace(row, false_words=127).passed
    assert not replace(row, false_words=75).passed
    assert replace(row, expectation="at most the band", false_words=0).passed
    assert not replace(row, expectation="must fail", false_words=149).passed
    assert replace(row, expectation="stated", false_words=2000).passed


def test_negative_controls_fail_loudly() -> None:
    shares = {row.method: row.share for row in recorded_rates() if row.expectation == "must fail"}
    assert shares.keys() == {
        "bootstrap over seeds",
        "items only, seeds pooled",
        "last 100 steps of one seed, Welch",
        "each arm by its own interval",
        "a seed at a time, first hit counts",
        "own best values by the plain paired t",
    }
    assert shares["last 100 steps of one seed, Welch"] > 0.5
    assert min(shares.values()) > 0.15


def test_equivalence_has_the_power_that_five_and_eight_pairs_buy() -> None:
    kind = "seed sd 0.3, answers' sd 0.5 margins"
    found = [rate_of(kind, n, "equivalent, truth: no difference").share for n in (5, 8)]
    assert found == pytest.approx([0.64, 0.97], abs=0.03)


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
    normal_cells = [cell for cell in CELLS if cell.name == "score, normal"]
    broken = run_calibration(300, np.random.default_rng(0), cells=normal_cells)
    assert any(
        row.n == 3 and row.method == "paired t over seeds" and not row.passed for row in broken
    )


def test_the_same_generator_gives_the_same_table() -> None:
    heard: list[CalibrationRow] = []
    cells = CELLS[::20]  # with the bootstrap, which draws from the generator too
    once = run_calibration(100, np.random.default_rng(5), heard.append, cells)
    assert tuple(heard) == once == run_calibration(100, np.random.default_rng(5), cells=cells)


def test_too_few_studies_are_refused() -> None:
    with lab_error("use 100"):
        run_calibration(99, np.random.default_rng(0))


def test_simulated_noise_has_the_declared_moments() -> None:
    rng = np.random.default_rng(0)
    even = SAMPLERS["normal"]
    normal = scores(rng, (even, even), 20000, 3)
    unequal = scores(rng, (SAMPLERS["noisy"], even), 20000, 3)
    assert np.corrcoef(normal.a.ravel(), normal.b.ravel())[0, 1] == pytest.approx(0.5, abs=0.02)
    assert unequal.a.var() == pytest.approx(17, rel=0.03)
    for name, noise in SAMPLERS.items():
        drawn = scores(rng, (noise, even), 20_000, 3)
        assert (drawn.b - drawn.a).mean() == pytest.approx(0, abs=0.08), name


def test_simulated_benchmarks_and_curves_have_their_shapes() -> None:
    rng = np.random.default_rng(0)
    drawn = benchmark_scores(rng, Benchmark(30, 16, arm_by_item=0.7), studies=50, seeds=3)
    assert drawn.a.shape == (50, 3, 30)
    assert set(np.unique(drawn.a * 16)) <= set(range(17))
    walks = curves(rng, studies=200, seeds=3, steps=100)
    assert walks.a.shape == (200, 3, 100)
    # Variance at the end: offset .09 + walk 100 x .0025 + white .25.
    assert walks.a[:, :, -1].std() == pytest.approx(math.sqrt(0.09 + 0.25 + 0.25), rel=0.08)
