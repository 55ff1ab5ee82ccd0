"""`gspo-lab eval` and `grade` of programs.

The rating on CodeForces, and what the leave to run without isolation does.
"""

import json
import math
from pathlib import Path

import pandas as pd
import pytest
from asking import done
from assertions import assert_fields
from calling import gspo_lab, lab_error, rows
from laboratory import json_of, write_lines

from gspo_lab.analysis.stats.passk import estimate_rating
from gspo_lab.cli.evaluation_scores import rated
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.journal import Journal
from gspo_lab.recording.records import GradeRecord
from gspo_lab.running.plan.preflight import obstacle
from gspo_lab.study import load_study
from gspo_lab.tasks import build_task, without_sandbox
from gspo_lab.tasks.sandbox import Sandbox
from gspo_lab.training.engines.native.build_run import set_up

STUDY = """\
question = "Does it learn to program by adding?"
task = "addition"
model = "tiny-qwen3"
seeds = 2
steps = 4

[[bench]]
name = "programs"
task = {name = "codeforces", data = "own.jsonl"}

[arm.grpo]
objective = "grpo"

[arm.gspo]
objective = "gspo"
"""
RATINGS = {"1/A": 800, "1/B": 1200, "1/C": 1600, "1/D": None}


@pytest.fixture
def asking(here: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """The command that evaluates an untrained model on four programs, twice each.

    The model solves nothing.
    """
    monkeypatch.setenv("GSPO_LAB_CACHE", str(here / "cache"))
    common: JsonObject = {
        "contest_id": "1",
        "time_limit": 2.0,
        "memory_limit": 256.0,
        "title": "Twice",
        "description": "Print twice the number.",
        "official_tests": [{"input": "21\n", "output": "42\n"}],
        "official_tests_complete": True,
        "input_mode": "stdio",
        "generated_tests": 0,
    }
    lines = [
        json.dumps({**common, "id": name, "rating": rating}) + "\n"
        for name, rating in RATINGS.items()
    ]
    (here / "own.jsonl").write_text("".join(lines))
    options = ("--data", "codeforces=own.jsonl", "--samples", 2, "--max-tokens", 4)
    return ("eval", "--bench", "codeforces", "--model", "tiny-qwen3", *options)


def turn(runs: Path, right: dict[str, int]) -> None:
    """Later grades: of each problem so many answers are right."""
    (journal,) = runs.rglob("evaluations/*/journal.jsonl")
    [(bench, step)] = rows(runs, "SELECT DISTINCT bench, step FROM answers")
    grades = journal.parent / "grades"
    grades.mkdir()
    with Journal(grades) as sink:
        sink.write(
            GradeRecord(
                bench=bench,
                step=step,
                problem=problem,
                sample=sample,
                correct=int(sample < count),
                at=1.0,
            )
            for problem, count in right.items()
            for sample in (0, 1)
        )


def test_the_rating_of_rated_problems_is_shown(here: Path, asking: tuple[object, ...]) -> None:
    asking += ("--unsafe-no-sandbox",)  # an untrained model writes no program that would be run
    none = done(*asking, "--json")
    rating = none.json["scores"][0]["rating"]
    bound = estimate_rating([800, 1200, 1600], [0, 0, 0]).high
    assert_fields(rating, rating=None, low=None, high=pytest.approx(bound))
    assert f"below {bound:.0f}" in " ".join(gspo_lab(*asking).out.split())

    turn(here / "runs", {"1/A": 2, "1/B": 1, "1/D": 2})
    gspo_lab("records", "rebuild")
    rating = gspo_lab(*asking, "--json").json["scores"][0]["rating"]
    seen = estimate_rating([800, 1200, 1600], [1, 0.5, 0])
    assert rating == {**vars(seen), "note": "estimate, not CodeElo"}
    assert rating["problems"] == 3
    assert "rating of one attempt" in " ".join(gspo_lab(*asking).out.split())
    plain = ("--model", "tiny-qwen3", "--limit", 2, "--max-tokens", 4, "--json")
    assert "rating" not in gspo_lab("eval", "--bench", "addition", *plain).json["scores"][0]


def test_the_rating_of_up_to_eight_attempts_is_that_of_the_chance_that_one_of_eight_is_right() -> (
    None
):
    # One of 16 answers right: eight of them hold it with chance 8/16, and a problem of 1500 solved
    # so is rated 1500.
    graded = pd.DataFrame({"problem": ["a", "b"], "correct": [1, 1], "graded": [16, 16]})
    eight = rated({"a": 1500.0, "b": 1500.0}, graded, 8)
    one = rated({"a": 1500.0, "b": 1500.0}, graded, 1)
    assert eight["rating"] == pytest.approx(1500)
    assert one["rating"] == pytest.approx(1500 - 400 * math.log10(15))  # 15 to 1 against it
    assert rated({"a": 1500.0, "b": 1500.0}, graded.assign(graded=[16, 7]), 8) is None


def test_leave_to_run_without_isolation_is_declared_and_used(
    here: Path, asking: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = here / "runs"
    said = done(*asking, "--unsafe-no-sandbox", "--json")
    (journal,) = runs.rglob("evaluations/*/journal.jsonl")
    declared = json_of(journal.with_name("evaluation.json"))
    assert declared["task"]["options"]["unsafe"] is True
    # As on a machine that isolates: an untrained model writes no program that would be run.
    monkeypatch.setattr("gspo_lab.tasks.check_isolation", lambda *_: None)
    assert gspo_lab(*asking, "--json").json["scores"][0]["evaluation"] != declared["evaluation"], (
        "other settings"
    )

    right = {"text": "```python\nprint(2 * int(input()))\n```", "truncated": False}
    first, *answers = [json.loads(line) for line in journal.read_text().splitlines()]
    assert first["run"] == said.json["scores"][0]["run_id"]
    for answer in answers:
        del answer["chain"]
    lines = [json.dumps({**answer, **right}) for answer in answers]
    for path in runs.rglob("evaluations/*/journal.jsonl"):
        write_lines(path, lines)
    gspo_lab("records", "rebuild")
    done("records", "regrade", said.json["scores"][0]["run_id"], "--unsafe-no-sandbox", "--apply")
    with Sandbox.open(slots=1, unsafe=True) as best:
        assert rows(runs, "SELECT DISTINCT correct, isolation FROM latest_grades") == [
            (1, best.level)
        ]
    assert len(rows(runs, "SELECT 1 FROM latest_grades")) == 2 * len(lines)


@pytest.mark.usefixtures("no_bubblewrap")
def test_without_isolation_no_model_is_asked(here: Path, asking: tuple[object, ...]) -> None:
    refused = gspo_lab(*asking)
    assert refused.code == 2
    (line,) = refused.err.splitlines()
    assert line.startswith("gspo-lab: programs cannot be isolated on this machine: bwrap")
    assert all(
        words in line
        for words in ("apt-get install bubblewrap", "user namespaces", "--unsafe-no-sandbox")
    )
    both = gspo_lab("eval", "--bench", "addition", *asking[1:])
    assert (both.code, both.err) == (2, refused.err), "not even what could be graded"
    assert not list((here / "runs").rglob("journal.jsonl"))


def test_answers_that_are_there_are_shown_without_isolation(
    here: Path, asking: tuple[object, ...], can_isolate: None, request: pytest.FixtureRequest
) -> None:
    asked = done(*asking, "--json")
    request.getfixturevalue("no_bubblewrap")
    assert gspo_lab(*asking, "--json").json == asked.json
    assert gspo_lab(*asking, "--samples", 3).code == 2


@pytest.mark.usefixtures("asking", "no_bubblewrap")
def test_without_isolation_no_study_that_is_asked_for_programs_begins(here: Path) -> None:
    path = here / "study.toml"
    path.write_text(STUDY)
    refused = gspo_lab("run", path)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("gspo-lab: programs cannot be isolated on this machine: bwrap")
    assert not (here / "runs").exists()
    planned = done("plan", path)
    assert "cannot be run here yet: programs cannot be isolated" in planned.out
    with lab_error("cannot be isolated"):  # a worker that somebody starts by hand, elsewhere
        set_up(load_study(path).runs()[0], None)
    path.write_text(STUDY.replace('"own.jsonl"', '"own.jsonl", unsafe = true'))
    assert obstacle(load_study(path)) is None


def test_only_tasks_that_run_programs_get_the_leave() -> None:
    assert without_sandbox("livecodebench-v5-2410-2502", {"seconds": 3.0}) == {
        "seconds": 3.0,
        "unsafe": True,
    }
    assert without_sandbox("codeforces", {}) == {"unsafe": True}
    assert without_sandbox("lottery.py:grade", {"problems": "x"}) == {"problems": "x"}
    build_task("addition", without_sandbox("addition", {}))
