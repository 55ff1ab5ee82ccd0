"""A custom task whose reward any text may win, and untrained runs.

Also a `gspo-lab eval` that is stopped.
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from calling import Said, environment, gspo_lab

from gspo_lab.common.atomic_files import write_json
from gspo_lab.common.paths import RUN
from gspo_lab.running.conduct.study_lock import declare
from gspo_lab.study import Run, load_study
from gspo_lab.training.models.builtin_models import build, byte_tokenizer

GRADER = """\
def grade(problem, answer):
    return float(sum(answer.encode()) % 2 == 0)
"""
BENCH = "lottery.py:grade"
SMALL = {"layers": 1, "width": 16}
"""The shape of models whose answers need not be good."""


def write_task(folder: Path, problems: int = 12) -> Path:
    """The grader and its problems.

    With `held_out` at its default a fifth of them is evaluated, always the same.
    """
    (folder / "lottery.py").write_text(GRADER)
    path = folder / "problems.jsonl"
    path.write_text(
        "".join(
            json.dumps({"prompt": f"ticket {i}:", "reference": ""}) + "\n" for i in range(problems)
        )
    )
    return path


def save_model(folder: Path, seed: int) -> Path:
    build("tiny-qwen3", seed, SMALL).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


def done(*arguments: object) -> Said:
    """`gspo-lab ARGUMENTS`, which ends well."""
    said = gspo_lab(*arguments)
    assert said.code == 0, said
    return said


def declared_runs(
    here: Path, name: str, study: str, start: Path | None = None
) -> list[tuple[Run, Path]]:
    """The runs of a study that was declared and not conducted, each with its folder."""
    (here / f"{name}.toml").write_text(study)
    declare(load_study(here / f"{name}.toml"), here / "runs" / name)
    runs = [(run, run.folder(here / "runs")) for run in load_study(here / f"{name}.toml").runs()]
    for run, folder in runs:
        write_json(
            folder / RUN, run.to_json() | ({} if start is None else {"warm_start": str(start)})
        )
    return runs


def stopped_after(
    lines: int, runs: Path, by: signal.Signals, *arguments: object
) -> tuple[int, int, str]:
    """Start `gspo-lab ARGUMENTS` and signal it once that many answers are kept.

    Return how many, the exit code and its stderr.
    """
    command = [sys.executable, "-m", "gspo_lab.cli", *map(str, arguments)]
    process = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)
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
    return sum(
        path.read_bytes().count(b'{"kind":"answer"')
        for path in runs.rglob("evaluations/*/journal.jsonl")
    )


ANSWERS = (
    "SELECT problem, sample, sample_seed, text, tokens, truncated, correct, grader FROM answers"
    " ORDER BY 1, 2"
)
