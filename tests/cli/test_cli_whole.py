"""The whole way in a shell: a study is run, looked at, evaluated and run again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from calling import rows
from finished_runs import leave_runs, write_study
from waiting import until

from gspo_lab.common.atomic_files import exclusive_lock

STUDY = """\
# Does the whole way work?
question = "Does the whole way work?"
model = "tiny-qwen3"
steps = 2
seeds = [0]

[task]
name = "lottery.py:grade"
problems = "problems.jsonl"
held_out = 0.25
max_tokens = 8

[rollout]
prompts_per_step = 4
group_size = 4

[update]
minibatches = 2
learning_rate = 1e-3
warmup_updates = 1
checkpoint_every = 1

[record]
rollouts = 1.0

[[bench]]
name = "lottery"
problems = 4
every = 1

[arm.grpo]
objective = "grpo"

[arm.gspo]
objective = "gspo"
"""

GRADER = """\
def grade(problem, answer):
    return float(sum(answer.encode()) % 2 == 0)
"""


@pytest.fixture
def study(here: Path) -> Path:
    """An untrained model and a reward that any text may win.

    So every step has something to learn from.
    """
    (here / "lottery.py").write_text(GRADER)
    problems = [json.dumps({"prompt": f"ticket {index}:", "reference": ""}) for index in range(32)]
    (here / "problems.jsonl").write_text("\n".join(problems) + "\n")
    path = here / "whole.toml"
    path.write_text(STUDY)
    return path


def start(*arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "gspo_lab.cli", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def shell(*arguments: object, code: int = 0) -> str:
    process = start(*arguments)
    out, err = process.communicate(timeout=6000)
    assert process.returncode == code, out + err
    return out


@pytest.mark.slow
def test_from_the_study_to_its_report_and_back_again(study: Path, here: Path) -> None:
    shown = shell("run", study)
    assert "Does the whole way work?" in shown
    assert "report: reports/whole.html" in shown
    runs = here / "runs"
    assert rows(runs, "SELECT run_id, step, minibatch FROM updates ORDER BY 1, 2, 3") == [
        (f"whole/{arm}/s0", step, minibatch)
        for arm in ("grpo", "gspo")
        for step in (0, 1)
        for minibatch in (0, 1)
    ]
    assert rows(runs, "SELECT DISTINCT clip_fraction_tokens FROM updates WHERE minibatch = 0") == [
        (0.0,)
    ]
    assert len(rows(runs, "SELECT DISTINCT bench, step FROM answers WHERE bench = 'lottery'")) == 3
    assert (here / "reports/whole.html").stat().st_size > 100_000
    assert sorted(path.name for path in runs.glob("whole/*/s0/checkpoints/*")) == ["final", "final"]

    journals = {path: path.read_bytes() for path in runs.rglob("journal.jsonl")}
    assert len(journals) == 2
    again = json.loads(shell("run", study, "--json"))
    assert again["exit_code"] == 0
    assert [arm["finished"] for arm in again["arms"]] == [1, 1]
    assert {path: path.read_bytes() for path in journals} == journals, (
        "what has finished is not run again"
    )

    assert [row["study"] for row in json.loads(shell("show", "--json"))] == ["whole"]
    shown_runs = json.loads(shell("show", "whole", "--json"))
    assert [(row["state"], row["steps_done"]) for row in shown_runs] == [("finished", 2)] * 2
    assert {row["facts"]["device"] for row in shown_runs}
    assert "out/updates.csv" in shell("export", "whole", "--output-dir", "out")
    assert shell("report", "whole", "--output-dir", "more") == "more/whole.html\n"

    asked = json.loads(shell("eval", "--bench", "addition", "--limit", "5", "--json"))
    assert [(row["run_id"], row["step"], row["problems"]) for row in asked["scores"]] == [
        (f"whole/{arm}/s0", step, 5) for arm in ("grpo", "gspo") for step in (0, 2)
    ]
    assert all(row["score"] == 0 and row["errors"] == 0 for row in asked["scores"]), (
        "it has never seen a sum"
    )
    own = json.loads(
        shell(
            "eval",
            "--bench",
            "lottery.py:grade",
            "--limit",
            "5",
            "--run",
            "whole/gspo/s0",
            "--json",
        )
    )
    assert [(row["step"], row["answers"]) for row in own["scores"]] == [(0, 5), (2, 5)]
    assert len(list(runs.rglob("evaluations/*/journal.jsonl"))) == 3

    refused = start("run", study, "--set", "update.learning_rate=1e-2")
    assert "learning_rate" in refused.communicate(timeout=240)[1]
    assert refused.returncode == 2


@pytest.mark.slow
def test_the_page_follows_the_study_and_stands_still_at_its_end(here: Path) -> None:
    study = write_study(here, "seen")
    leave_runs(study, here / "runs", at=1000.0, unfinished="gspo/s1")
    page = here / "reports" / "seen.html"

    def said(text: str) -> bool:
        return page.exists() and text in page.read_text(encoding="utf-8")

    with exclusive_lock(here / "runs" / "seen" / ".conductor", "the test conducts"):
        watching = subprocess.Popen(
            [sys.executable, "-m", "gspo_lab.cli", "report", "--watch"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        until(lambda: said('data-watch="5"') and said("3 of 4 runs are finished"))
        journal = here / "runs" / "seen" / "gspo" / "s1" / "journal.jsonl"
        other = here / "runs" / "seen" / "gspo" / "s0" / "journal.jsonl"
        journal.write_bytes(other.read_bytes())
        until(lambda: said('data-watch="5"') and said("All 4 runs are finished"))
        assert watching.poll() is None
    out, err = watching.communicate(timeout=600)
    assert watching.returncode == 0, err
    assert out == b"reports/seen.html\n"
    assert b"follows the study" in err
    assert not said("data-watch=")
    assert said("All 4 runs are finished")
