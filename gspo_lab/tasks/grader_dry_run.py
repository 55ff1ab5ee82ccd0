"""Try a user's grader on a few answers before a study trains on it.

It runs in a separate process (`python -m gspo_lab.tasks.grader_dry_run`), because it may hang or
end its process.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

PROBLEMS = 4
SECONDS = 20.0


def first_failure(
    name: str, options: Mapping[str, Any], base: Path, seconds: float = SECONDS
) -> str | None:
    """How the grader of the task `"file.py:grade"` first fails; None if it does not.

    It grades an empty answer, as an untrained model gives, and the reference of the first train
    problems. It returns after `seconds` even if the grader's child processes live on, because these
    write to a file, not to a pipe.
    """
    command = [
        sys.executable,
        "-m",
        "gspo_lab.tasks.grader_dry_run",
        name,
        json.dumps(dict(options)),
        str(base),
    ]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"it has not graded {2 * PROBLEMS} answers after {seconds:g} s"
        finally:
            with suppress(ProcessLookupError):  # the grader and its child processes
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        last = (
            output.read().decode(errors="replace").splitlines()[-1:]
        )  # after the grader's own output
    if code or not last:
        return f"it ended its process with exit code {code}"
    failure: str | None = json.loads(last[0])
    return failure


def _failure(name: str, options: Mapping[str, Any], base: Path) -> str | None:
    from gspo_lab.tasks import ReplyError, Turn, build_task, grade_answer

    task = build_task(name, options, base)
    for problem in task.problems("train")[:PROBLEMS]:
        for kind, answer in (
            ("an empty answer", ""),
            ("the reference as answer", problem.reference),
        ):
            turns = (Turn(answer),) if task.max_turns > 1 else None
            grade = grade_answer(task, problem, answer, truncated=False, turns=turns)
            if grade.error is not None:
                return f"problem {problem.id}, {kind}: {grade.error}"
            try:
                task.reply(problem, turns or ())
            except ReplyError as error:
                return f"problem {problem.id}, {kind}: {error}"
    return None


if __name__ == "__main__":
    print(
        f"\n{json.dumps(_failure(sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])))}",
        flush=True,
    )
