"""Tiny random models of every supported MoE family, with routes to replay.

Hooks record their experts' input.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import transformers as tf

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.training.models.routing import Routers

VOCABULARY = 24
EXPERTS = 8
TOP_K = 3
LAYERS = 2
ROWS = 4
POSITIONS = 7

SMALL: JsonObject = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 16,
    "moe_intermediate_size": 16,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts_per_tok": TOP_K,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "use_cache": False,
}
_GROUPED: JsonObject = {
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 1,
    "n_group": 4,
    "topk_group": 2,
    "first_k_dense_replace": 0,
    "routed_scaling_factor": 2.5,
}
_LATENT: JsonObject = {
    "head_dim": 8,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
}

MODELS: dict[str, tuple[str, JsonObject]] = {
    "qwen3_moe": ("Qwen3Moe", {"num_experts": EXPERTS, "norm_topk_prob": True}),
    "qwen3_moe-unnormalised": ("Qwen3Moe", {"num_experts": EXPERTS, "norm_topk_prob": False}),
    "qwen2_moe": (
        "Qwen2Moe",
        {"num_experts": EXPERTS, "norm_topk_prob": False, "shared_expert_intermediate_size": 16},
    ),
    "olmoe": ("Olmoe", {"num_experts": EXPERTS, "norm_topk_prob": False}),
    "mixtral": ("Mixtral", {"num_local_experts": EXPERTS}),
    "deepseek_v3": ("DeepseekV3", {**_GROUPED, **_LATENT, "norm_topk_prob": True}),
    "glm4_moe": ("Glm4Moe", {**_GROUPED, "norm_topk_prob": True}),
    "glm4_moe-unnormalised": ("Glm4Moe", {**_GROUPED, "norm_topk_prob": False}),
    "granitemoe": ("GraniteMoe", {"num_local_experts": EXPERTS}),
    "gpt_oss": (
        "GptOss",
        {"num_local_experts": EXPERTS, "layer_types": ["full_attention"] * LAYERS},
    ),
}
every_family = pytest.mark.parametrize("name", MODELS)


def build(name: str, seed: int = 0, **changes: Any) -> Any:
    """A random model of the family whose routers prefer some experts clearly.

    Fresh routers are nearly indifferent.
    """
    kind, keys = MODELS[name]
    torch.manual_seed(seed)
    config = getattr(tf, f"{kind}Config")(**{**SMALL, **keys, **changes})
    model = getattr(tf, f"{kind}ForCausalLM")(config).eval()
    random = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if "norm" not in path:
                parameter.copy_(torch.randn(parameter.shape, generator=random) * 0.2)
        for path, buffer in model.named_buffers():
            if path.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn(buffer.shape, generator=random))
    return model


def routers_of(model: Any) -> Routers:
    return Routers.of(model)


def tokens(rows: int = ROWS, positions: int = POSITIONS) -> torch.Tensor:
    return torch.randint(
        1, VOCABULARY, (rows, positions), generator=torch.Generator().manual_seed(3)
    )


def random_routes(rows: int = ROWS, positions: int = POSITIONS, seed: int = 5) -> torch.Tensor:
    """Different experts per token, unrelated to what any router would choose."""
    score = torch.rand(
        rows, positions, LAYERS, EXPERTS, generator=torch.Generator().manual_seed(seed)
    )
    return score.topk(TOP_K, dim=-1).indices.to(torch.int16)


def ragged(side: str) -> torch.Tensor:
    real = torch.arange(POSITIONS) < torch.tensor([POSITIONS, 1, 4, 5])[:, None]
    return real if side == "right" else real.flip(1)


@dataclass
class Computed:
    """What every experts module was given, per MoE layer and call."""

    states: list[list[torch.Tensor]] = field(default_factory=list)
    chosen: list[list[torch.Tensor]] = field(default_factory=list)
    weights: list[list[torch.Tensor]] = field(default_factory=list)

    @staticmethod
    def by(model: torch.nn.Module) -> "Computed":
        recorded = Computed()
        experts = [
            module for module in model.modules() if type(module).__name__.endswith("Experts")
        ]
        for layer, module in enumerate(experts):
            recorded.states.append([])
            recorded.chosen.append([])
            recorded.weights.append([])

            def look(_: Any, inputs: tuple[torch.Tensor, ...], layer: int = layer) -> None:
                recorded.states[layer].append(inputs[0].detach())
                recorded.chosen[layer].append(inputs[1])
                recorded.weights[layer].append(inputs[2])

            module.register_forward_pre_hook(look)
        assert len(recorded.chosen) == LAYERS
        return recorded

    def chosen_BSLK(self, rows: int, positions: int, call: int = -1) -> torch.Tensor:
        return torch.stack(
            [calls[call].view(rows, positions, TOP_K) for calls in self.chosen], dim=2
        )
