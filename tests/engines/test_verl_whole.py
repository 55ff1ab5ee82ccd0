"""verl itself, in the environment that `gspo-lab engines install verl` makes: it reads what it is given, and trains."""

import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling import gspo_lab
from child_processes import lab, processes_of
from waiting import until

from gspo_lab.engines.environments import home_of
from gspo_lab.files import holder
from gspo_lab.runfolder import RunFolder

PYTHON = home_of("verl") / "bin" / "python"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.verl,
    pytest.mark.skipif(not PYTHON.exists(), reason="gspo-lab engines install verl"),
]

STUDY = """
question = "Does verl train both arms?"
model = "tiny-qwen3"
engine = "verl"
steps = 3
seeds = [0]
task = "gspo_lab.engines.smoke_test_task:Lottery"
[rollout]
prompts_per_step = 8
group_size = 4
[update]
minibatches = 4
learning_rate = 1e-3
warmup_updates = 6
checkpoint_every = 1
[record]
rollouts = 1.0
detail_every = 1
[[bench]]
name = "lottery"
samples = 2
every = 2
[arm.grpo]
objective = "grpo"
[arm.gspo]
objective = "gspo"
"""

READ = """
import pathlib, sys, verl
from hydra import compose, initialize_config_dir
from verl.utils.config import omega_conf_to_dataclass
for path in map(pathlib.Path, sys.argv[1:]):
    with initialize_config_dir(str(pathlib.Path(verl.__file__).parent / "trainer/config"), version_base=None):
        read = compose("ppo_trainer", overrides=path.read_text().splitlines())
    actor = omega_conf_to_dataclass(read.actor_rollout_ref.actor)
    omega_conf_to_dataclass(read.actor_rollout_ref.rollout)
    if read.algorithm.adv_estimator == "gae":
        omega_conf_to_dataclass(read.critic)
    megatron = getattr(actor, "megatron", None)
    replay = megatron.router_replay.mode if megatron else None
    print("READ", type(actor).__name__, actor.policy_loss.loss_mode, actor.ppo_mini_batch_size, replay)
"""

GIVEN = (
    ("", ["device=cpu"], "FSDPActorConfig lab-gspo 2 None"),
    ("", ["device=cpu", "arm.gspo.importance_sampling_level=token"], "FSDPActorConfig lab-vanilla 2 None"),
    ("processes=8", ["device=cuda"], "FSDPActorConfig lab-gspo 2 None"),
    (
        "",
        ["device=cpu", "arm.gspo.objective=gspo-token", "arm.gspo.advantage=gae", "update.warmup_updates=0"],
        "FSDPActorConfig lab-gspo 2 None",
    ),
    (
        "backend='megatron'",
        ["device=cuda", "model=tiny-qwen3-moe", "update.dtype=bfloat16", "routing_replay=old-policy"],
        "McoreActorConfig lab-gspo 2 R2",
    ),
    (
        "backend='megatron', processes=4, tensor_parallel=2",
        ["device=cuda", "model=tiny-qwen3-moe", "update.dtype=bfloat16", "routing_replay=rollout"],
        "McoreActorConfig lab-gspo 2 R3",
    ),
)
"""Options, changes of the study, and what verl then reads: its actor, loss, prompts in a mini-batch, replay."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "arms.toml").write_text(STUDY)
    return tmp_path


def test_verl_reads_what_it_would_be_given(folder: Path) -> None:
    overrides = []
    for place, (options, changes, _) in enumerate(GIVEN):
        changes = [f"engine={{name='verl', options={{{options}}}}}", *changes]
        words = [word for one in changes for word in ("--set", one)]
        to = folder / str(place)
        written = gspo_lab("check", folder / "arms.toml", "--arms", "gspo", *words, "--write-config", to)
        assert written.code == 0, written.out + written.err
        overrides.append(str(to / "gspo/verl/attempt-1/overrides.txt"))
    done = subprocess.run([str(PYTHON), "-c", READ, *overrides], capture_output=True, text=True, timeout=1500)
    read = [line for line in done.stdout.splitlines() if line.startswith("READ ")]
    assert read == [f"READ {wanted}" for *_, wanted in GIVEN], done.stderr[-2000:]


def test_both_arms_are_trained_one_of_them_killed_and_taken_up_again(folder: Path) -> None:
    runs = {arm: RunFolder(folder / "runs/arms" / arm / "s0") for arm in ("grpo", "gspo")}
    words = ("run", "arms.toml", "--jobs", "1", "--set", "device=cpu")
    first = subprocess.Popen(
        [sys.executable, "-m", "gspo_lab", *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until(lambda: runs["grpo"].records("step") or first.poll() is not None, seconds=1500)
    worker = holder(runs["grpo"].path / "lock")
    assert worker is not None, runs["grpo"].log.read_text()[-3000:]
    os.kill(int(worker.split()[0]), signal.SIGKILL)
    assert first.wait(1500) == 1  # the other arm is trained all the same
    until(lambda: not list(processes_of(runs["grpo"].path / "verl")), seconds=120)
    assert not runs["grpo"].standing().finished

    second = lab(folder, *words)
    assert second.returncode == 0, second.stdout + second.stderr
    assert (folder / "reports/arms.html").is_file()
    starts = [one["step"] for one in runs["grpo"].records("status") if one["state"] == "started"]
    assert starts[0] == 0
    assert starts[-1] in (1, 2)
    for run in runs.values():
        _whole(run)
    begun = [run.records("step")[0] for run in runs.values()]
    assert begun[0]["rollout_digest"] == begun[1]["rollout_digest"]  # one seed, one model: the arms begin alike
    assert begun[0]["prompt_digest"] == begun[1]["prompt_digest"]


def _whole(run: RunFolder) -> None:
    """All that three steps of four updates leave, each once; and what verl says of them itself."""
    assert [one["step"] for one in run.records("step")] == [0, 1, 2]
    updates = run.records("update")
    assert [(one["step"], one["minibatch"]) for one in updates] == [(s, k) for s in range(3) for k in range(4)]
    rates = [one["learning_rate"] for one in updates]
    assert rates[:7] == pytest.approx([1e-3 * min(1, (n + 1) / 6) for n in range(7)])
    answers = run.records("answer")
    drawn = [one for one in answers if one["bench"] == "rollout"]
    lengths = [length for one in updates for length in one["response_detail"]["length"]]
    assert lengths == [one["tokens"] for one in drawn]  # the mini-batches are the lab's, in its order
    assert not any("sample_seed" in one for one in drawn)
    asked = [one["step"] for one in answers if one["bench"] == "lottery"]
    assert {step: asked.count(step) for step in asked} == {0: 10, 2: 10, 3: 10}
    assert (run.final / "config.json").is_file()
    assert not (run.path / "verl" / "checkpoints").exists()
    for step, said in _log(run):
        own = [one for one in updates if one["step"] == step]
        for name, theirs in (("clip_fraction_tokens", "actor/pg_clipfrac"), ("stale_k1", "actor/ppo_kl")):
            assert statistics.fmean(one[name] for one in own) == pytest.approx(said[theirs], abs=1e-6)
        assert own[0]["log_ratio_max_abs"] == pytest.approx(0, abs=1e-5)  # nothing has moved yet


def _log(run: RunFolder) -> Iterator[tuple[int, dict[str, float]]]:
    for path in sorted((run.path / "verl").glob("attempt-*/log.jsonl")):
        for line in map(json.loads, path.read_text().splitlines()):
            if line["step"]:
                yield line["step"] - 1, line["data"]
