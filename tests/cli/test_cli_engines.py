"""`gspo-lab engines`, and `gspo-lab plan --engine --write-config`."""

from pathlib import Path

import pytest
from calling import gspo_lab

from gspo_lab.training.engines import ENGINES

STUDY = """
question = "Which files?"
model = "tiny-qwen3"
steps = 2
seeds = [0, 1]
task = "addition"
[rollout]
prompts_per_step = 4
[arm.grpo]
objective = "grpo"
[arm.gspo]
objective = "gspo"
"""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GSPO_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files.toml").write_text(STUDY)
    return tmp_path


def test_engines_are_listed_with_what_they_can() -> None:
    said = gspo_lab("engines", "--json")
    assert said.code == 0
    rows = {one["engine"]: one for one in said.json["engines"]}
    assert rows.keys() == ENGINES.keys()
    assert (rows["native"]["varies"], rows["native"]["records"]) == ("all", "all")
    assert rows["verl"]["version"] is None
    assert "objective.clip_high" in rows["verl"]["varies"]
    assert "router_entropy" not in rows["verl"]["records"]
    assert not [row for row in rows.values() if "clip_fraction_gradient" in row["records"]]
    assert {one["launcher"] for one in said.json["launchers"]} >= {"local"}
    people = gspo_lab("engines")
    assert people.code == 0
    assert "any GPU" in people.out


def test_what_an_engine_would_be_given_is_written_and_nothing_run(alone: Path) -> None:
    words = ("plan", "files.toml", "--engine", "verl", "--set", "device=cpu", "--write-config")
    said = gspo_lab(*words, "to")
    listed = gspo_lab(*words, "more", "--json")
    assert (said.code, listed.code) == (0, 0), said.err + listed.err
    for arm, wrote in listed.json["written"].items():
        assert wrote["folder"] == f"more/{arm}"
        assert "gspo_lab.training.engines.verl.plugin.main" in wrote["command"]
    for arm, loss in (("grpo", "lab-vanilla"), ("gspo", "lab-gspo")):
        attempt = alone / "to" / arm / "verl" / "attempt-1"
        lines = (attempt / "overrides.txt").read_text().splitlines()
        assert f'actor_rollout_ref.actor.policy_loss.loss_mode="{loss}"' in lines
        assert len((attempt / "train.jsonl").read_text().splitlines()) == 8
        assert (alone / "to" / arm / "verl" / "model" / "config.json").is_file()
    assert said.out.count("gspo_lab.training.engines.verl.plugin.main") == 2
    assert not (alone / "runs").exists()
    again = gspo_lab("plan", "files.toml", "--engine", "verl", "--write-config", "to")
    assert again.code == 2
    assert "--write-config to: this path exists" in again.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("engines install native", "the engine 'native' has no environment of its own"),
        ("plan files.toml --write-config to", "the engine 'native' has no input files of its own"),
        (
            "plan files.toml --engine verl --set update.lora_rank=4",
            "the engine 'verl' would ignore",
        ),
        (
            "plan files.toml --engine verl --set device=cpu --write-config /proc/files",
            "gspo-lab: --write-config /proc/files: cannot make this folder (",
        ),
    ],
)
def test_what_an_engine_cannot_do_is_one_line(words: str, told: str) -> None:
    said = gspo_lab(*words.split())
    assert said.code == 2
    assert told in said.err.splitlines()[-1]


def test_an_engine_that_is_not_installed_is_told_before_a_folder_is_made(alone: Path) -> None:
    said = gspo_lab("run", "files.toml", "--set", "engine=verl")
    assert said.code == 2
    assert said.err.strip().endswith("gspo-lab engines install verl")
    assert not (alone / "runs").exists()
    planned = gspo_lab("run", "files.toml", "--set", "engine=verl", "--dry-run")
    assert planned.code == 0
    assert "cannot be run here yet: the engine 'verl' is not installed" in planned.out
