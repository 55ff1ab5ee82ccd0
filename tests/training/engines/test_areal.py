"""AReaL: the settings that it is given, and what is refused.

In an environment with AReaL: that it reads them, and the recorded updates.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from assertions import assert_fields
from calling import lab_error
from laboratory import json_of
from lottery import MakeRun

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.training.engines.areal import SAVING, ArealEngine, checkpoints
from gspo_lab.training.engines.check import check_engine, check_ready
from gspo_lab.training.engines.external.attempt import for_plugin
from gspo_lab.training.engines.virtualenvs import home_of

PYTHON = (
    home_of("areal").resolve() / "bin" / "python"
)  # AReaL finds its configuration by a relative path
OURS = ("engine.name=areal", "update.warmup_updates=0", "rollout.coupled=false")
TOKEN_MEAN = ("arm.gspo.aggregation=token-mean", "arm.grpo.aggregation=token-mean")


def test_the_arms_differ_in_the_level_and_its_range_alone(
    make_run: MakeRun, tmp_path: Path
) -> None:
    inputs = {}
    for arm in ("grpo", "gspo"):
        run = make_run(arm, *OURS, *TOKEN_MEAN, "bench.lottery.every=6")
        check_engine(arm, run.settings, Path(run.base))
        ArealEngine().write(run, tmp_path / arm)
        config = json_of(tmp_path / arm / "areal/attempt-1/config.yaml")
        saver = config["saver"]
        assert (saver["freq_epochs"], saver["freq_steps"]) == (
            1,
            6,
        ), "what the lab evaluates is saved"
        inputs[arm] = config["actor"]
        inputs[arm]["path"] = ""
    differs = {
        key: (inputs["grpo"][key], item)
        for key, item in inputs["gspo"].items()
        if inputs["grpo"][key] != item
    }
    assert differs == {
        "trial_name": ("grpo-s0", "gspo-s0"),
        "importance_sampling_level": ("token", "sequence"),
        "eps_clip": (0.2, 3e-4),
        "eps_clip_higher": (0.27, 4e-4),
    }
    same = inputs["gspo"]
    assert_fields(
        same,
        kl_ctl=0.0,
        reward_scaling=1.0,
        reward_bias=0.0,
        c_clip=None,
        reward_norm={"mean_level": "group", "std_level": "group", "group_size": 4},
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (["arm.gspo.aggregation=seq-mean-token-mean"], "--set objective.aggregation=token-mean"),
        (
            [*TOKEN_MEAN, "arm.gspo.importance_sampling_level=sequence-token"],
            "it has token, sequence",
        ),
        ([*TOKEN_MEAN, "arm.gspo.advantage=gae"], "is not given its critic by the lab"),
        ([*TOKEN_MEAN, "arm.gspo.advantage=leave-one-out"], "has no advantage = 'leave-one-out'"),
        ([*TOKEN_MEAN, "update.epochs=2"], "would ignore update.epochs = 2"),
        ([*TOKEN_MEAN, "update.warmup_updates=8"], "--set update.warmup_updates=0"),
        ([*TOKEN_MEAN, "rollout.coupled=true"], "--set rollout.coupled=false"),
        (
            [*TOKEN_MEAN, "engine.options={scheduler='slrum'}"],
            r"'slrum' \(did you mean 'slurm'\?\): local, ray, slurm",
        ),
        ([*TOKEN_MEAN, "engine.options={processes=0}"], "a whole number from 1 on"),
    ],
)
def test_what_areal_cannot_do_is_told(make_run: MakeRun, changes: list[str], why: str) -> None:
    run = make_run("gspo", *OURS, *changes)
    with lab_error(why):
        check_engine("gspo", run.settings, Path(run.base))


def test_its_environment_is_asked_for_before_anything_is_launched(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GSPO_LAB_CACHE", str(tmp_path))
    with lab_error("gspo-lab engines install areal"):
        check_ready(make_run("gspo", *OURS, *TOKEN_MEAN).settings)


def test_a_checkpoint_counts_where_it_is_whole_and_no_further_than_the_records(
    make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run("gspo", *OURS, *TOKEN_MEAN)

    engine = ArealEngine()

    def save(step: int) -> None:
        info = checkpoints(tmp_path, run) / "recover_info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "step_info.json").write_text(
            json.dumps({"epoch": 0, "epoch_step": step, "global_step": step})
        )

    assert engine.saved_steps(tmp_path, run, 3) == 0
    save(1)
    assert engine.saved_steps(tmp_path, run, 2) == 2
    save(2)
    assert engine.saved_steps(tmp_path, run, 2) == 0, "a step that was never recorded"
    assert not checkpoints(tmp_path, run).exists()
    save(1)
    (tmp_path / "files" / SAVING).touch()
    (checkpoints(tmp_path, run) / "recover_info" / "step_info.json").write_text("")
    assert engine.saved_steps(tmp_path, run, 2) == 0, "it was being written over"
    assert not checkpoints(tmp_path, run).exists()


def test_of_a_step_areal_tells_seconds_and_entropy_and_what_it_leaves_out_is_unknown() -> None:
    pieces = {
        "rollout": 10.0,
        "recompute_logp": 2.0,
        "compute_advantage": 0.25,
        "train_step": 11.0,
        "save": 100.0,
    }
    message = ArealEngine().step_columns
    actual = message(
        {
            "ppo_actor/update/entropy/avg": 0.42,
            **{f"timeperf/{name}": s for name, s in pieces.items()},
        }
    )
    assert actual == {
        "seconds_step": 23.25,  # without what is no part of training
        "seconds_rollout": 10.0,
        "seconds_old_logprobs": 2.0,
        "seconds_update": 11.0,
        "entropy": 0.42,
    }
    assert_fields(message({}), entropy=None, seconds_update=None)


def sampled(folder: Path) -> list[JsonObject]:
    """Four responses to each of four prompts, as the lab draws and grades them.

    They are cut to 9 to 12 tokens: 11 to 17 with their prompts, so that no two fit into 17. Without
    a GPU AReaL lets rows that are packed together see each other.
    """
    from gspo_lab.training.engines.smoke_test_task import SmokeTestTask
    from gspo_lab.training.models.load import encode_prompt, load_model
    from gspo_lab.training.samplers import Request, Sampling, noise_key
    from gspo_lab.training.samplers.transformers_sampler import TransformersSampler

    model, tokenizer = load_model(
        "tiny-qwen3", dtype="float32", device="cpu", checkpoint=folder.parent / "model"
    )
    task = SmokeTestTask()
    requested = [(problem, sample) for problem in task.problems("train")[:4] for sample in range(4)]
    requests = [
        Request(item.id, tuple(encode_prompt(tokenizer, item.prompt)), k, noise_key(item.id, k))
        for item, k in requested
    ]
    drawn = TransformersSampler(model, tokenizer).sample(requests, Sampling(max_tokens=12))
    cuts = [9 + place % 4 for place in range(len(drawn))]
    return [
        {
            "prompt": list(request.prompt_ids),
            "response": item.response_ids[:cut],
            "logprobs": item.logprobs[:cut],
            "reward": task.grade(problem, item.text).reward,
        }
        for (problem, _), request, item, cut in zip(requested, requests, drawn, cuts, strict=True)
    ]


def in_its_environment(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {
        **os.environ,
        **for_plugin(folder),
        "TORCHDYNAMO_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [str(PYTHON), *words]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=1500, env=environment
    )


READ = """
import sys
from areal.api.cli_args import GRPOConfig, load_expr_config
for scheduler in ("local", "ray", "slurm"):
    read, _ = load_expr_config([*sys.argv[1:], f"scheduler.type={scheduler}"], GRPOConfig)
    print("READ", read.scheduler.type, read.actor.importance_sampling_level, read.actor.eps_clip_higher)
"""  # noqa: E501


@pytest.mark.slow
@pytest.mark.areal
@pytest.mark.skipif(not PYTHON.exists(), reason="AReaL 1.0.4 in GSPO_LAB_CACHE/engines/areal")
def test_areal_reads_it_and_its_actor_s_updates_are_recorded(
    make_run: MakeRun, tmp_path: Path
) -> None:
    shape = (
        "update.microbatch_tokens=17",
        "update.minibatches=2",
        "rollout.group_size=4",
        "rollout.prompts_per_step=4",
        "record.detail_every=1",
    )
    ArealEngine().write(make_run("gspo", *OURS, *TOKEN_MEAN, *shape, "device=cpu"), tmp_path)
    folder = tmp_path / "areal" / "attempt-1"
    read = in_its_environment(folder, "-c", READ, "--config", str(folder / "config.yaml"))
    for scheduler in ("local", "ray", "slurm"):
        assert f"READ {scheduler} sequence 0.0004" in read.stdout, read.stderr[-2000:]

    samples = sampled(folder)
    assert len({item["reward"] for item in samples}) == 2  # there is something to learn
    (folder / "samples.json").write_text(json.dumps(samples))
    process = in_its_environment(
        folder, str(Path(__file__).with_name("areal_updates.py")), str(folder)
    )
    assert process.returncode == 0, process.stderr[-3000:]
    updates = [json.loads(line) for line in (folder / "updates.jsonl").read_text().splitlines()]
    assert [(item["step"], item["minibatch"]) for item in updates] == [(0, 0), (0, 1)]
    lengths = [length for item in updates for length in item["response_detail"]["length"]]
    assert sorted(lengths) == sorted(len(item["response"]) for item in samples)
    assert updates[0]["log_ratio_max_abs"] == pytest.approx(0, abs=1e-5)
    assert updates[1]["log_ratio_std_tokens"] > 1e-4
    stats = json_of(folder / "stats.json")
    (peer,) = [value for key, value in stats.items() if key.endswith("update/clip_ratio/avg")]
    tokens = sum(item["response_tokens"] for item in updates)
    assert sum(item["clipped_tokens"] for item in updates) / tokens == pytest.approx(peer, abs=1e-6)
