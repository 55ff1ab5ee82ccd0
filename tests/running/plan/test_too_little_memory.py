"""Too little memory is said before a run, with the estimate; a plan shows it for every arm."""

import io
import json
import os
from pathlib import Path

import pytest
from calling import lab_error
from rich.console import Console

from gspo_lab.common.errors import LabError
from gspo_lab.running.conduct import conduct
from gspo_lab.running.launch.local import LocalPool
from gspo_lab.running.plan.memory_fit import memory_fits, require_memory, worker_memory
from gspo_lab.running.plan.plan import plan
from gspo_lab.running.plan.preflight import check
from gspo_lab.study import Study, load_study
from gspo_lab.training.models.builtin_models import byte_tokenizer

STUDY = """
question = "Does it fit?"
model = "{model}"
device = "{device}"
task = "addition"
seeds = 1
[arm.grpo]
objective = "grpo"
[arm.adapters]
objective = "grpo"
update = {{lora_rank = 8}}
"""
HUGE = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48_000,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "moe_intermediate_size": 768,
    "intermediate_size": 6144,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151_936,
}


def study(folder: Path, model: str, device: str = "cpu") -> Study:
    path = folder / "fits.toml"
    path.write_text(STUDY.format(model=model, device=device))
    return load_study(path)


@pytest.fixture
def huge(tmp_path: Path) -> Path:
    """A thousand times Qwen3-30B-A3B, as far as its configuration says.

    A .bin does not say what it holds.
    """
    folder = tmp_path / "huge"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(HUGE))
    (folder / "pytorch_model.bin").write_bytes(b"weights")
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def one_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An nvidia-smi in front of the PATH that tells of one GPU with 24 GiB."""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        '#!/bin/sh\n[ "$1" = -L ] && echo "GPU 0: NVIDIA (UUID: GPU-aa)" || echo "0, 24576"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_what_does_not_fit_is_one_line_with_the_estimate(tmp_path: Path, huge: Path) -> None:
    with pytest.raises(LabError) as refused:
        require_memory(study(tmp_path, str(huge)), LocalPool(2).slots("cpu"))
    output = str(refused.value)
    assert "\n" not in output
    # 30.5 billion parameters a thousand times, but for the embeddings: weights of 4 bytes, two
    # moments of 4 each
    assert output.startswith("too little memory: grpo: about ")
    assert ", weights 119,642 GB, optimizer 239,283 GB, gradients 119,642 GB" in output
    assert "a share of main memory of" in output
    assert output.endswith("or go on all the same with --ignore-memory-check")


def test_a_study_goes_on_only_if_told_so(tmp_path: Path, huge: Path) -> None:
    """With yes the worker gets as far as the weights, which are none here."""
    wide = {**HUGE, "num_hidden_layers": 2, "hidden_size": 2**17, "moe_intermediate_size": 2**16}
    (huge / "config.json").write_text(json.dumps(wide))
    console = Console(file=io.StringIO())
    entry = load_study(study(tmp_path, str(huge)).path, arms=["grpo"])
    with lab_error("too little memory"):
        conduct(entry, tmp_path / "runs", jobs=1, console=console, live=False)
    assert not (tmp_path / "runs").exists()
    (ended,) = conduct(
        entry, tmp_path / "runs", jobs=1, console=console, live=False, yes=True
    ).results
    assert ended.code == 2, "something that the user can mend"
    assert "the weights of the model" in ended.line


def test_gpus_are_measured_and_shared(tmp_path: Path, one_gpu: None) -> None:
    complete = memory_fits(study(tmp_path, "Qwen/Qwen3-4B", "cuda"), LocalPool().slots("cuda"))
    assert [(fit.arm, fit.has, fit.too_little) for fit in complete] == [
        ("grpo", 24 * 2**30, True),
        ("adapters", 24 * 2**30, True),
    ]
    shared = memory_fits(study(tmp_path, "Qwen/Qwen3-4B", "cuda"), LocalPool(2).slots("cuda"))
    assert {fit.has for fit in shared} == {12 * 2**30}
    sparing = ["model=Qwen/Qwen3-0.6B", "rollout.at_a_time=8", "update.gradient_checkpointing=true"]
    small = load_study(tmp_path / "fits.toml", overrides=sparing)
    require_memory(small, LocalPool().slots("cuda"))


def test_what_is_embedded_or_not_known_is_not_judged(tmp_path: Path) -> None:
    for model in ("tiny-qwen3", "somebody/some-model"):
        assert memory_fits(study(tmp_path, model), LocalPool().slots("cpu")) == []
        require_memory(study(tmp_path, model), LocalPool().slots("cpu"))
    entry = worker_memory(LocalPool(1).slots("cpu"))
    two = worker_memory(LocalPool(2).slots("cpu"))
    assert entry >= two > 1e8, "a worker has its share of main memory"


def test_a_plan_for_a_gpu_that_is_not_here_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "nothing"))
    if Path("/proc/driver/nvidia/gpus").is_dir():
        pytest.skip("this machine has a GPU")
    overridden = load_study(study(tmp_path, "Qwen/Qwen3-4B", "cpu").path, overrides=["device=cuda"])
    with lab_error("device = 'cuda', but there is no GPU here"):
        plan(overridden, tmp_path / "runs")
    result = plan(study(tmp_path, "Qwen/Qwen3-4B", "cuda"), tmp_path / "runs")
    assert (result.obstacle or "").startswith("device = 'cuda', but there is no GPU here")
    lines = [line for line in result.lines() if line.startswith("memory: ")]
    assert len(lines) == 2
    assert "HF_HUB_OFFLINE keeps it from being downloaded" in (result.obstacle or "")
    assert "grpo: about" in lines[0]
    assert lines[0].endswith("on a GPU of unknown size")
    (complete, adapters) = result.to_json()["memory"]
    assert complete["total"] - adapters["total"] > 16e9 * 0.75 * 4.02 * 0.95, (
        "gradients and moments of frozen weights"
    )
    assert complete["too_little"] is False


def test_an_unknown_architecture_is_told_before_anything_is_loaded(
    tmp_path: Path, huge: Path
) -> None:
    (huge / "config.json").write_text(json.dumps({**HUGE, "model_type": "qwen99"}))
    with lab_error("architecture 'qwen99', which is none of the causal language models"):
        check(study(tmp_path, str(huge)))
