"""A user's own grader, tried on a few answers before a study trains on it.

In a process of its own (`python -m gspo_lab.tasks.trial`), for a grader may hang or end the process that it is in.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROBLEMS = 4
SECONDS = 20.0


def first_failure(name: str, options: Mapping[str, Any], base: Path, seconds: float = SECONDS) -> str | None:
    """In words, how the grader of the task `"file.py:grade"` first fails; None: it does not.

    It grades an empty answer, as an untrained model gives them, and the reference of the first train problems.
    """
    command = [sys.executable, "-m", "gspo_lab.tasks.trial", name, json.dumps(dict(options)), str(base)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"it has not graded {2 * PROBLEMS} answers after {seconds:g} s"
    last = done.stdout.splitlines()[-1:]  # what the grader itself prints comes before
    if done.returncode or not last:
        return f"it ended its process with exit code {done.returncode}"
    failure: str | None = json.loads(last[0])
    return failure


def _tried(name: str, options: Mapping[str, Any], base: Path) -> str | None:
    from gspo_lab.tasks import ReplyError, Turn, build_task, grade_answer

    task = build_task(name, options, base)
    for problem in task.problems("train")[:PROBLEMS]:
        for what, answer in (("an empty answer", ""), ("the reference as answer", problem.reference)):
            turns = (Turn(answer),) if task.max_turns > 1 else None
            grade = grade_answer(task, problem, answer, truncated=False, turns=turns)
            if grade.error is not None:
                return f"problem {problem.id}, {what}: {grade.error}"
            try:
                task.reply(problem, turns or ())
            except ReplyError as error:
                return f"problem {problem.id}, {what}: {error}"
    return None


if __name__ == "__main__":
    print(f"\n{json.dumps(_tried(sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])))}")
