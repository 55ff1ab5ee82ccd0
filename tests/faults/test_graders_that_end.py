"""A user's grader that hangs, or forks, while it grades."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gspo_lab.common.atomic_files import exclusive_lock, lock_holder
from gspo_lab.tasks import build_task, grade_answer, time_limit

GRADERS = """
import time
def sleeps(problem, answer):
    time.sleep(600)
def computes(problem, answer):
    while True:
        try:
            sum(range(1000))
        except Exception:
            pass
def stubborn(problem, answer):
    for _ in range(3):
        try:
            time.sleep(600)
        except:
            pass
    return 1
"""


@pytest.mark.parametrize("name", ["sleeps", "computes", "stubborn"])
def test_a_grader_that_hangs_has_failed_at_its_limit(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limit, "AGAIN_SECONDS", 0.2)
    (tmp_path / "own.py").write_text(GRADERS)
    (tmp_path / "problems.jsonl").write_text(
        "".join(f'{{"prompt": "{n}?", "reference": {n}}}\n' for n in range(20))
    )
    task = build_task(f"own.py:{name}", {"problems": "problems.jsonl"}, tmp_path)
    monkeypatch.setattr(task, "seconds", 0.2)
    grade = grade_answer(task, task.problems("train")[0], "1", truncated=False)
    if name == "stubborn":  # interrupted again and again, until it goes on
        assert (grade.reward, grade.error) == (1.0, None)
    else:
        assert (grade.reward, grade.error) == (None, "it has not graded the answer after 0.2 s")
    time.sleep(0.5)  # no later signal is under way


def test_a_forked_child_that_outlives_its_worker_keeps_no_lock(tmp_path: Path) -> None:
    code = """
import os, sys, time
from pathlib import Path
from gspo_lab.common.atomic_files import exclusive_lock
with exclusive_lock(Path(sys.argv[1]), "no"):
    if (child := os.fork()) == 0:
        os.close(1)
        time.sleep(600)
    print(child, flush=True)
    os._exit(0)
"""
    path = tmp_path / "lock"
    completed = subprocess.run(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True, check=True
    )
    child = int(completed.stdout)
    try:
        os.kill(child, 0)  # it lives
        assert lock_holder(path) is None
        with exclusive_lock(path, "still held", patience_seconds=0):
            pass
    finally:
        os.kill(child, 9)
