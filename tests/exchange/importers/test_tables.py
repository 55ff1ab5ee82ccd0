"""CSV and JSON Lines of any program: long and wide, with runs inside.

Also the messages about what is wrong with them.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from case_tables import cases
from logs import EIGHT, bring, csv_of, eight_seeds, json_lines, opened, refused, report

from gspo_lab.common.plain_data import Strings
from gspo_lab.recording.store.records import read_steps, read_updates


def frame(folder: Path, study: str, table: str, *metrics: str) -> list[list[Any]]:
    with opened(folder) as evidence:
        read = read_steps if table == "steps" else read_updates
        return read(evidence, study, list(metrics))[["step", *metrics]].to_numpy().tolist()


def test_eight_paired_seeds_of_scores_give_the_published_analysis(tmp_path: Path) -> None:
    path = eight_seeds(tmp_path / "scores.csv")
    assert (
        bring(tmp_path, "csv", path, "--study", "eight", "--set", "verdict.margin=0.01").code == 0
    )
    said = report(tmp_path, "eight")["answer"]["comparisons"]["gspo"]
    paired = said["paired"]
    assert paired["differences"] == pytest.approx(EIGHT)
    assert (said["estimate"], paired["low"], paired["high"]) == pytest.approx(
        (0.0050, -0.0036, 0.0136), abs=5e-5
    )
    assert said["word"] == "inconclusive"


def test_arms_of_a_sweep_can_be_imported_again(tmp_path: Path) -> None:
    """As `gspo-lab export` names them; their folders and all else, too."""
    rows = [
        f"gspo@{dose},{seed},{score}"
        for seed in range(3)
        for dose, score in (("0.0002", 0.5), ("0.0004", 0.75))
    ]
    path = csv_of(tmp_path / "scores.csv", "arm,seed,score", *rows)
    assert bring(tmp_path, "csv", path, "--study", "x").code == 0
    assert report(tmp_path, "x")["answer"]["comparisons"]["gspo@0.0004"]["estimate"] == 0.25


def test_a_report_of_imported_runs_says_what_they_are(tmp_path: Path) -> None:
    bring(tmp_path, "csv", eight_seeds(tmp_path / "scores.csv"), "--study", "eight")
    found = report(tmp_path, "eight")
    grade = "compared as logged: prompts, code and weights were not recorded"
    assert found["certificate"]["grade"] == grade
    assert "taken on trust" in found["answer"]["comparisons"]["gspo"]["sentence"]
    assert found["settings"]["shared"] == {}
    assert found["certificate"]["states"]["lock"] == {"not recorded": 1}
    assert found["logged"]["names"]["grpo"] == {
        "score": {"meaning": "score of score, as logged", "score": "score"}
    }


def test_long_and_wide_tables_are_the_same_run(tmp_path: Path) -> None:
    csv_of(tmp_path / "wide.csv", "step,train/r,odd", "1,0.25,7", "2,0.5,", "3,0.75,9")
    rows = [{"step": s, "metric": "odd", "value": v} for s, v in ((1, 7), (3, 9))]
    rows += [{"step": s, "metric": "train/r", "value": s / 4} for s in (1, 2, 3)]
    json_lines(tmp_path / "long.jsonl", rows)
    for name, source in (("wide.csv", "csv"), ("long.jsonl", "jsonl")):
        options = ("--study", source, "--arm", "a", "--seed", 0, "--map", "reward=train/r")
        assert bring(tmp_path, source, tmp_path / name, *options).code == 0
        assert frame(tmp_path, source, "steps", "reward_mean") == [[1, 0.25], [2, 0.5], [3, 0.75]]
        own = [json.loads(text) for _, text in frame(tmp_path, source, "updates", "engine_metrics")]
        assert own == [{"odd": 7.0}, {"odd": 9.0}]


def test_the_training_reward_can_be_the_score_and_is_told(tmp_path: Path) -> None:
    lines = [
        f"{arm},{seed},{step},{0.1 * step}" for arm in "ab" for seed in range(3) for step in (1, 2)
    ]
    path = csv_of(tmp_path / "r.csv", "arm,seed,step,r", *lines)
    assert (
        bring(
            tmp_path, "csv", path, "--study", "r", "--map", "reward=r", "--score-metric", "r"
        ).code
        == 0
    )
    assert frame(tmp_path, "r", "steps", "reward_mean")[:2] == [[1, 0.1], [2, 0.2]]
    found = report(tmp_path, "r")
    assert found["answer"]["primary"] == "r"
    assert any("training reward" in line for line in found["logged"]["warnings"])


def test_results_item_by_item_are_answers(tmp_path: Path) -> None:
    """Of 4 problems gspo answers 3 correctly and grpo 2: .75 and .5.

    Intervals over problems can be computed.
    """
    right = {"grpo": 2, "gspo": 3}
    lines = [
        f"{arm},{seed},p{p},{int(p < right[arm])}"
        for arm in right
        for seed in range(3)
        for p in range(4)
    ]
    path = csv_of(tmp_path / "items.csv", "arm,seed,problem,correct", *lines)
    assert bring(tmp_path, "items", path, "--study", "x", "--bench", "sums").code == 0
    said = report(tmp_path, "x")
    assert said["answer"]["comparisons"]["gspo"]["estimate"] == 0.25
    assert said["answer"]["comparisons"]["gspo"]["paired"]["items_sd"] is not None
    again = bring(tmp_path, "items", path, "--study", "x", "--bench", "sums")
    assert {line.rpartition(": ")[2] for line in again.out.splitlines()[:6]} == {"unchanged"}
    lines[0] = "grpo,0,p0,0"
    csv_of(path, "arm,seed,problem,correct", *lines)
    again = bring(tmp_path, "items", path, "--study", "x", "--bench", "sums")
    states = [line.rpartition(": ")[2] for line in again.out.splitlines()[:6]]
    assert states == ["replaced", *["unchanged"] * 5]


@pytest.mark.parametrize(
    ("options", "what"),
    cases(__file__, "wishes_that_cannot_be_met"),
)
def test_wishes_that_cannot_be_met(tmp_path: Path, options: Strings, what: str) -> None:
    path = csv_of(tmp_path / "a.csv", "step,r", "1,0.5")
    said = bring(tmp_path, "csv", path, "--study", "x", "--arm", "a", "--seed", 0, *options)
    assert (said.code, what in said.err) == (2, True), said.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("table", "what"),
    cases(__file__, "a_table_of_runs_that_is_none"),
)
def test_a_table_of_runs_that_is_none(tmp_path: Path, table: str, what: str) -> None:
    (tmp_path / "x.toml").write_text(f"[[runs]]\n{table}\n")
    assert f"x.toml: {what}" in refused(tmp_path, tmp_path / "x.toml")


def test_a_last_line_that_is_being_written_is_left_for_later(tmp_path: Path) -> None:
    path = json_lines(tmp_path / "a.jsonl", [{"step": 1, "r": 1}])
    path.write_text(path.read_text() + '{"step": 2, "r"')
    options = ("--study", "x", "--arm", "a", "--seed", 0, "--map", "reward=r")
    assert bring(tmp_path, "jsonl", path, *options).code == 0
    assert frame(tmp_path, "x", "steps", "reward_mean") == [[1, 1.0]]


LONG = """\
{"step": 1, "metric": "r", "value": 0.25}
{"step": 1, "metric": "odd", "value": 7}
{"step": 2, "metric": "r", "value": NaN}
{"step": 2, "metric": "odd", "value": 8}
{"step": 2, "metric": "odd", "value": NaN}
{"step": 3, "metric": "r", "value": Infinity}
{"step": 3, "metric": "odd", "value": 9}
"""


def test_what_is_not_finite_is_noted_once_a_metric(tmp_path: Path) -> None:
    """Wide and long: r is not finite at 2 and 3, odd at 2 only beside a number, which counts."""
    csv_of(tmp_path / "wide.csv", "step,r,odd", "1,.25,7", "2,nan,8", "2,inf,nan", "3,-inf,9")
    (tmp_path / "long.jsonl").write_text(LONG)
    for name, source in (("wide.csv", "csv"), ("long.jsonl", "jsonl")):
        options = ("--study", source, "--arm", "a", "--seed", 0, "--map", "reward=r")
        said = bring(tmp_path, source, tmp_path / name, *options)
        assert [line for line in said.out.splitlines() if "finite" in line] == [
            f"note: r is not finite in float32, first at step 2 [{source}/a/s0]"
        ], said
        rewards = [reward for _, reward in frame(tmp_path, source, "steps", "reward_mean")]
        assert rewards == pytest.approx([0.25, math.nan, math.nan], nan_ok=True)
        own = [json.loads(text) for _, text in frame(tmp_path, source, "updates", "engine_metrics")]
        assert own == [{"odd": 7.0}, {"odd": 8.0}, {"odd": 9.0}]
