"""A mixture that is made of a dense model computes what that does, until noise is added."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from assertions import assert_fields
from calling import gspo_lab, lab_error
from case_tables import cases
from laboratory import json_of

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.study import load_study
from gspo_lab.study.start_tables import UpcycleTable
from gspo_lab.training.models import upcycle as upcycling
from gspo_lab.training.models.builtin_models import EOS_ID, PAD_ID, VOCABULARY, byte_tokenizer
from gspo_lab.training.models.load import load_model
from gspo_lab.training.models.routing import Routers
from gspo_lab.training.models.upcycle import ensure_mixture, upcycle

SIZES: JsonObject = {
    "vocab_size": VOCABULARY,
    "pad_token_id": PAD_ID,
    "eos_token_id": EOS_ID,
    "bos_token_id": None,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


def dense(folder: Path, family: str, **options: Any) -> str:
    torch.manual_seed(0)
    config = getattr(tf, f"{family}Config")(**SIZES, **options)
    model = getattr(tf, f"{family}ForCausalLM")(config)
    for parameter in model.parameters():  # biases and norms of a new model are 0 and 1
        parameter.data += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("dense_family", "extra", "family", "layers", "count"),
    cases(__file__, "dense_models"),
)
def test_without_noise_the_mixture_is_the_dense_model(
    tmp_path: Path, dense_family: str, extra: JsonObject, family: Any, layers: str, count: int
) -> None:
    source = dense(tmp_path / "dense", dense_family, **extra)
    settings = UpcycleTable(experts=3, top_k=2, layers=layers, noise=0.0, family=family)
    result = upcycle(source, tmp_path / "moe", settings)
    assert result.difference < 1e-4
    assert abs(result.kl) < 1e-5
    original, tokenizer = load_model(source, dtype="float32", device="cpu")
    mixture, _ = load_model(str(tmp_path / "moe"), dtype="float32", device="cpu")
    routers = Routers.of(mixture)
    assert routers is not None
    assert_fields(routers, layers=count, experts=3, top_k=2)
    ids = tokenizer("7 + 8 = 15", return_tensors="pt").input_ids
    torch.testing.assert_close(mixture(ids).logits, original(ids).logits, rtol=1e-4, atol=1e-4)


def test_noise_makes_the_experts_differ(tmp_path: Path) -> None:
    source = dense(tmp_path / "dense", "Llama")
    result = upcycle(source, tmp_path / "moe", UpcycleTable(noise=0.5))
    again = upcycle(source, tmp_path / "again", UpcycleTable(noise=0.5))
    assert result.kl > 1e-6
    assert result == again
    manifest = json_of(tmp_path / "moe" / "upcycled.json")
    assert_fields(manifest, experts=4, kl=result.kl)
    weights = (tmp_path / "moe" / "model.safetensors").read_bytes()
    assert weights == (tmp_path / "again" / "model.safetensors").read_bytes()


def test_a_mixture_that_differs_is_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = dense(tmp_path / "dense", "Llama")
    monkeypatch.setattr(upcycling, "MAX_DIFFERENCE", 0.0)
    with lab_error("and 0 is allowed: nothing was saved"):
        upcycle(source, tmp_path / "moe", UpcycleTable())
    assert not (tmp_path / "moe").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            UpcycleTable(family="qwen3_moe"),
            "a 'llama' model cannot become a 'qwen3_moe'; use",
        ),
        (UpcycleTable(layers="2-3"), "layers 2-3: the model has layers 0 to 2"),
        (UpcycleTable(layers="1", family="mixtral"), "a Mixtral has experts in every layer"),
        (UpcycleTable(experts=2, top_k=3), "2 experts, 3 per token: use 1 to all of them"),
    ],
)
def test_what_cannot_be_made_is_one_line(
    tmp_path: Path, settings: UpcycleTable, message: str
) -> None:
    source = dense(tmp_path / "dense", "Llama")
    with lab_error(message):
        upcycle(source, tmp_path / "moe", settings)


def test_the_command_says_what_the_result_is(tmp_path: Path) -> None:
    source = dense(tmp_path / "dense", "Llama")
    process = gspo_lab("upcycle", source, tmp_path / "moe", "--layers", "1-2")
    assert process.code == 0
    assert "is not a trained mixture" in " ".join(process.out.split())
    refused = gspo_lab("upcycle", source, tmp_path / "moe")
    assert (refused.code, refused.out) == (2, "")
    assert "exists already; name another folder" in refused.err
    refused = gspo_lab("upcycle", source, tmp_path / "other", "--layers", "1,2", "--experts", "1")
    assert "upcycle.experts: " in refused.err
    assert "upcycle.layers: " in refused.err
    refused = gspo_lab("upcycle", "tiny-qwen3-moe", tmp_path / "other")
    assert "is of the family 'qwen3_moe'; upcycling knows llama, qwen2, qwen3" in refused.err


def test_a_study_names_the_dense_model_and_its_mixture_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense(tmp_path / "dense", "Llama")
    monkeypatch.setenv("GSPO_LAB_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "mixture.toml"
    file.write_text(
        """model = "upcycled:dense"
question = "replay?"
seeds = [0]
steps = 1
routing_replay = "rollout"
task = "addition"
rollout.prompts_per_step = 4
rollout.group_size = 2
rollout.max_tokens = 4
upcycle.layers = "1-2"
upcycle.noise = 0.5
[[bench]]
name = "addition"
problems = 4
[arm.grpo]
objective = "grpo"
[arm.gspo]
objective = "gspo"
"""
    )
    assert "2 runs, 1 mixture to make" in gspo_lab("plan", file).out
    done = gspo_lab("run", file, "--runs", tmp_path / "runs", "--output-dir", tmp_path)
    assert done.code == 0, done.err
    # Equal files elsewhere are the same model.
    shutil.copytree(tmp_path / "dense", tmp_path / "moved")
    moved = gspo_lab("plan", file, "--set", "model=upcycled:moved")
    assert "to make" not in moved.out
    (tmp_path / "dense").rename(tmp_path / "away")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    settings = load_study(file).runs()[0].settings
    with lab_error("the model 'dense' is neither embedded"):
        ensure_mixture(settings, tmp_path)
