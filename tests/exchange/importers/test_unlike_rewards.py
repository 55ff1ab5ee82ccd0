"""Arms whose logs name different reward functions: nothing on the page subtracts their sums."""

from pathlib import Path

import pytest
from laboratory import rendered
from logs import brought, opened, trainer_state, trl_rows

from gspo_lab.analysis.findings.imported_metrics import imported_metrics
from gspo_lab.analysis.readings import Source
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


def page_of(folder: Path, functions: dict[str, str], score: str = "") -> Report:
    """The report of a study of six logs. `functions`: by arm the reward functions that it names."""
    for seed in range(3):
        for arm, names in functions.items():
            logged = {f"rewards/{name}/mean": 0.3 + seed / 100 for name in names.split()}
            rows = trl_rows(range(1, 11), 0.5 * (arm == "lang") + seed / 100, **logged)
            trainer_state(folder / f"{arm}-s{seed}" / "trainer_state.json", rows)
    (folder / "x.toml").write_text(STUDY + score)
    brought(folder, folder / "x.toml")
    ingest(folder / "runs")
    return rendered(folder / "runs" / "lab.db", "x")


@pytest.mark.parametrize(
    ("plain", "lang", "sums"),
    [
        ("acc", "acc lang", "lang sums acc, lang; plain sums acc"),
        ("", "acc", "lang sums acc; plain sums functions that its log does not name"),
        ("acc lang", "", "lang sums functions that its log does not name; plain sums acc, lang"),
        ("acc lang", "lang acc", ""),
        ("", "", ""),
    ],
)
def test_rewards_are_subtracted_where_their_logs_name_the_same_functions(
    tmp_path: Path, plain: str, lang: str, sums: str
) -> None:
    page = page_of(tmp_path, {"plain": plain, "lang": lang})
    differ = sums != ""
    assert ("m-reward-difference" in page.html) is not differ
    assert ("mean training reward:" in page.html) is not differ
    assert ("same reward functions: levels of rewards are not compared" in page.html) is differ
    assert ("logs do not name the same reward functions" in page.json) is differ
    with opened(tmp_path) as evidence:
        told = " ".join(imported_metrics(Source(evidence, "x")).apart)
    assert told.endswith(f"do not name the same functions: {sums}." if differ else "")


def test_no_verdict_rests_on_them_either(tmp_path: Path) -> None:
    functions = {"plain": "acc", "lang": "acc language"}
    page = page_of(tmp_path, functions, 'score = { r = "reward" }\n')
    assert "o verdict: the score is a training reward" in page.json
