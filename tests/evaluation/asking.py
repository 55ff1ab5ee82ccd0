"""A task of one's own whose reward any text may win, and `gspo-lab eval` killed on its way."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

GRADER = """\
def grade(problem, answer):
    return float(sum(answer.encode()) % 2 == 0)
"""
BENCH = "lottery.py:grade"


def write_task(folder: Path, problems: int = 12) -> Path:
    """The grader and its problems: with `held_out` at its default a fifth of them is asked, always the same."""
    (folder / "lottery.py").write_text(GRADER)
    path = folder / "problems.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"ticket {i}:", "reference": ""}) + "\n" for i in range(problems)))
    return path


def killed_after(lines: int, runs: Path, *arguments: object) -> int:
    """Start `gspo-lab ARGUMENTS`, SIGKILL it once that many answers are on the disk; how many were kept."""
    return stopped_after(lines, runs, signal.SIGKILL, *arguments)[0]


def stopped_after(lines: int, runs: Path, by: signal.Signals, *arguments: object) -> tuple[int, int, str]:
    """The same by any signal: answers kept, exit code, what it wrote to stderr."""
    command = [sys.executable, "-m", "gspo_lab", *map(str, arguments)]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 240
    try:
        while kept(runs) < lines:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(by)
        _, said = process.communicate(timeout=240)
    finally:
        process.kill()
        process.wait()
    return kept(runs), process.returncode, said


def kept(runs: Path) -> int:
    """Answers in all evaluations' journals."""
    return sum(path.read_bytes().count(b'{"kind":"answer"') for path in runs.rglob("evaluations/*/journal.jsonl"))


def rows(runs: Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(runs / "lab.db")
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


ANSWERS = "SELECT problem, sample, sample_seed, text, tokens, truncated, correct, grader FROM answers ORDER BY 1, 2"
