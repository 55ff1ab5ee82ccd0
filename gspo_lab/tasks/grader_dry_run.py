"""Try a user's grader on a few answers before a study trains on it.

It runs in a separate process (`python -m gspo_lab.tasks.grader_dry_run`), because it may hang or
end its process.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from gspo_lab.common.plain_data import JsonMapping

PROBLEMS = 4
SECONDS = 10.0
"""Processor time after which a grader hangs that has not graded a few short answers, from its first
call: on a busy machine the clock says little.
"""
ASLEEP = 3
"""A grader hangs, too, that for so many times as long hardly works."""
START_SECONDS = 180.0
"""The start of Python and the import of the grader's file: on a busy machine they take long."""
STARTED = b"started"
HANGS = 124
"""The exit code of a process whose grader hangs."""


def first_failure(
    name: str,
    options: JsonMapping,
    base: Path,
    seconds: float = SECONDS,
    start_seconds: float = START_SECONDS,
) -> str | None:
    """How the grader of the task `"file.py:grade"` first fails; None if it does not.

    It grades an empty answer, as an untrained model gives, and the reference of the first train
    problems. It has `seconds` of processor time from its first call. The start of Python and the
    import of its file have `start_seconds` before that. Its output goes to a file, not to a pipe,
    so that child processes of the grader that live on delay nothing.
    """
    reader, writer = os.pipe()
    arguments = [name, json.dumps(dict(options)), str(base), str(writer), str(seconds)]
    with tempfile.TemporaryFile() as output, os.fdopen(reader, "rb", buffering=0) as started:
        process = subprocess.Popen(
            [sys.executable, "-m", "gspo_lab.tasks.grader_dry_run", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            process_group=0,
            pass_fds=[writer],
        )
        os.close(writer)
        try:
            if not select.select([started], [], [], start_seconds)[0]:
                return f"Python and the grader's file have not started after {start_seconds:g} s"
            code = process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            code = HANGS
        finally:
            with suppress(ProcessLookupError):  # the grader and its child processes
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code == HANGS:
            return f"it has not graded {2 * PROBLEMS} answers after {seconds:g} s of its own time"
        output.seek(0)
        # After the grader's own output.
        last = output.read().decode(errors="replace").splitlines()[-1:]
    if code or not last:
        return f"it ended its process with exit code {code}"
    failure: str | None = json.loads(last[0])
    return failure


def _end_if_it_hangs(seconds: float) -> None:
    """End this process after so much processor time, or if it sleeps for `ASLEEP` times as long."""
    limit = time.process_time() + seconds
    used = 0.0
    awake = time.monotonic()
    while used < limit and time.monotonic() < awake + ASLEEP * seconds:
        time.sleep(0.1)
        if time.process_time() > used + 0.05:
            used = time.process_time()
            awake = time.monotonic()
    os._exit(HANGS)


def _failure(name: str, options: JsonMapping, base: Path, start: int, seconds: float) -> str | None:
    """How the grader first fails. The descriptor `start` is written to before its first call."""
    from gspo_lab.tasks import ReplyError, Turn, build_task, grade_answer

    task = build_task(name, options, base)
    problems = task.problems("train")[:PROBLEMS]
    os.write(start, STARTED)
    os.close(start)
    threading.Thread(target=_end_if_it_hangs, args=(seconds,), daemon=True).start()
    for problem in problems:
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
    task_name, task_options, folder, descriptor, limit = sys.argv[1:]
    os.set_inheritable(int(descriptor), False)
    result = _failure(
        task_name, json.loads(task_options), Path(folder), int(descriptor), float(limit)
    )
    print(f"\n{json.dumps(result)}", flush=True)
