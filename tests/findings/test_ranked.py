"""Which arm may be the best: told with the answer of three arms and more, and of nothing else."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from laboratory import rendered
from synthetic_lab import FOUR_ARMS, TWO_ARMS, make_lab, right

from gspo_lab.findings.paired_comparisons import ranked
from gspo_lab.readings import Source
from gspo_lab.records import Record, StepRecord
from gspo_lab.report import Report
from gspo_lab.store import Evidence
from gspo_lab.study import Run

THREE = TWO_ARMS + '[arm.third]\nobjective = "gspo-token"\n'


def answer(report: Report) -> Any:
    return json.loads(report.json)["studies"]["toy"]["answer"]


@pytest.mark.parametrize(
    ("third", "said"),
    [
        (14, "The best of the 3 arms is third: 2 of 3 pairs of arms differ over 3 seeds."),
        (8, "Any of the 3 arms may be the best: none of 3 pairs of arms differ over 3 seeds."),
    ],
)
def test_report_terminal_and_json_say_the_same_of_three_arms(tmp_path: Path, third: int, said: str) -> None:
    """6 problems more on every seed are more than asking varies; 8 like the others are equal scores."""
    ends = {"grpo": 8, "gspo": 8, "third": third}
    change = right(lambda run, step: (ends[run.arm] + run.seed if step else 5) / 20)
    report = rendered(make_lab(tmp_path, THREE, change=change), "toy")
    data = answer(report)["ranking"]
    assert data["sentence"] == said
    assert said in answer(report)["answer"]["rests_on"]
    assert said in report.markdown
    assert said in report.lines[1]
    assert "rank interval" in report.html
    places = {one["arm"]: (one["place"], one["by_seed"]) for one in data["places"]}
    assert places["third"] == (1, [1, 1, 1])
    assert places["grpo"] == places["gspo"] == ((2, [2, 2, 2]) if third > 8 else (1, [1, 1, 1]))


def other_prompts(run: Run, record: Record) -> Record:
    if isinstance(record, StepRecord) and run.arm == "third":
        return replace(record, prompt_digest="others")
    return record


@pytest.mark.parametrize(
    ("toml", "made"),
    [
        (TWO_ARMS, {}),
        (THREE, {"change": other_prompts}),
        (THREE, {"end": lambda run: "stopped" if run.arm == "third" else "finished"}),
    ],
    ids=["two arms have a verdict", "runs that are no pairs", "runs that have not finished"],
)
def test_nothing_else_is_ranked(tmp_path: Path, toml: str, made: dict[str, Any]) -> None:
    with Evidence.open(make_lab(tmp_path, toml, **made)) as evidence:
        assert ranked(Source(evidence, "toy")) is None


def test_stability_is_not_answered_by_places(tmp_path: Path) -> None:
    report = rendered(make_lab(tmp_path, FOUR_ARMS + '[verdict]\nquestion = "stability"\n'), "toy")
    assert len(answer(report)["ranking"]["places"]) == 4
    assert "the best" not in report.lines[1]
