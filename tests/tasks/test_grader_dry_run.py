"""A user's grader is tried before a study trains on it, where nothing that it does can hurt."""

import json
import time
from pathlib import Path

import pytest
from assertions import assert_fields
from calling import gspo_lab
from case_tables import cases

from gspo_lab.running.plan.preflight import lint_findings
from gspo_lab.study import load_study
from gspo_lab.tasks import build_task
from gspo_lab.tasks.grader_dry_run import first_failure

GRADERS = """\
import os
import subprocess
import time

LOADED = []


def index(problem, answer):
    return answer.split()[0] == problem.reference


def judge(problem, answer):
    return 0.0 if not answer else 1 / 0


def ends(problem, answer):
    os._exit(7)


def hangs(problem, answer):
    starts(problem, answer)
    time.sleep(600)


def computes(problem, answer):
    while True:
        pass


def loads(problem, answer):
    if not LOADED:
        time.sleep(2.5)
        LOADED.append(problem)
    return 1.0


def starts(problem, answer):
    print("a grader may print")
    subprocess.Popen(["sleep", "600"])
    return 1.0
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "g.py").write_text(GRADERS)
    lines = [{"id": f"p{n}", "prompt": f"{n}+1=", "reference": str(n + 1)} for n in range(40)]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path


@pytest.mark.parametrize(
    ("grader", "seconds", "expected"),
    cases(__file__, "failures"),
)
def test_it_says_on_what_a_grader_fails(
    base: Path, grader: str, seconds: float, expected: str
) -> None:
    began = time.monotonic()
    failure = first_failure(f"g.py:{grader}", {"problems": "p.jsonl"}, base, seconds)
    assert failure.endswith(expected) if expected else failure is None
    assert time.monotonic() - began < 120, "the children sleep for ten minutes"


def test_the_start_of_python_does_not_count_as_the_graders_time(base: Path) -> None:
    """A file whose imports take longer than the grader's limit, as on a busy machine."""
    slow = "import time\n\ntime.sleep(2)\n\n\ndef grade(problem, answer):\n    return 1.0\n"
    (base / "slow.py").write_text(slow)
    options = {"problems": "p.jsonl"}
    assert first_failure("slow.py:grade", options, base, seconds=1.5) is None
    failure = first_failure("slow.py:grade", options, base, seconds=60, start_seconds=0.5)
    assert failure == "Python and the grader's file have not started after 0.5 s"


STUDY = """
question = "Does it grade?"
model = "tiny-qwen3"
steps = 2
seeds = 3
[task]
name = "g.py:index"
problems = "p.jsonl"
[arm.grpo]
objective = "grpo"
"""


def test_a_benchmark_cannot_ask_more_problems_than_there_are(base: Path) -> None:
    (base / "s.toml").write_text(STUDY + '[[bench]]\nname = "held-out"\n')
    held_out = len(build_task("g.py:index", {"problems": "p.jsonl"}, base).problems("held-out"))
    refused = gspo_lab("plan", base / "s.toml", "--set", "bench.held-out.problems=100000")
    assert_fields(
        refused,
        code=2,
        out="",
        err=f"gspo-lab: bench.held-out.problems = 100000: the task 'g.py:index' has {held_out}"
        " held-out problems; give no more, or leave the key out for all of them\n",
    )


def test_the_study_is_refused_for_it(base: Path) -> None:
    study = base / "s.toml"
    study.write_text(STUDY)
    [error] = [one for one in lint_findings(load_study(study)) if one.name == "grader-fails"]
    assert error.level == "error"
    assert "task 'g.py:index': its grader fails: problem p" in error.message
    study.write_text(study.read_text() + '[waive]\ngrader-fails = "it is meant to"\n')
    assert [
        one.level for one in lint_findings(load_study(study)) if one.name == "grader-fails"
    ] == ["warn"]
