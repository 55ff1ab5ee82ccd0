"""Sizes and memory from a configuration alone, compared with real models.

Their parameters, and what autograd keeps.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from assertions import assert_fields

from gspo_lab.common.plain_data import JsonObject, Strings
from gspo_lab.study import Settings, load_study
from gspo_lab.training.models.load import computing_in
from gspo_lab.training.models.lora import add_adapters
from gspo_lab.training.models.shapes import (
    BYTES,
    PUBLISHED,
    ModelShape,
    estimate,
    layer_activations,
    model_shape,
    shape_of,
)

BASE: JsonObject = {
    "vocab_size": 512,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 768,
    "max_position_embeddings": 2048,
}
ROUTED: JsonObject = {"moe_intermediate_size": 96, "num_experts": 16, "num_experts_per_tok": 4}
FAMILIES: dict[str, JsonObject] = {
    "Qwen3": {"head_dim": 32, "tie_word_embeddings": True},
    "Llama": {},
    "Qwen3Moe": {"head_dim": 32, "norm_topk_prob": True, **ROUTED},
    "Olmoe": {"intermediate_size": 96, "num_experts": 16, "num_experts_per_tok": 4},
    "Mixtral": {"intermediate_size": 96, "num_local_experts": 8, "num_experts_per_tok": 2},
}
PARTLY: dict[str, JsonObject] = {
    "Qwen3Moe": {**FAMILIES["Qwen3Moe"], "mlp_only_layers": [0, 1, 3]},
    "Qwen2Moe": {**ROUTED, "shared_expert_intermediate_size": 768, "decoder_sparse_step": 2},
    "DeepseekV3": {
        "num_key_value_heads": 8,
        "moe_intermediate_size": 96,
        "n_routed_experts": 16,
        "num_experts_per_tok": 4,
        "n_group": 1,
        "topk_group": 1,
        "n_shared_experts": 2,
        "first_k_dense_replace": 3,
        "q_lora_rank": 64,
        "kv_lora_rank": 32,
        "qk_rope_head_dim": 16,
        "qk_nope_head_dim": 32,
        "v_head_dim": 32,
    },
    "Glm4Moe": {
        "head_dim": 32,
        "moe_intermediate_size": 96,
        "n_routed_experts": 16,
        "num_experts_per_tok": 4,
        "n_group": 1,
        "topk_group": 1,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
    },
}
"""Mixtures of four layers, some of them dense, or with shared experts."""
POSITIONS = 512
every_family = pytest.mark.parametrize("family", FAMILIES)


def config_of(family: str, layers: int = 2) -> Any:
    return getattr(tf, f"{family}Config")(
        **{**BASE, **FAMILIES[family], "num_hidden_layers": layers}
    )


def model_of(family: str, layers: int = 2) -> Any:
    torch.manual_seed(0)
    return getattr(tf, f"{family}ForCausalLM")(config_of(family, layers)).train()


def shape(family: str, layers: int = 2) -> ModelShape:
    return shape_of(json.loads(config_of(family, layers).to_json_string(use_diff=False)))


@every_family
def test_parameters_are_counted_to_the_last_one(family: str) -> None:
    model = model_of(family)
    assert shape(family).parameters == sum(p.numel() for p in model.parameters())
    add_adapters(model, rank=3, alpha=6)
    assert shape(family).adapter_parameters(3) == sum(
        p.numel() for p in model.parameters() if p.requires_grad
    )


@pytest.mark.parametrize("family", PARTLY)
def test_dense_layers_and_shared_experts_of_a_mixture_are_counted(family: str) -> None:
    torch.manual_seed(0)
    settings = {**BASE, **PARTLY[family], "num_hidden_layers": 4}
    config = getattr(tf, f"{family}Config")(**settings)
    model = getattr(tf, f"{family}ForCausalLM")(config).train()
    shape = shape_of(json.loads(config.to_json_string(use_diff=False)))
    assert shape is not None
    parameters = sum(p.numel() for p in model.parameters())
    assert shape.parameters == pytest.approx(parameters, rel=0.01)
    sparse = shape.mixture_layers * layer_activations(shape, "float32")
    dense = shape.dense_layers * layer_activations(shape, "float32", dense=True)
    embedded = 4 * BASE["hidden_size"]
    estimated = sparse + dense + embedded
    assert estimated == pytest.approx(kept(model, "float32") / POSITIONS, rel=0.15)


def test_routes_that_replay_keeps_are_a_part_of_their_own(tmp_path: Path) -> None:
    """32 prompts x 8 responses x 1,200 positions x 48 layers x 8 experts x 2 bytes."""
    mixture = PUBLISHED["Qwen/Qwen3-30B-A3B"]
    tokens: JsonObject = {"prompt_tokens": 200, "response_tokens": 1000}
    once = 256 * 1200 * 48 * 8 * 2
    for replay, copies in (("none", 1), ("old-policy", 1), ("rollout", 3)):
        chosen = settings(tmp_path, f"routing_replay={replay}")
        assert estimate(mixture, chosen, **tokens).routes == copies * once
    assert estimate(SMALL, settings(tmp_path), **tokens).routes == 0


@every_family
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activations_are_what_autograd_keeps(family: str, dtype: str) -> None:
    """A layer's bytes per position: two layers' minus one layer's.

    They are counted in the storages that the backward pass holds.
    """
    item = model_of(family, 1)
    two = model_of(family, 2)
    # Under autocast the weights are cast, and the casts kept: they are counted apart.
    casts = (
        2 * sum(p.numel() for p in two.model.layers[1].parameters()) if dtype == "bfloat16" else 0
    )
    measured = (kept(two, dtype) - kept(item, dtype) - casts) / POSITIONS
    assert layer_activations(shape(family), dtype) == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_checkpointing_keeps_a_layers_input(dtype: str) -> None:
    actual = []
    for layers in (1, 2):
        model = model_of("Qwen3", layers)
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        actual.append(kept(model, dtype))
    assert (actual[1] - actual[0]) / POSITIONS == pytest.approx(4 * BASE["hidden_size"], rel=0.01)


def kept(model: Any, dtype: Any) -> int:
    """Bytes of all storages saved for the backward pass, the model's own weights left out."""
    native = {p.untyped_storage().data_ptr() for p in model.parameters()}
    storages: dict[int, int] = {}
    alive = []

    def pack(x: torch.Tensor) -> torch.Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in native:
            storages[storage.data_ptr()] = storage.nbytes()
            alive.append(x)
        return x

    ids = torch.randint(2, 500, (8, POSITIONS // 8), generator=torch.Generator().manual_seed(1))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x), computing_in(dtype, "cpu"):
        model.base_model(input_ids=ids, use_cache=False)
    return sum(storages.values())


def test_the_published_shapes_have_the_published_sizes() -> None:
    """From the models' cards, in billions."""
    cards = {
        "Qwen/Qwen3-0.6B": 0.596,
        "Qwen/Qwen3-1.7B": 1.72,
        "Qwen/Qwen3-4B": 4.02,
        "Qwen/Qwen3-8B": 8.19,
        "Qwen/Qwen3-30B-A3B": 30.5,
        "HuggingFaceTB/SmolLM2-135M": 0.135,
        "allenai/OLMoE-1B-7B-0924": 6.92,
        "mistralai/Mixtral-8x7B-v0.1": 46.7,
        "meta-llama/Llama-3.2-1B": 1.24,
        "meta-llama/Llama-3.2-3B": 3.21,
        "meta-llama/Llama-3.1-8B": 8.03,
    }
    assert {
        name: float(f"{shape.parameters / 1e9:.3g}") for name, shape in PUBLISHED.items()
    } == cards
    assert PUBLISHED["Qwen/Qwen3-30B-A3B"].active_parameters / 1e9 == pytest.approx(3.3, abs=0.3)


def test_a_shape_is_found_by_folder_cache_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    config_of("Mixtral").save_pretrained(folder)
    assert model_shape(str(folder)) == shape("Mixtral")
    assert model_shape("somebody/some-model") is None
    snapshot = tmp_path / "cache/models--somebody--some-model/snapshots/abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text((folder / "config.json").read_text())
    assert model_shape("somebody/some-model") == shape("Mixtral")
    assert (
        model_shape("Qwen/Qwen3-4B-Instruct-2507")
        == model_shape("Qwen/Qwen3-4B")
        == PUBLISHED["Qwen/Qwen3-4B"]
    )
    assert model_shape("tiny-qwen3") is None
    assert shape_of({"model_type": "mamba", "hidden_size": 8}) is None


STUDY = """
question = "How much memory?"
model = "Qwen/Qwen3-0.6B"
task = "addition"
[rollout]
dtype = "bfloat16"
[update]
dtype = "bfloat16"
[arm.a]
objective = "grpo"
"""
SMALL = PUBLISHED["Qwen/Qwen3-0.6B"]


def settings(folder: Path, *overrides: str) -> Settings:
    path = folder / "memory.toml"
    path.write_text(STUDY)
    return load_study(path, overrides=overrides).arms["a"].settings


def total(folder: Path, *overrides: str) -> float:
    return estimate(
        SMALL, settings(folder, *overrides), prompt_tokens=200, response_tokens=1000
    ).total


def test_what_lasts_is_counted_by_hand(tmp_path: Path) -> None:
    count = SMALL.parameters
    actual = estimate(SMALL, settings(tmp_path), prompt_tokens=200, response_tokens=1000)
    assert_fields(
        actual, weights=4 * count, gradients=4 * count, optimizer=8 * count, copies=2 * count
    )
    # 32 prompts x 8 responses x 1,200 positions x 28 layers x 2 x 8 heads of 128 x 2 bytes
    cache = 256 * 1200 * 28 * 2 * 1024 * BYTES["bfloat16"]
    assert_fields(
        actual,
        sampling=pytest.approx(cache + 256 * 151_936 * 12),
        total=pytest.approx(
            0.8e9 + 14 * count + max(4 * count + actual.activations, actual.sampling)
        ),
    )
    adapted = estimate(
        SMALL, settings(tmp_path, "update.lora_rank=16"), prompt_tokens=200, response_tokens=1000
    )
    adapters = SMALL.adapter_parameters(16)
    assert_fields(adapted, weights=2 * count + 4 * adapters, gradients=4 * adapters, copies=0.0)
    tokens = {"prompt_tokens": 200, "response_tokens": 1000, "answer_tokens": 1300}
    requested = estimate(SMALL, settings(tmp_path), **tokens, on_gpu=True)
    on_cpu = estimate(SMALL, settings(tmp_path), **tokens, on_gpu=False)
    assert (actual.context, on_cpu.context) in ((0.8e9, 0.4e9), (0.8e9, 0.8e9))
    # Answers of a benchmark are sampled and not trained on: 300 more positions.
    assert requested.sampling - actual.sampling == pytest.approx(256 * 300 * 28 * 2 * 1024 * 2)
    assert requested.activations == actual.activations


@pytest.mark.parametrize(
    "less",
    [
        ("update.gradient_checkpointing=true", "rollout.at_a_time=16"),
        ("rollout.at_a_time=16", "update.microbatch_tokens=4096"),
        ("update.optimizer=adamw-8bit",),
        ("update.lora_rank=16",),
    ],
)
def test_what_the_message_names_helps(tmp_path: Path, less: Strings) -> None:
    assert total(tmp_path, *less) < total(tmp_path) - 1e9


def test_a_kl_term_needs_the_starting_weights_unless_adapters_hide_them(tmp_path: Path) -> None:
    for kl in ("objective.kl_coef=0.1", "record.kl_to_start=true"):
        assert total(tmp_path, kl) - total(tmp_path) == pytest.approx(4 * SMALL.parameters)
        assert total(tmp_path, kl, "update.lora_rank=4") == total(tmp_path, "update.lora_rank=4")


def test_a_minibatch_bounds_the_positions(tmp_path: Path) -> None:
    """8 prompts in 2 mini-batches, with 8 responses each: 32 rows of 60 + 40 tokens, not 16,384."""
    few = ("rollout.prompts_per_step=8", "update.minibatches=2")
    activations = [
        estimate(
            SMALL, settings(tmp_path, *few, extra), prompt_tokens=60, response_tokens=40
        ).activations
        for extra in ("update.microbatch_tokens=16384", "update.microbatch_tokens=1600")
    ]
    per_position = layer_activations(SMALL, "bfloat16") * SMALL.layers + 8 * SMALL.width
    head = (
        4 * 0.4 * SMALL.vocabulary
    )  # float32 logits of the responses' 0.4 of the positions, too many to be kept
    assert 3200 * head > 2**27
    assert activations[0] - activations[1] == pytest.approx(1600 * per_position)
