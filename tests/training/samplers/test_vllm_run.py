"""Whole runs through vLLM, as processes.

What they record, how they stop and resume, and that nothing is left behind.
"""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from assertions import assert_fields
from calling import environment

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.journal import scan
from gspo_lab.recording.records import is_time

if find_spec("vllm") is None:
    pytest.skip("vLLM is not installed; nox -s vllm installs it", allow_module_level=True)

pytestmark = pytest.mark.vllm

HANGS = 1800
"""Seconds after which a process that should end is taken to hang.

On a busy machine everything takes long.
"""

GRADER = """
import time
from pathlib import Path

def grade(problem, answer):
    # A run that is to be stopped waits here, once it has a step, as long as the file `hold` is there.
    while Path("hold").exists() and '"kind":"step"' in Path("runs/parts/gspo/s0/journal.jsonl").read_text():
        time.sleep(0.01)
    return float(sum(answer.encode()) % 3 == 0)
"""  # noqa: E501

STUDY = """
question = "Do runs that sample with vLLM differ from each other by their arm alone?"
model = "tiny-qwen3-moe"
seeds = [0, 1]
steps = 3
[task]
name = "lottery.py:grade"
problems = "problems.jsonl"
held_out = 0.25
max_tokens = 10
stop = ["a", "e", "i", "o"]
[rollout]
prompts_per_step = 4
group_size = 4
sampler = "vllm"
[update]
minibatches = 4
learning_rate = 1e-3
warmup_updates = 1
checkpoint_every = 1
[record]
rollouts = 1.0
[[bench]]
name = "lottery"
problems = 5
every = 1
[arm.grpo]
objective = "grpo"
[arm.gspo]
objective = "gspo"
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "lottery.py").write_text(GRADER)
    problems = [{"id": f"p{i}", "prompt": f"{i}+{i}=", "reference": str(2 * i)} for i in range(20)]
    (tmp_path / "problems.jsonl").write_text(
        "".join(json.dumps(problem) + "\n" for problem in problems)
    )
    path = tmp_path / "s.toml"
    path.write_text(STUDY)
    return path


def start(study: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "gspo_lab.cli", "run", str(study), "--jobs", "1", *arguments],
        cwd=study.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
    )


def records(folder: Path, kind: str) -> list[JsonObject]:
    path = folder / "journal.jsonl"
    return (
        [record for record in scan(path).items if record["kind"] == kind] if path.exists() else []
    )


def without_times(folder: Path) -> list[JsonObject]:
    lines = scan(folder / "journal.jsonl").items
    return [
        {key: v for key, v in line.items() if not is_time(key)}
        for line in lines
        if line["kind"] != "status"
    ]


def wait_for_a_step(folder: Path, process: "subprocess.Popen[str]") -> None:
    end = time.monotonic() + HANGS
    while not records(folder, "step"):
        assert time.monotonic() < end
        assert process.poll() is None, process.stdout.read() if process.stdout else ""
        time.sleep(0.05)


def test_a_study_is_matched_and_a_stopped_run_goes_on_with_the_records_of_an_uninterrupted_one(
    study: Path,
) -> None:
    uninterrupted = start(study)
    output, _ = uninterrupted.communicate(timeout=HANGS)
    assert uninterrupted.returncode == 0, output
    runs = study.parent / "runs/s"
    for arm in ("grpo", "gspo"):
        for seed in (0, 1):
            folder = runs / arm / f"s{seed}"
            steps = records(folder, "step")
            assert [record["step"] for record in steps] == [0, 1, 2]
            # What vLLM said of every token against the trainer, at every step: each push arrived.
            assert all(
                record["mismatch_abs_max"] <= 1e-5
                for record in steps
                if record["mismatch_abs_max"] is not None
            )
            facts = records(folder, "status")[0]["facts"]["sampler"]
            assert facts["push"] == "reload, experts packed anew"
            bench_answers = [
                record for record in records(folder, "answer") if record["bench"] == "lottery"
            ]
            assert sorted({record["step"] for record in bench_answers}) == [0, 1, 2, 3]
            assert len((folder / "log.txt").read_text().splitlines()) < 20
    grpo = records(runs / "grpo" / "s0", "step")
    gspo = records(runs / "gspo" / "s0", "step")
    assert_fields(
        grpo[0], rollout_digest=gspo[0]["rollout_digest"], logprob_digest=gspo[0]["logprob_digest"]
    )
    assert grpo[2]["rollout_digest"] != gspo[2]["rollout_digest"]
    matched = subprocess.run(
        [sys.executable, "-m", "gspo_lab.cli", "certify", "s"],
        cwd=study.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert matched.returncode == 0, matched.stdout + matched.stderr

    again = ("--name", "parts", "--arms", "gspo", "--seeds", "1", "--set", "seeds=[0]")
    hold = study.parent / "hold"
    hold.touch()
    earlier = start(study, *again)
    folder = study.parent / "runs/parts/gspo/s0"
    wait_for_a_step(folder, earlier)
    os.kill(
        int((folder / "lock").read_text().split()[0]), signal.SIGINT
    )  # the worker has it before it goes on
    hold.unlink()
    earlier.communicate(timeout=HANGS)
    assert records(folder, "status")[-1]["state"] == "stopped"
    later = start(study, *again)
    later.communicate(timeout=HANGS)
    assert later.returncode == 0
    assert (
        len([record for record in records(folder, "status") if record["state"] == "started"]) == 2
    )
    assert without_times(folder) == without_times(runs / "gspo/s0")


def test_a_killed_worker_leaves_no_process_behind(study: Path) -> None:
    conductor = start(study, "--arms", "grpo", "--seeds", "1", "--steps", "1000")
    folder = study.parent / "runs/s/grpo/s0"
    wait_for_a_step(folder, conductor)
    worker = int((folder / "lock").read_text().split()[0])
    family = [psutil.Process(worker), *psutil.Process(worker).children(recursive=True)]
    os.kill(worker, signal.SIGKILL)
    conductor.send_signal(signal.SIGINT)
    conductor.communicate(timeout=HANGS)
    gone, alive = psutil.wait_procs(family, timeout=60)
    assert gone
    assert not alive
