"""Arms whose logs name different reward functions: nothing on the page subtracts their sums."""

from pathlib import Path

import pytest
from laboratory import rendered
from logs import brought, trainer_state, trl_rows

from gspo_lab.recording.store import ingest
from gspo_lab.report import Report

STUDY = """
[arm.plain]
objective = "grpo"
[arm.lang]
objective = "gspo"
[[claim]]
name = "rewards-differ-here"
metric = "reward_mean"
statistic = "mean over the last fifth"
comparison = "difference"
above = 0.0
[claim.arms]
of = "lang"
against = "plain"
[[runs]]
source = "trl"
path = "{arm}-s{seed}"
"""


def page_of(folder: Path, other: str, score: str = "") -> Report:
    """The report of a study of six logs, whose second arm sums the reward function `other` too."""
    for seed in range(3):
        for arm, names in (("plain", ["correct"]), ("lang", ["correct", other])):
            logged = {f"rewards/{name}/mean": 0.3 + seed / 100 for name in names}
            rows = trl_rows(range(1, 11), 0.5 * (arm == "lang") + seed / 100, **logged)
            trainer_state(folder / f"{arm}-s{seed}" / "trainer_state.json", rows)
    (folder / "x.toml").write_text(STUDY + score)
    brought(folder, folder / "x.toml")
    ingest(folder / "runs")
    return rendered(folder / "runs" / "lab.db", "x")


@pytest.mark.parametrize(("other", "differ"), [("language", True), ("correct", False)])
def test_no_figure_and_no_claim_subtracts_sums_of_different_functions(
    tmp_path: Path, other: str, differ: bool
) -> None:
    page = page_of(tmp_path, other)
    assert ("m-reward-difference" in page.html) is not differ
    assert ("mean training reward:" in page.html) is not differ
    assert ("sums of different functions: their levels are not compared" in page.html) is differ
    assert ("rewards are sums of different functions" in page.json) is differ


def test_no_verdict_rests_on_them_either(tmp_path: Path) -> None:
    page = page_of(tmp_path, "language", 'score = { r = "reward" }\n')
    assert "o verdict: the score is a training reward" in page.json
