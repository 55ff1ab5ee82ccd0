"""The configuration that a program logged becomes the arm's settings.

Runs of other settings are other arms.
"""

from pathlib import Path
from typing import Any

import pytest
from case_tables import cases
from laboratory import json_of
from logs import brought, csv_of, json_lines, offline_run, refused, trainer_state, trl_rows

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.exchange.importers.config import comparable_settings, training_arguments

VERL = cases(__file__, "verl")
OF_VERL = cases(__file__, "of_verl")


def settings(folder: Path, arm: str) -> JsonObject:
    """What study.json holds of an arm."""
    found: JsonObject = json_of(folder / "runs" / "x" / "study.json")["arms"][arm]["settings"]
    return found


def imported(folder: Path, source: str, path: Path, arm: str, seed: int, *options: object) -> None:
    brought(folder, source, path, "--study", "x", "--arm", arm, "--seed", seed, *options)


def wandb_run(path: Path, **config: Any) -> Path:
    return offline_run(path, [{"_step": step, "reward": 0.5} for step in (1, 2)], config)


def test_a_wandb_run_s_own_config_is_its_arm_s(tmp_path: Path) -> None:
    """Keys that no program's table knows are read where their meaning is common.

    Nothing else of the arm is known.
    """
    run = wandb_run(
        tmp_path / "run-a.wandb", model="Qwen/Qwen3-8B", lr=3e-6, clip=0.0003, seed=0, odd="text"
    )
    imported(tmp_path, "wandb", run, "gspo", 0)
    assert settings(tmp_path, "gspo") == {
        "model": "Qwen/Qwen3-8B",
        "update": {"learning_rate": 3e-6},
        "objective": {"clip_low": 0.0003, "clip_high": 0.0003},
    }
    origin = json_of(tmp_path / "runs" / "x" / "gspo" / "s0" / "run.json")["origin"]
    assert origin["config"] == {"model": "Qwen/Qwen3-8B", "lr": 3e-6, "clip": 0.0003, "odd": "text"}


def test_runs_of_other_settings_are_not_one_arm(tmp_path: Path) -> None:
    """A rate of 3e-6 and one of 2e-8, then two further keys.

    No table knows the first key. A person says that the second changes nothing.
    """
    runs = [
        wandb_run(tmp_path / f"run-{place}.wandb", lr=rate, odd=odd)
        for place, (rate, odd) in enumerate([(3e-6, 1), (2e-8, 1), (3e-6, 2)])
    ]
    imported(tmp_path, "wandb", runs[0], "a", 0)
    options = ("--study", "x", "--arm", "a", "--seed", 1)
    line = refused(tmp_path, "wandb", runs[1], *options)
    assert (
        "arm a: update.learning_rate is 3e-06, and the log of seed 1 says 2e-08; make two arms"
        in line
    )
    line = refused(tmp_path, "wandb", runs[2], *options)
    assert (
        "arm a: odd is 1 in x/a/s0 and 2 in x/a/s1; make two arms of them, or give --ignore" in line
    )
    imported(tmp_path, "wandb", runs[2], "a", 1, "--ignore", "odd")
    imported(tmp_path, "wandb", runs[1], "b", 1)
    assert [settings(tmp_path, arm)["update"]["learning_rate"] for arm in "ab"] == [3e-6, 2e-8]


def test_all_runs_of_one_import_are_held_against_each_other(tmp_path: Path) -> None:
    for seed in range(3):
        wandb_run(tmp_path / f"gspo-{seed}" / "run-a.wandb", lr=1e-6 if seed < 2 else 2e-6)
    (tmp_path / "x.toml").write_text('[[runs]]\nsource = "wandb"\npath = "{arm}-{seed}"\n')
    assert "update.learning_rate is 1e-06, and the log of seed 2 says 2e-06" in refused(
        tmp_path, tmp_path / "x.toml"
    )
    assert not (tmp_path / "runs").exists()


def test_verl_s_configuration_is_read_from_hydra_and_from_the_console(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    log = json_lines(
        tmp_path / "a" / "log.jsonl", [{"step": 1, "data": {"critic/score/mean": 0.5}}]
    )
    (tmp_path / "a" / ".hydra").mkdir()
    (tmp_path / "a" / ".hydra" / "config.yaml").write_text(yaml.safe_dump(VERL))
    imported(tmp_path, "verl", log, "hydra", 0)
    shown = "\n".join(f"(TaskRunner pid=7) {line}" for line in _printed(VERL))
    console = tmp_path / "console.txt"
    console.write_text(f"{shown}\n(TaskRunner pid=7) step:1 - critic/score/mean:0.5\n")
    imported(tmp_path, "verl", console, "console", 0)
    assert settings(tmp_path, "hydra") == settings(tmp_path, "console") == OF_VERL
    assert "someone" not in (tmp_path / "runs" / "x" / "hydra" / "s0" / "run.json").read_text()


def _printed(data: JsonObject) -> list[str]:
    from pprint import pformat

    return pformat(data).splitlines()


def test_a_configuration_may_be_named(tmp_path: Path) -> None:
    """W&B's config.yaml has each entry with a description.

    A file may belong to one run or to all.
    """
    pytest.importorskip("yaml")
    log = csv_of(tmp_path / "log.csv", "step,r", "1,.5")
    (tmp_path / "config-0.yaml").write_text("learning_rate: {desc: null, value: 2.0e-6}\n")
    imported(
        tmp_path,
        "csv",
        log,
        "a",
        0,
        "--map",
        "reward=r",
        "--config",
        tmp_path / "config-{seed}.yaml",
    )
    assert settings(tmp_path, "a") == {"update": {"learning_rate": 2e-6}}
    (tmp_path / "config-1.yaml").write_text("- 1\n")
    options = ("--study", "x", "--arm", "a", "--seed", 1, "--map", "reward=r")
    for name, what in (
        ("config-1.yaml", "its top level is list, not a table"),
        ("none.json", "No such file"),
    ):
        assert what in refused(tmp_path, "csv", log, *options, "--config", tmp_path / name)


def test_trl_s_arguments_are_read_without_running_them(tmp_path: Path) -> None:
    """What GRPOConfig leaves in a checkpoint.

    These are its epsilon, rate and group, and an enumeration by its value.
    """
    torch = pytest.importorskip("torch")
    trl = pytest.importorskip("trl")
    folder = tmp_path / "out" / "checkpoint-3"
    trainer_state(folder / "trainer_state.json", trl_rows(range(1, 4)))
    made = trl.GRPOConfig(
        output_dir=str(tmp_path / "out"),
        learning_rate=3e-6,
        num_generations=4,
        per_device_train_batch_size=8,
        epsilon=3e-4,
        epsilon_high=4e-4,
        importance_sampling_level="sequence",
        use_cpu=True,
        bf16=False,
        report_to="none",
    )
    torch.save(made, folder / "training_args.bin")
    (folder / "adapter_config.json").write_text(
        '{"base_model_name_or_path": "Qwen/Qwen3-0.6B", "r": 8}'
    )
    imported(tmp_path, "trl", tmp_path / "out", "gspo", 0)
    found = settings(tmp_path, "gspo")
    assert (found["model"], found["update"]["learning_rate"]) == ("Qwen/Qwen3-0.6B", 3e-6)
    assert found["update"]["lora_rank"] == 8
    assert found["objective"] == {
        "importance_sampling_level": "sequence",
        "clip_low": 3e-4,
        "clip_high": 4e-4,
        "kl_coef": 0.0,
    }
    assert (found["rollout"]["group_size"], found["rollout"]["max_tokens"]) == (
        4,
        made.max_completion_length,
    )
    arguments = training_arguments(folder / "training_args.bin")
    assert arguments["lr_scheduler_type"] == made.lr_scheduler_type.value
    assert str(tmp_path) not in (
        tmp_path / "runs" / "x" / "gspo" / "s0" / "run.json"
    ).read_text().replace(str(tmp_path / "out"), "", 1), "only the source names its path"


def test_a_pickle_that_would_run_a_program_runs_none(tmp_path: Path) -> None:
    import os
    import pickle
    import zipfile

    class Runs:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path / 'ran'}",)

    with zipfile.ZipFile(tmp_path / "training_args.bin", "w") as archive:
        archive.writestr("x/data.pkl", pickle.dumps(Runs()))
    assert training_arguments(tmp_path / "training_args.bin") == {}
    assert not (tmp_path / "ran").exists()
    (tmp_path / "training_args.bin").write_bytes(b"no zip file")
    assert training_arguments(tmp_path / "training_args.bin") is None


def test_places_and_names_are_not_compared() -> None:
    config = {
        "importance_sampling_level": "token",
        "output_dir": "/home/someone/out",
        "data.train_files": "/home/someone/gsm8k.parquet",
        "data.seed": 3,
        "max_tokens": 512,
    }
    assert comparable_settings(config) == {
        "importance_sampling_level": "token",
        "data.train_files": "gsm8k.parquet",
        "max_tokens": 512,
    }
