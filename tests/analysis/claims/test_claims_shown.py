"""Claims as a person meets them: the commands, the report's section and the page of docs."""

import json
import re
from pathlib import Path

import pytest
from assertions import assert_fields
from calling import gspo_lab
from claim_lab import PAIR, Fields, Numbers, evidence, gives
from laboratory import source, study_json

from gspo_lab.analysis.claims import LIBRARY, estimates, judge
from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.stats import paired, simulation_cells
from gspo_lab.analysis.stats.calibration import recorded_rates
from gspo_lab.analysis.stats.simulation_cells import Cell
from gspo_lab.cli.calibrate import lines
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.store import DATABASE
from gspo_lab.report import render
from gspo_lab.report.views.claims import claims_view
from gspo_lab.study import Run

DOCS = Path(__file__).parents[3] / "docs"
NAMES = ["C01-first-minibatch", "C04-clip-gap", "C09-expert-change"]


def fractions(run: Run, step: int, minibatch: int) -> Fields:
    """C04's ratios are 50, 100 and 200."""
    own = {0: 0.05, 1: 0.1, 2: 0.2}[run.seed] if run.arm == "gspo" else 0.001
    return {"clip_fraction_tokens": own if minibatch else 0.0}


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of a study that declares three claims."""
    folder = tmp_path_factory.mktemp("shown")
    evidence(folder, gives(update=fractions), claims=NAMES).close()
    return folder / "runs"


def said(*words: str, code: int = 0) -> str:
    found = gspo_lab(*words)
    assert found.code == code, found
    return found.out


def test_the_library_is_listed_with_what_each_claim_needs() -> None:
    text = said("claims")
    assert all(claim.id in text and claim.statement in text for claim in LIBRARY.values())
    assert [one["id"] for one in json.loads(said("claims", "--json"))] == list(LIBRARY)


def test_a_studys_claims_are_evaluated(declared: Path) -> None:
    text = said("claims", "toy", "--runs", str(declared))
    assert "C01-first-minibatch: supported" in text
    assert "C09-expert-change: not testable here" in text
    assert "cf GSPO / cf GRPO, all mini-batches = 100, 95 % interval 17.87 to 559.5" in text
    assert "C05-gap-robust" not in text
    assert "(descriptive)" not in text
    # two tests in the family, C04 and C09: .0289 x 2 is above .05
    assert "C04-clip-gap: inconclusive" in text


def test_all_adds_the_rest_as_description(declared: Path) -> None:
    found = json.loads(said("claims", "toy", "--all", "--json", "--runs", str(declared)))
    assert [one["id"] for one in found][:3] == NAMES
    assert {one["id"] for one in found} == set(LIBRARY)
    assert [one["declared"] for one in found] == [True, True, True] + [False] * (len(LIBRARY) - 3)
    gap = found[1]
    assert gap["arms"] == {"grpo": "grpo", "gspo": "gspo"}
    assert gap["parts"][0]["estimate"] == pytest.approx(100)
    assert gap["counter_evidence"][0]["source"] == "ScaleRL, 2510.13786"
    assert "(descriptive)" in said("claims", "toy", "--all", "--runs", str(declared))


def test_a_study_without_claims_says_so_and_has_no_such_section(tmp_path: Path) -> None:
    with evidence(tmp_path, Numbers()) as opened:
        assert claims_view(Source(opened, "toy")) is None
        assert judge(Source(opened, "toy")) == []
    assert "toy declared no claim before its first step; --all" in said(
        "claims", "toy", "--runs", str(tmp_path / "runs")
    )


def test_the_report_has_a_row_for_each_declared_claim(declared: Path) -> None:
    with source(declared / DATABASE) as studied:
        report = render([studied])
        section = claims_view(studied)
    assert section is not None
    data: JsonObject = study_json(report)["claims"]
    assert [one["id"] for one in data["claims"]] == NAMES
    assert [one["word"] for one in data["claims"]] == [
        "supported",
        "inconclusive",
        "not testable here",
    ]
    assert 'id="claims"' in report.html
    assert data["claims"][1]["codes"][0] == "alone"
    for shown in (
        "(17.9 to 559)",
        "115 times",
        "no arm has a mixture of experts",
        "SAPO, 2511.20347",
    ):
        assert shown in report.html, shown
        assert shown in report.markdown, shown


def simulate(monkeypatch: pytest.MonkeyPatch, *cells: Cell) -> None:
    """Calibrate on these kinds of study alone."""
    monkeypatch.setattr(simulation_cells, "CELLS", cells)
    monkeypatch.setattr(estimates, "CLAIM_CELLS", ())


def test_calibrate_prints_rates_bands_and_controls(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: dict[str, Cell] = {}
    for cell in simulation_cells.CELLS:
        kinds.setdefault(cell.methods[-1].expectation, cell)
    simulate(monkeypatch, *kinds.values())
    data = json.loads(said("certify", "--rule", "--simulations", "100", "--json"))
    assert data["ok"] is True
    rows = data["rows"]
    assert {"at most the band", "must fail", "stated", "power"} < {
        row["expectation"] for row in rows
    }
    for row in rows:
        assert row["rate_low"] <= row["rate"] == row["false_words"] / 100 <= row["rate_high"]
        assert max(row["for_baseline"], row["for_treatment"]) <= row["false_words"]


def test_the_table_for_people_has_a_block_per_expectation() -> None:
    text = "\n".join(lines(recorded_rates()))
    assert "every row lies where it must" in text
    _, controls, stated, power = re.split("Negative controls|Means are equal|How often", text)
    limited = [line for line in text.splitlines() if "must lie in [" in line]
    assert all(line.endswith("ok") for line in limited)
    assert controls.count("must lie in [ 7.5 %, 100.0 %]") == 12
    assert "must lie" not in stated + power
    for row in recorded_rates():
        if row.expectation == "stated":
            assert f"n = {row.n}" in stated
            assert row.cell in stated
    assert "equivalent, truth: no difference" in power


def test_calibrate_says_when_the_code_cries_wolf(monkeypatch: pytest.MonkeyPatch) -> None:
    # an interval with one seed more than there are: the code under test is made wrong, and must be
    # caught
    simulate(monkeypatch, *(one for one in simulation_cells.CELLS if one.name == "score, normal"))
    right = paired.t_quantile
    monkeypatch.setattr(paired, "t_quantile", lambda df, level: right(df, level) / 3)
    text = said("certify", "--rule", "--simulations", "100", code=1)
    assert "WRONG" in text
    assert "not where it must be: score, normal, n = 3" in text


def test_check_prints_findings_and_fails_on_errors(tmp_path: Path) -> None:
    path = tmp_path / "toy.toml"
    head = 'question = "?"\ntask = "addition"\nseeds = 2\n[[claim]]\nname = "C04-clip-gap"\n'
    path.write_text(head + PAIR)
    text = said("plan", str(path))
    assert text.index("gspo: ") < text.index("warn: too-few-seeds: 2 seeds: no interval")
    assert "warn: no-primary: no benchmark" in text
    assert "warn: eps-too-narrow: arm.gspo" in text
    assert "claim C04-clip-gap" in text
    path.write_text(head + PAIR + "dual_clip = 3.0\n")
    assert "error: dual-clip-one-arm" in said("plan", str(path), code=2)
    found = json.loads(said("plan", str(path), "--json", code=2))["findings"][0]
    assert_fields(found, name="dual-clip-one-arm", level="error")
