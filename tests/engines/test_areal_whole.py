"""AReaL itself, in the environment that `gspo-lab engines install areal` makes: it trains two arms, one killed amid."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from child_processes import lab, processes_of
from waiting import until

from gspo_lab.engines.environments import home_of
from gspo_lab.files import holder
from gspo_lab.runfolder import RunFolder

PYTHON = home_of("areal") / "bin" / "python"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.areal,
    pytest.mark.skipif(not PYTHON.exists(), reason="gspo-lab engines install areal"),
]

ARMS = ("grpo-token-mean", "gspo-token-mean")
STUDY = """
question = "Does AReaL train both arms?"
model = "tiny-qwen3"
engine = "areal"
device = "cpu"
steps = 3
seeds = [0]
task = "gspo_lab.engines.smoke_test_task:Lottery"
[rollout]
prompts_per_step = 4
group_size = 4
coupled = false
[update]
minibatches = 2
learning_rate = 1e-3
warmup_updates = 0
checkpoint_every = 1
[record]
rollouts = 1.0
detail_every = 1
[[bench]]
name = "lottery"
every = 2
samples = 2
[arm.grpo-token-mean]
objective = "grpo"
aggregation = "token-mean"
[arm.gspo-token-mean]
objective = "gspo"
aggregation = "token-mean"
[waive]
aggregation-label = "AReaL means every token alike, in both arms"
"""


def test_both_arms_are_trained_one_of_them_killed_and_taken_up_again(tmp_path: Path) -> None:
    (tmp_path / "arms.toml").write_text(STUDY)
    runs = {arm: RunFolder(tmp_path / "runs/arms" / arm / "s0") for arm in ARMS}
    words = ("run", "arms.toml", "--jobs", "1")
    first = subprocess.Popen(
        [sys.executable, "-m", "gspo_lab", *words], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until(lambda: runs[ARMS[0]].records("step") or first.poll() is not None, seconds=1500)
    worker = holder(runs[ARMS[0]].path / "lock")
    assert worker is not None, runs[ARMS[0]].log.read_text()[-3000:]
    os.kill(int(worker.split()[0]), signal.SIGKILL)
    assert first.wait(1500) == 1  # the other arm is trained all the same
    until(lambda: not list(processes_of(runs[ARMS[0]].path / "areal")), seconds=120)
    assert not runs[ARMS[0]].standing().finished

    second = lab(tmp_path, *words)
    assert second.returncode == 0, second.stdout + second.stderr
    assert (tmp_path / "reports/arms.html").is_file()
    starts = [one["step"] for one in runs[ARMS[0]].records("status") if one["state"] == "started"]
    assert starts[0] == 0
    assert starts[-1] in (1, 2)
    for run in runs.values():
        _whole(run)
    begun = [run.records("step")[0] for run in runs.values()]
    assert begun[0]["prompt_digest"] == begun[1]["prompt_digest"]


def _whole(run: RunFolder) -> None:
    """All that three steps of two updates leave, each once."""
    assert [one["step"] for one in run.records("step")] == [0, 1, 2]
    updates = run.records("update")
    assert [(one["step"], one["minibatch"]) for one in updates] == [(s, k) for s in range(3) for k in range(2)]
    assert updates[0]["log_ratio_max_abs"] == pytest.approx(0, abs=1e-5)  # nothing has moved yet
    assert any(one["clipped_tokens"] for one in updates)
    drawn = [one for one in run.records("answer") if one["bench"] == "rollout"]
    asked = Counter((one["step"], one["problem"]) for one in run.records("answer") if one["bench"] == "lottery")
    assert asked == dict.fromkeys(((step, f"held-out-{letter}") for step in (0, 2, 3) for letter in "vwxyz"), 2)
    for step in range(3):
        own = [one for one in drawn if one["step"] == step]
        assert len(own) == 16
        assert {(one["problem"], one["sample"]) for one in own} == {
            (one["problem"], k) for one in own for k in range(4)
        }
        lengths = [n for one in updates if one["step"] == step for n in one["response_detail"]["length"]]
        assert sorted(lengths) == sorted(one["tokens"] for one in own)
    assert (run.final / "config.json").is_file()
    assert not (run.path / "areal" / "files").exists()
