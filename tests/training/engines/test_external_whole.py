"""verl and AReaL themselves, in the environments that the lab makes for them: two arms are trained,
one killed amid.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from calling import gspo_lab
from child_processes import lab, processes_of
from waiting import until

from gspo_lab.common.atomic_files import lock_holder
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.training.engines.virtualenvs import home_of

pytestmark = pytest.mark.slow


def needs(engine: str) -> list[pytest.MarkDecorator]:
    """Of tests that need an engine's environment."""
    there = (home_of(engine) / "bin" / "python").exists()
    return [
        getattr(pytest.mark, engine),
        pytest.mark.skipif(not there, reason=f"gspo-lab engines install {engine}"),
    ]


STUDY = """
question = "Does it train both arms?"
model = "tiny-qwen3"
engine = "{engine}"
steps = 3
seeds = [0]
task = "gspo_lab.training.engines.smoke_test_task:SmokeTestTask"
[rollout]
prompts_per_step = 8
group_size = 4
coupled = {coupled}
[update]
minibatches = 4
learning_rate = 1e-3
warmup_updates = {warmup}
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
aggregation = "{aggregation}"
[arm.gspo]
objective = "gspo"
aggregation = "{aggregation}"
[waive]
aggregation-label = "AReaL means every token alike, in both arms"
"""
VERL = {"engine": "verl", "coupled": "true", "warmup": 6, "aggregation": "seq-mean-token-mean"}
AREAL = {"engine": "areal", "coupled": "false", "warmup": 0, "aggregation": "token-mean"}

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
"""  # noqa: E501

GIVEN = (
    ("", ["device=cpu"], "FSDPActorConfig lab-gspo 2 None"),
    (
        "",
        ["device=cpu", "arm.gspo.importance_sampling_level=token"],
        "FSDPActorConfig lab-vanilla 2 None",
    ),
    ("processes=8", ["device=cuda"], "FSDPActorConfig lab-gspo 2 None"),
    (
        "",
        [
            "device=cpu",
            "arm.gspo.objective=gspo-token",
            "arm.gspo.advantage=gae",
            "update.warmup_updates=0",
        ],
        "FSDPActorConfig lab-gspo 2 None",
    ),
    (
        "backend='megatron'",
        [
            "device=cuda",
            "model=tiny-qwen3-moe",
            "update.dtype=bfloat16",
            "routing_replay=old-policy",
        ],
        "McoreActorConfig lab-gspo 2 R2",
    ),
    (
        "backend='megatron', processes=4, tensor_parallel=2",
        ["device=cuda", "model=tiny-qwen3-moe", "update.dtype=bfloat16", "routing_replay=rollout"],
        "McoreActorConfig lab-gspo 2 R3",
    ),
)
"""Options, changes of the study, and what verl then reads: its actor, loss, prompts in a
mini-batch, replay.
"""


@pytest.mark.parametrize("settings", [pytest.param(VERL, marks=needs("verl"))])
def test_verl_reads_what_it_would_be_given(settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "arms.toml").write_text(STUDY.format(**settings))
    overrides = []
    for place, (options, changes, _) in enumerate(GIVEN):
        changes = [f"engine={{name='verl', options={{{options}}}}}", *changes]
        words = [word for one in changes for word in ("--set", one)]
        to = tmp_path / str(place)
        written = gspo_lab(
            "plan", tmp_path / "arms.toml", "--arms", "gspo", *words, "--write-config", to
        )
        assert written.code == 0, written.out + written.err
        overrides.append(str(to / "gspo/verl/attempt-1/overrides.txt"))
    done = subprocess.run(
        [str(home_of("verl") / "bin" / "python"), "-c", READ, *overrides],
        capture_output=True,
        text=True,
        timeout=1500,
    )
    read = [line for line in done.stdout.splitlines() if line.startswith("READ ")]
    assert read == [f"READ {wanted}" for *_, wanted in GIVEN], done.stderr[-2000:]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(one, marks=needs(str(one["engine"])), id=str(one["engine"]))
        for one in (VERL, AREAL)
    ],
)
def test_both_arms_are_trained_one_of_them_killed_and_taken_up_again(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "arms.toml").write_text(STUDY.format(**settings))
    grpo, gspo = runs = [RunFolder(tmp_path / "runs/arms" / arm / "s0") for arm in ("grpo", "gspo")]
    words = ("run", "arms.toml", "--jobs", "1", "--set", "device=cpu")
    command = [sys.executable, "-m", "gspo_lab.cli", *words]
    first = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until(lambda: grpo.records("step") or first.poll() is not None, seconds=1500)
    worker = lock_holder(grpo.path / "lock")
    assert worker is not None, grpo.log.read_text()[-3000:]
    os.kill(int(worker.split()[0]), signal.SIGKILL)
    assert first.wait(1500) == 1  # the other arm is trained all the same
    until(lambda: not list(processes_of(grpo.path / settings["engine"])), seconds=120)
    assert not grpo.status().finished

    second = lab(tmp_path, *words)
    assert second.returncode == 0, second.stdout + second.stderr
    assert (tmp_path / "reports/arms.html").is_file()
    starts = [one["step"] for one in grpo.records("status") if one["state"] == "started"]
    assert starts[0] == 0
    assert starts[-1] in (1, 2)
    for run in runs:
        _whole(run, settings["warmup"])
        left = [path.name for path in (run.path / settings["engine"]).iterdir() if path.is_dir()]
        assert all(name.startswith("attempt-") for name in left)
    begun = [run.records("step")[0] for run in (grpo, gspo)]
    assert begun[0]["prompt_digest"] == begun[1]["prompt_digest"]
    if settings is VERL:
        assert (
            begun[0]["rollout_digest"] == begun[1]["rollout_digest"]
        )  # one seed, one model: the arms begin alike
        for run in runs:
            _as_verl_says(run)


def _whole(run: RunFolder, warmup: int) -> None:
    """All that three steps of four updates leave, each once."""
    assert [one["step"] for one in run.records("step")] == [0, 1, 2]
    updates = run.records("update")
    answers = run.records("answer")
    assert [(one["step"], one["minibatch"]) for one in updates] == [
        (s, k) for s in range(3) for k in range(4)
    ]
    assert updates[0]["log_ratio_max_abs"] == pytest.approx(0, abs=1e-5)  # nothing has moved yet
    assert any(one["clipped_tokens"] for one in updates)
    rates = [one["learning_rate"] for one in updates]
    assert rates == pytest.approx([1e-3 * min(1, (n + 1) / max(warmup, 1)) for n in range(12)])
    drawn = [one for one in answers if one["bench"] == "rollout"]
    assert not any("sample_seed" in one for one in drawn)
    for step in range(3):
        of_step = [one for one in drawn if one["step"] == step]
        assert Counter(one["problem"] for one in of_step) == dict.fromkeys(
            (one["problem"] for one in of_step), 4
        )
        lengths = [
            n for one in updates if one["step"] == step for n in one["response_detail"]["length"]
        ]
        assert sorted(lengths) == sorted(one["tokens"] for one in of_step)
        assert len(of_step) == 32
    asked = Counter((one["step"], one["problem"]) for one in answers if one["bench"] == "lottery")
    assert asked == dict.fromkeys(
        ((step, f"held-out-{letter}") for step in (0, 2, 3) for letter in "vwxyz"), 2
    )
    assert (run.final / "config.json").is_file()


def _as_verl_says(run: RunFolder) -> None:
    """The mini-batches are the lab's, in its order; what verl counts of updates is what the lab
    does.
    """
    updates = run.records("update")
    drawn = [one["tokens"] for one in run.records("answer") if one["bench"] == "rollout"]
    assert [length for one in updates for length in one["response_detail"]["length"]] == drawn
    for step, said in _log(run):
        made = [one for one in updates if one["step"] == step]
        for name, theirs in (
            ("clip_fraction_tokens", "actor/pg_clipfrac"),
            ("stale_k1", "actor/ppo_kl"),
        ):
            assert statistics.fmean(one[name] for one in made) == pytest.approx(
                said[theirs], abs=1e-6
            )


def _log(run: RunFolder) -> Iterator[tuple[int, dict[str, float]]]:
    for path in sorted((run.path / "verl").glob("attempt-*/log.jsonl")):
        for line in map(json.loads, path.read_text().splitlines()):
            if line["step"]:
                yield line["step"] - 1, line["data"]
