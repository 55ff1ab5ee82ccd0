"""Sparse upcycling (arXiv 2212.05055): a dense model becomes a mixture of experts.

Each expert is a copy of the dense feed-forward layer. The gates of the chosen experts add up to 1,
so that the mixture computes what the dense model does, whatever its routers choose. That is checked
before noise makes the experts differ, and before anything is saved.
"""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from gspo_lab.common.atomic_files import atomic_folder, wait_for_lock
from gspo_lab.common.errors import LabError
from gspo_lab.study.schema import Settings
from gspo_lab.study.start_tables import UpcycleTable
from gspo_lab.study.study import MANIFEST, missing_mixture
from gspo_lab.training.models.load import (
    explain_write_error,
    load_config,
    load_model,
    load_tokenizer,
    silence_transformers,
)

FAMILIES = {
    "llama": ("qwen2_moe", "mixtral"),
    "qwen2": ("qwen2_moe",),
    "qwen3": ("qwen3_moe",),
}
"""Dense families, and the mixtures with the same attention; the first is the default."""

KEPT_KEYS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_parameters",
    "initializer_range",
    "tie_word_embeddings",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
)
"""Keys of the configuration that dense model and mixture share."""

ROUTER_STD = 0.02
MAX_DIFFERENCE = 1e-3
"""The largest accepted difference of the mixture's log-probs from the dense model's.

It is measured before noise; rounding gives 2e-5.
"""
TEXTS = (
    "Calculate 12 + 34. Give only the result.",
    "The capital of France is",
    "def f(x):\n    return x +",
    "Once upon a time there was a small fox",
)
MEANING = (
    "Every expert is a copy of the dense feed-forward layer, with noise; the routers are drawn at"
    " random. The result is a mixture to study routing and clipping on. It is not a trained"
    " mixture: its experts have not specialised, and it knows no more than the dense model."
)


@dataclass(frozen=True, slots=True)
class Upcycled:
    """The mixture that was saved: its size, and how it differs from the dense model."""

    parameters: int
    difference: float
    """Largest difference of a log-prob before noise."""
    kl: float
    """Nats per token from the dense model to the mixture with noise."""


def upcycle(model: str, folder: Path, settings: UpcycleTable) -> Upcycled:
    """Save the mixture of a dense model, a folder or a Hub id, with its tokenizer in `folder`.

    LabError where that cannot be done, or where the mixture without noise differs.
    """
    if folder.exists():
        raise LabError(f"{folder} exists already; name another folder, or delete it")
    dense, tokenizer = load_model(model, dtype="float32", device="cpu")
    config = _config(model, dense.config, settings)
    layers = settings.layer_numbers(config.num_hidden_layers)
    generator = torch.Generator().manual_seed(settings.seed)
    mixture = AutoModelForCausalLM.from_config(config)
    _fill(mixture, dense, layers, generator)
    mixture.eval()
    difference, _ = _compare(dense, mixture, tokenizer)
    if not difference <= MAX_DIFFERENCE:
        raise LabError(
            f"the mixture's log-probs differ from those of '{model}' by up to {difference:.2g}"
            f" before noise, and {MAX_DIFFERENCE:g} is allowed: nothing was saved"
        )
    _add_noise(mixture, layers, settings.noise, generator)
    _, kl = _compare(dense, mixture, tokenizer)
    parameters = sum(parameter.numel() for parameter in mixture.parameters())
    result = Upcycled(parameters, difference, kl)
    manifest = {"model": model, **settings.model_dump(), **asdict(result), "meaning": MEANING}
    with explain_write_error(folder, "it is made again"), atomic_folder(folder) as partial:
        with silence_transformers():
            mixture.save_pretrained(partial)
            tokenizer.save_pretrained(partial)
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return result


def ensure_mixture(settings: Settings, base: Path, *, weights: bool = True) -> None:
    """Make the mixture that `model = "upcycled:MODEL"` names, unless the cache holds it.

    Without `weights` only what a plan reads: its configuration and its tokenizer. `base` is the
    folder of the study's file. Processes that want it at the same time wait for the first.
    LabError as `upcycle`, and where MODEL is not on this machine.
    """
    if (missing := missing_mixture(settings, base)) is None:
        return
    dense, folder = missing
    folder.parent.mkdir(parents=True, exist_ok=True)
    with wait_for_lock(folder.with_name(f".{folder.name}.lock")), silence_transformers():
        if weights and missing_mixture(settings, base):
            shutil.rmtree(folder, ignore_errors=True)  # a plan's
            upcycle(dense, folder, settings.upcycle)
        elif not folder.exists():
            tokenizer, _ = load_tokenizer(dense)
            config = _config(dense, load_config(dense), settings.upcycle)
            with atomic_folder(folder) as partial:
                config.save_pretrained(partial)
                tokenizer.save_pretrained(partial)


def _family(model: str, dense_family: str, settings: UpcycleTable) -> str:
    possible = FAMILIES.get(dense_family)
    if possible is None:
        raise LabError(
            f"the model '{model}' is of the family '{dense_family}'; upcycling knows"
            f" {', '.join(FAMILIES)}"
        )
    family = settings.family or possible[0]
    if family not in possible:
        raise LabError(
            f"a '{dense_family}' model cannot become a '{family}'; use {' or '.join(possible)}"
        )
    return family


def _mixture_layers(count: int, settings: UpcycleTable) -> list[int]:
    layers = settings.layer_numbers(count)
    if not layers or layers[-1] >= count:
        raise LabError(f"layers {settings.layers}: the model has layers 0 to {count - 1}")
    if settings.family == "mixtral" and len(layers) < count:
        raise LabError("a Mixtral has experts in every layer; leave out the layers")
    return layers


def _config(model: str, dense: Any, settings: UpcycleTable) -> Any:
    """The mixture's configuration by the dense model's."""
    family = _family(model, dense.model_type, settings)
    layers = _mixture_layers(dense.num_hidden_layers, settings)
    if settings.top_k > settings.experts:
        raise LabError(
            f"{settings.experts} experts, {settings.top_k} per token: use 1 to all of them per"
            " token"
        )
    dense_keys = dense.to_dict()
    keys = {key: dense_keys[key] for key in KEPT_KEYS if key in dense_keys}
    keys |= {"num_experts_per_tok": settings.top_k, "attention_dropout": 0.0}
    if family == "mixtral":
        return AutoConfig.for_model(
            family, **keys, num_local_experts=settings.experts, sliding_window=None
        )
    if family == "qwen2_moe":
        # Its shared expert cannot be left out: it is one unit wide, and 0.
        keys |= {"shared_expert_intermediate_size": 1, "qkv_bias": dense.model_type == "qwen2"}
        keys.pop("head_dim", None)
    return AutoConfig.for_model(
        family,
        **keys,
        num_experts=settings.experts,
        moe_intermediate_size=dense.intermediate_size,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        mlp_only_layers=[n for n in range(dense.num_hidden_layers) if n not in layers],
        use_sliding_window=False,
    )


@torch.no_grad()
def _fill(mixture: Any, dense: Any, layers: list[int], generator: torch.Generator) -> None:
    """Copy the dense weights by name and into all experts; LabError for a weight without source."""
    weights = dict(mixture.state_dict())
    for name, tensor in dense.state_dict().items():
        if name in weights:
            weights.pop(name).copy_(tensor)
    for layer in layers:
        feed_forward = dense.model.layers[layer].mlp
        prefix = f"model.layers.{layer}.mlp."
        gate_and_up = torch.cat([feed_forward.gate_proj.weight, feed_forward.up_proj.weight])
        weights.pop(f"{prefix}experts.gate_up_proj").copy_(gate_and_up)
        weights.pop(f"{prefix}experts.down_proj").copy_(feed_forward.down_proj.weight)
        weights.pop(f"{prefix}gate.weight").normal_(0, ROUTER_STD, generator=generator)
        for name in [name for name in weights if name.startswith(f"{prefix}shared_expert")]:
            weights.pop(name).zero_()
    if weights:
        raise LabError(f"upcycling knows no source for the weight {min(weights)}")


@torch.no_grad()
def _add_noise(mixture: Any, layers: list[int], share: float, generator: torch.Generator) -> None:
    for layer in layers:
        experts = mixture.model.layers[layer].mlp.experts
        for weight in (experts.gate_up_proj, experts.down_proj):
            noise = torch.randn(weight.shape, generator=generator)
            weight += share * weight.std() * noise


@torch.no_grad()
def _compare(dense: Any, mixture: Any, tokenizer: Any) -> tuple[float, float]:
    """The largest difference of a log-prob, and the mean KL divergence in nats per token."""
    difference = 0.0
    divergences = []
    for text in TEXTS:
        ids = tokenizer(text, return_tensors="pt").input_ids
        dense_logp = dense(ids).logits.log_softmax(-1)
        mixture_logp = mixture(ids).logits.log_softmax(-1)
        difference = max(difference, float((dense_logp - mixture_logp).abs().max()))
        divergence = (dense_logp.exp() * (dense_logp - mixture_logp)).sum(-1)
        divergences.append(float(divergence.mean()))
    return difference, sum(divergences) / len(divergences)
