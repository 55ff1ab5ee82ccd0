"""What verl is told, from a study, by pencil; and what is refused before verl is asked anything."""

from pathlib import Path
from typing import Any

import pytest
import torch
from calling import lab_error
from case_tables import cases
from lottery import MakeRun

from gspo_lab.study import Run
from gspo_lab.training.engines.check import check_engine
from gspo_lab.training.engines.external.attempt import Attempt, PreparedAttempt
from gspo_lab.training.engines.smoke_test_task import SmokeTestTask
from gspo_lab.training.engines.verl import (
    VerlEngine,
    arguments,
    environment,
    overrides,
    rows_at_a_time,
)

ATTEMPT = Path("/runs/x/gspo/s0/verl/attempt-1")
ACTOR = "actor_rollout_ref.actor."
ROLLOUT = "actor_rollout_ref.rollout."


def prepared(run: Run, *, on_gpu: bool = False, first_step: int = 0) -> PreparedAttempt:
    """A start from step `first_step` on; prompts of at most 6 tokens, responses of 10."""
    return PreparedAttempt(
        attempt=Attempt(ATTEMPT, run, first_step, ()),
        on_gpu=on_gpu,
        model="/model",
        training=(),
        benches=(),
        prompt_tokens=6,
        response_tokens=10,
        task=SmokeTestTask(),
        bench_tasks={},
        facts={},
    )


def told(
    run: Run, *, on_gpu: bool = False, first_step: int = 0, **options: Any
) -> dict[str, object]:
    return overrides(prepared(run, on_gpu=on_gpu, first_step=first_step), VerlEngine(**options))


def test_the_arms_differ_in_the_loss_and_its_range_alone(make_run: MakeRun) -> None:
    grpo = told(make_run("grpo", "engine=verl"))
    gspo = told(make_run("gspo", "engine=verl"))
    differs = {key: (grpo[key], gspo[key]) for key in grpo if grpo[key] != gspo[key]}
    assert differs == {
        ACTOR + "policy_loss.loss_mode": ("lab-vanilla", "lab-gspo"),
        ACTOR + "clip_ratio_low": (0.2, 3e-4),
        ACTOR + "clip_ratio_high": (0.27, 4e-4),
        "trainer.experiment_name": ("grpo-s0", "gspo-s0"),
    }
    assert grpo[ACTOR + "loss_agg_mode"] == "seq-mean-token-mean"
    assert grpo[ACTOR + "clip_ratio_c"] == 1e9  # the study has no dual clip
    assert grpo["algorithm.adv_estimator"] == "grpo"


def test_batches_are_counted_as_verl_counts_them(make_run: MakeRun) -> None:
    # 4 prompts x 4 responses in 4 mini-batches: 1 prompt each, 4 rows in one forward pass; 16
    # positions a row.
    keys = told(make_run("gspo", "engine=verl"))
    assert keys["data.train_batch_size"] == 4
    assert keys[ACTOR + "ppo_mini_batch_size"] == 1
    assert keys[ROLLOUT + "n"] == 4
    assert keys[ACTOR + "ppo_micro_batch_size_per_gpu"] == 4
    two = told(make_run("gspo", "engine=verl"), processes=2)
    assert two["trainer.n_gpus_per_node"] == 2
    assert two[ACTOR + "ppo_micro_batch_size_per_gpu"] == 2
    assert (
        told(make_run("gspo", "engine=verl", "update.microbatch_tokens=40"))[
            ACTOR + "ppo_micro_batch_size_per_gpu"
        ]
        == 2
    )


@pytest.mark.parametrize(
    ("rows", "tokens", "expected"), [(12, 16 * 5, 4), (12, 16 * 12, 12), (7, 16 * 6, 1), (3, 1, 1)]
)
def test_rows_at_a_time_divide_the_mini_batch(rows: int, tokens: int, expected: int) -> None:
    assert rows_at_a_time(rows, 16, tokens) == expected


def test_a_resumed_run_names_its_checkpoint_and_evaluates_nothing_twice(make_run: MakeRun) -> None:
    run = make_run("gspo", "engine=verl")
    fresh = told(run)
    later = told(run, first_step=1)
    assert (fresh["trainer.resume_mode"], fresh["trainer.val_before_train"]) == ("disable", True)
    assert (later["trainer.resume_mode"], later["trainer.val_before_train"]) == (
        "resume_path",
        False,
    )
    assert later["trainer.resume_from_path"] == f"{ATTEMPT.parent}/checkpoints/global_step_1"


def test_megatron_replays_routes(make_run: MakeRun) -> None:
    changes = ("engine.name=verl", "engine.options={backend='megatron'}", "model=tiny-qwen3-moe")
    for replay, mode in (("old-policy", "R2"), ("rollout", "R3")):
        run = make_run("gspo", *changes, f"routing_replay={replay}")
        keys = told(run, on_gpu=True, backend="megatron")
        assert keys["model_engine"] == "megatron"
        assert keys[ACTOR + "megatron.router_replay.mode"] == mode
        assert keys[ROLLOUT + "enable_rollout_routing_replay"] is (mode == "R3")


def test_a_critic_has_the_study_s_settings_and_its_own_learning_rate(make_run: MakeRun) -> None:
    changes = (
        "arm.gspo.objective=gspo-token",
        "arm.gspo.advantage=gae",
        "arm.gspo.gae_lambda=0.95",
    )
    run = make_run(
        "gspo", "engine=verl", *changes, "critic.learning_rate=0.01", "critic.value_clip=0.2"
    )
    check_engine("gspo", run.settings, Path(run.base))
    keys = told(run)
    assert (keys["algorithm.adv_estimator"], keys["algorithm.gamma"], keys["algorithm.lam"]) == (
        "gae",
        1.0,
        0.95,
    )
    assert (keys["critic.optim.lr"], keys["critic.cliprange_value"], keys[ACTOR + "optim.lr"]) == (
        0.01,
        0.2,
        1e-3,
    )
    assert keys["critic.loss_agg_mode"] == "token-mean"
    assert not [key for key in told(make_run("gspo", "engine=verl")) if key.startswith("critic.")]


def test_words_are_what_hydra_reads_back() -> None:
    output = arguments(
        {"a": True, "b": None, "c": ["console", "file"], "d": 3e-4, "e": "x/y z", "f": "gspo"}
    )
    assert output == ["a=true", "b=null", "c=[console,file]", "d=0.0003", 'e="x/y z"', "f=gspo"]


def test_a_cluster_s_workers_are_told_the_environment(make_run: MakeRun) -> None:
    run = make_run("gspo", "engine=verl")
    local = told(run)
    remote = told(run, ray="auto")
    assert local["+ray_kwargs.ray_init.address"] == "local"
    output = {key.rpartition(".")[2]: value for key, value in remote.items() if ".env_vars." in key}
    assert output == environment(prepared(run))


@pytest.mark.parametrize(
    ("changes", "why"),
    cases(__file__, "what_verl_cannot_do_is_told_before_it_starts"),
)
def test_what_verl_cannot_do_is_told_before_it_starts(
    make_run: MakeRun, changes: list[str], why: str
) -> None:
    run = make_run("gspo", "engine.name=verl", *changes)
    with lab_error(why) as error:
        check_engine("gspo", run.settings, Path(run.base))
    assert "\n" not in str(error.value)


def test_a_study_s_own_keys_cannot_be_set_behind_its_back(make_run: MakeRun) -> None:
    run = make_run(
        "gspo", "engine.name=verl", "engine.options={set={'trainer.balance_batch'=false}}"
    )
    assert run.settings.engine.options == {"set": {"trainer.balance_batch": False}}
    check_engine("gspo", run.settings, Path(run.base))
    assert told(run, set={"actor_rollout_ref.actor.fsdp_config.param_offload": True})[
        ACTOR + "fsdp_config.param_offload"
    ]
    for key in ("actor_rollout_ref.actor.policy_loss.loss_mode", "+data.shuffle", "model_engine"):
        with lab_error("follows from the study"):
            told(run, set={key: "nosuch"})


def test_a_closed_port_is_told_at_once(unused_port: int) -> None:
    with lab_error("nobody listens there"):
        VerlEngine(ray=f"127.0.0.1:{unused_port}").ready()
    with lab_error("HOST:PORT"):
        VerlEngine(ray="somewhere").ready()


def test_more_processes_than_gpus_are_told_before_ray_waits_for_them() -> None:
    local = torch.cuda.device_count()
    VerlEngine(processes=local + 1).check_here(on_gpu=False)
    with lab_error(f"processes = {local + 1}: {local} GPUs are seen here"):
        VerlEngine(processes=local + 1).check_here(on_gpu=True)


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as item:
        item.bind(("127.0.0.1", 0))
        port: int = item.getsockname()[1]
    return port
