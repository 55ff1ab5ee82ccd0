"""Arms whose logs name different reward functions: nothing on the page subtracts their sums."""

import json
from pathlib import Path
from typing import Any

import pytest
from laboratory import rendered
from logs import brought, trainer_state, trl_rows

from gspo_lab.recording.store import ingest

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


def study(folder: Path, other: str, score: str = "") -> dict[str, Any]:
    """The report of a study of six logs, whose second arm sums the reward function `other` too."""
    for seed in range(3):
        for arm, names in (("plain", ["correct"]), ("lang", ["correct", other])):
            logged = {f"rewards/{name}/mean": 0.3 + seed / 100 for name in names}
            rows = trl_rows(range(1, 11), 0.9 * (arm == "lang") + seed / 100, **logged)
            trainer_state(folder / f"{arm}-s{seed}" / "trainer_state.json", rows)
    (folder / "x.toml").write_text(STUDY + score)
    brought(folder, folder / "x.toml")
    ingest(folder / "runs")
    page = rendered(folder / "runs" / "lab.db", "x")
    found: dict[str, Any] = json.loads(page.json)["studies"]["x"]
    return found


@pytest.mark.parametrize(("other", "differ"), [("language", True), ("correct", False)])
def test_no_figure_and_no_claim_subtracts_sums_of_different_functions(
    tmp_path: Path, other: str, differ: bool
) -> None:
    text = json.dumps(study(tmp_path, other))
    assert ("Training reward: lang" in text) is not differ
    assert ("lang \\u2212 plain, mean training reward" in text) is not differ
    assert ("sums of different functions: their levels are not compared" in text) is differ
    assert ("the arms' rewards are sums of different functions" in text) is differ


def test_no_verdict_rests_on_them_either(tmp_path: Path) -> None:
    answer = json.dumps(study(tmp_path, "language", 'score = { r = "reward" }\n'))
    assert "no verdict: the score is a training reward" in answer.replace(
        "No verdict", "no verdict"
    )
