"""Responses that a grader failed on trained with reward 0: whoever shows the run says how many."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from calling import gspo_lab
from finished_runs import leave_runs, write_study

from gspo_lab.conduct import outcome
from gspo_lab.journal import Journal
from gspo_lab.readings import Source
from gspo_lab.readings.curves import grader_errors
from gspo_lab.records import StepRecord
from gspo_lab.store import Evidence, ingest
from gspo_lab.study import load_study

RUN = "seen/grpo/s1"


def step(index: int, failed: int | None) -> StepRecord:
    return StepRecord(step=index, prompts=32, responses=256, reward_mean=0.1, grader_errors=failed)


@pytest.fixture
def path(here: Path) -> Path:
    """Four runs that counted nothing, but one: 16 and 48 of 256 responses in two of its steps, an eighth of 512."""
    path = write_study(here)
    leave_runs(path, here / "runs")
    with Journal(here / "runs" / RUN) as journal:
        journal.write([step(1, 16), step(2, 48)])
    return path


def test_the_findings_have_a_share_for_each_run_that_counted(path: Path, here: Path) -> None:
    ingest(here / "runs")
    with Evidence.open(here / "runs/lab.db") as evidence:
        assert grader_errors(Source(evidence, "seen")) == {RUN: 0.125}


def test_dropped_groups_were_graded_too(path: Path, here: Path) -> None:
    group_size = load_study(path).arms["grpo"].settings.rollout.group_size
    record = step(3, 64)
    with Journal(here / "runs" / RUN) as journal:  # 128 of 512 + 256 + 32 groups
        journal.write([replace(record, dropped_groups=32)])
    ingest(here / "runs")
    share = 128 / (768 + 32 * group_size)
    with Evidence.open(here / "runs/lab.db") as evidence:
        assert grader_errors(Source(evidence, "seen")) == {RUN: share}


def test_show_and_report_say_it(path: Path, here: Path) -> None:
    assert "12.5%" in gspo_lab("show", "seen").out
    assert "not graded: 12.5%" in gspo_lab("show", RUN).out
    shares = {row["run_id"]: row["grader_errors"] for row in gspo_lab("show", "seen", "--json").json}
    assert shares == {RUN: 0.125, "seen/grpo/s0": None, "seen/gspo/s0": None, "seen/gspo/s1": None}
    assert gspo_lab("report", "seen").code == 0
    told = "The grader failed on training responses, which counted as reward 0: grpo seed 1 12.5% of them."
    for name in ("seen.html", "seen.md"):
        assert told in (here / "reports" / name).read_text(encoding="utf-8")
    report = json.loads((here / "reports/seen.json").read_text(encoding="utf-8"))
    assert report["studies"]["seen"]["answer"]["grader_errors"] == {RUN: 0.125}


def test_the_table_at_the_end_has_a_column_where_any_failed(path: Path, here: Path) -> None:
    ingest(here / "runs")
    done = outcome(load_study(path), here / "runs", [], interrupted=False)
    assert [arm.grader_errors for arm in done.arms] == [0.125, None]
    assert done.table().columns[-1].header == "not graded"
    assert list(done.table().columns[-1].cells) == ["12.5%", "-"]
