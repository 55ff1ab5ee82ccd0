"""verl and AReaL themselves, in the environments that the lab makes for them.

Two arms are trained, and one is killed in between.
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

import pytest
from calling import gspo_lab
from case_tables import cases
from child_processes import lab, processes_of
from waiting import until

from gspo_lab.common.atomic_files import lock_holder
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.training.engines.virtualenvs import home_of

pytestmark = pytest.mark.slow


def needs(engine: str) -> list[pytest.MarkDecorator]:
    """Of tests that need an engine's environment."""
    remote = (home_of(engine) / "bin" / "python").exists()
    return [
        getattr(pytest.mark, engine),
        pytest.mark.skipif(not remote, reason=f"gspo-lab engines install {engine}"),
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

GIVEN = cases(__file__, "verl_reads")
"""Options, changes of the study, and what verl then reads.

Its actor, loss, prompts in a mini-batch, and replay.
"""


@pytest.mark.parametrize("settings", [pytest.param(VERL, marks=needs("verl"))])
def test_verl_reads_what_it_would_be_given(settings: JsonObject, tmp_path: Path) -> None:
    (tmp_path / "arms.toml").write_text(STUDY.format(**settings))
    overrides = []
    for place, (options, changes, _) in enumerate(GIVEN):
        changes = [f"engine={{name='verl', options={{{options}}}}}", *changes]
        words = [word for item in changes for word in ("--set", item)]
        to = tmp_path / str(place)
        written = gspo_lab(
            "plan", tmp_path / "arms.toml", "--arms", "gspo", *words, "--write-config", to
        )
        assert written.code == 0, written.out + written.err
        overrides.append(str(to / "gspo/verl/attempt-1/overrides.txt"))
    process = subprocess.run(
        [str(home_of("verl") / "bin" / "python"), "-c", READ, *overrides],
        capture_output=True,
        text=True,
        timeout=1500,
    )
    read = [line for line in process.stdout.splitlines() if line.startswith("READ ")]
    assert read == [f"READ {expected}" for *_, expected in GIVEN], process.stderr[-2000:]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(record, marks=needs(str(record["engine"])), id=str(record["engine"]))
        for record in (VERL, AREAL)
    ],
)
def test_both_arms_are_trained_one_of_them_killed_and_taken_up_again(
    settings: JsonObject, tmp_path: Path
) -> None:
    (tmp_path / "arms.toml").write_text(STUDY.format(**settings))
    grpo, gspo = runs = [RunFolder(tmp_path / "runs/arms" / arm / "s0") for arm in ("grpo", "gspo")]
    words = ("run", "arms.toml", "--jobs", "1", "--set", "device=cpu")
    command = [sys.executable, "-m", "gspo_lab.cli", *words]
    earlier = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until(lambda: grpo.records("step") or earlier.poll() is not None, seconds=1500)
    worker = lock_holder(grpo.path / "lock")
    assert worker is not None, grpo.log.read_text()[-3000:]
    os.kill(int(worker.split()[0]), signal.SIGKILL)
    assert earlier.wait(1500) == 1  # the other arm is trained all the same
    until(lambda: not list(processes_of(grpo.path / settings["engine"])), seconds=120)
    assert not grpo.status().finished

    later = lab(tmp_path, *words)
    assert later.returncode == 0, later.stdout + later.stderr
    assert (tmp_path / "reports/arms.html").is_file()
    starts = [record["step"] for record in grpo.records("status") if record["state"] == "started"]
    assert starts[0] == 0
    assert starts[-1] in (1, 2)
    for run in runs:
        _whole(run, settings["warmup"])
        leftover = [
            path.name for path in (run.path / settings["engine"]).iterdir() if path.is_dir()
        ]
        assert all(name.startswith("attempt-") for name in leftover)
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
    assert [record["step"] for record in run.records("step")] == [0, 1, 2]
    updates = run.records("update")
    answers = run.records("answer")
    assert [(record["step"], record["minibatch"]) for record in updates] == [
        (s, k) for s in range(3) for k in range(4)
    ]
    assert updates[0]["log_ratio_max_abs"] == pytest.approx(0, abs=1e-5)  # nothing has moved yet
    assert any(record["clipped_tokens"] for record in updates)
    rates = [record["learning_rate"] for record in updates]
    assert rates == pytest.approx([1e-3 * min(1, (n + 1) / max(warmup, 1)) for n in range(12)])
    drawn = [record for record in answers if record["bench"] == "rollout"]
    assert not any("sample_seed" in record for record in drawn)
    for step in range(3):
        of_step = [record for record in drawn if record["step"] == step]
        assert Counter(record["problem"] for record in of_step) == dict.fromkeys(
            (record["problem"] for record in of_step), 4
        )
        lengths = [
            n
            for record in updates
            if record["step"] == step
            for n in record["response_detail"]["length"]
        ]
        assert sorted(lengths) == sorted(record["tokens"] for record in of_step)
        assert len(of_step) == 32
    bench_answers = Counter(
        (record["step"], record["problem"]) for record in answers if record["bench"] == "lottery"
    )
    assert bench_answers == dict.fromkeys(
        ((step, f"held-out-{letter}") for step in (0, 2, 3) for letter in "vwxyz"), 2
    )
    assert (run.final / "config.json").is_file()


def _as_verl_says(run: RunFolder) -> None:
    """The mini-batches are the lab's, in its order.

    verl counts updates as the lab does.
    """
    updates = run.records("update")
    drawn = [answer["tokens"] for answer in run.records("answer") if answer["bench"] == "rollout"]
    assert [length for answer in updates for length in answer["response_detail"]["length"]] == drawn
    for step, output in _log(run):
        outputs = [answer for answer in updates if answer["step"] == step]
        for name, peer in (
            ("clip_fraction_tokens", "actor/pg_clipfrac"),
            ("stale_k1", "actor/ppo_kl"),
        ):
            assert statistics.fmean(answer[name] for answer in outputs) == pytest.approx(
                output[peer], abs=1e-6
            )


def _log(run: RunFolder) -> Iterator[tuple[int, dict[str, float]]]:
    for path in sorted((run.path / "verl").glob("attempt-*/log.jsonl")):
        for line in map(json.loads, path.read_text().splitlines()):
            if line["step"]:
                yield line["step"] - 1, line["data"]
