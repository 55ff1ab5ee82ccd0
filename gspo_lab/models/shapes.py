"""A model's size from its configuration alone, without torch: what memory and time are estimated from.

Shapes: H hidden size, V vocabulary, L layers, E experts, K experts per token.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.models.check import EMBEDDED, EMBEDDED_WIDTH, EXPERT_COUNTS, hub_folder
from gspo_lab.models.model_folder import read_config

MASKED = ("llama", "qwen2", "qwen3")
"""Model types whose attention takes a mask of its own for every row and nothing else (engines/native)."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a decoder of the Llama kind, dense or with experts in every layer."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    """Width of a dense feed-forward layer, or of one expert."""
    vocabulary: int
    tied: bool
    experts: int = 0
    experts_per_token: int = 0
    head_norms: str = ""
    """Norms on queries and keys: "head" (one per head's size, Qwen3), "whole" (all heads at once, OLMoE), "" none."""
    masked: bool = False
    """Whether its attention takes any mask of the trainer's, so that a group's responses can share their prompt."""

    @property
    def query_width(self) -> int:
        """The width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """The width of all key heads together, which is that of the value heads."""
        return self.kv_heads * self.head_dim

    @property
    def linear_parameters(self) -> int:
        """Of the linear layers outside of experts, routers and head: what adapters are put beside."""
        attention = 2 * self.width * (self.query_width + self.kv_width)
        return self.layers * (attention + (0 if self.experts else 3 * self.width * self.inner))

    @property
    def parameters(self) -> int:
        """All parameters; tied ones count once."""
        norms = {"head": 2 * self.head_dim, "whole": self.query_width + self.kv_width, "": 0}[self.head_norms]
        routed = self.experts * (3 * self.width * self.inner + self.width)
        embeddings = self.vocabulary * self.width * (1 if self.tied else 2)
        return self.linear_parameters + self.layers * (routed + 2 * self.width + norms) + self.width + embeddings

    @property
    def active_parameters(self) -> int:
        """Those that one token is computed with; the embedding table counts once, as the head."""
        experts = self.layers * self.experts_per_token * 3 * self.width * self.inner
        return self.linear_parameters + experts + self.vocabulary * self.width

    def adapter_parameters(self, rank: int) -> int:
        """Of adapters of this rank beside every linear layer: rank x (inputs + outputs) each."""
        attention = 2 * (self.width + self.query_width) + 2 * (self.width + self.kv_width)
        return self.layers * rank * (attention + (0 if self.experts else 3 * (self.width + self.inner)))


def _dense(
    width: int, inner: int, layers: int, heads: int, *, head_dim: int = 128, tied: bool, **more: Any
) -> ModelShape:
    return ModelShape(
        layers,
        width,
        heads,
        more.pop("kv_heads", 8),
        head_dim,
        inner,
        more.pop("vocabulary"),
        tied,
        masked="experts" not in more,
        **more,
    )


_QWEN3: dict[str, Any] = {"vocabulary": 151_936, "head_norms": "head"}
_LLAMA3: dict[str, Any] = {"vocabulary": 128_256}

PUBLISHED: dict[str, ModelShape] = {
    "Qwen/Qwen3-0.6B": _dense(1024, 3072, 28, 16, tied=True, **_QWEN3),
    "Qwen/Qwen3-1.7B": _dense(2048, 6144, 28, 16, tied=True, **_QWEN3),
    "Qwen/Qwen3-4B": _dense(2560, 9728, 36, 32, tied=True, **_QWEN3),
    "Qwen/Qwen3-8B": _dense(4096, 12288, 36, 32, tied=False, **_QWEN3),
    "Qwen/Qwen3-30B-A3B": _dense(2048, 768, 48, 32, kv_heads=4, tied=False, experts=128, experts_per_token=8, **_QWEN3),
    "HuggingFaceTB/SmolLM2-135M": _dense(576, 1536, 30, 9, kv_heads=3, head_dim=64, tied=True, vocabulary=49_152),
    "allenai/OLMoE-1B-7B-0924": ModelShape(16, 2048, 16, 16, 128, 1024, 50_304, False, 64, 8, "whole"),
    "mistralai/Mixtral-8x7B-v0.1": ModelShape(32, 4096, 32, 8, 128, 14_336, 32_000, False, 8, 2),
    "meta-llama/Llama-3.2-1B": _dense(2048, 8192, 16, 32, head_dim=64, tied=True, **_LLAMA3),
    "meta-llama/Llama-3.2-3B": _dense(3072, 8192, 28, 24, tied=True, **_LLAMA3),
    "meta-llama/Llama-3.1-8B": _dense(4096, 14_336, 32, 32, tied=False, **_LLAMA3),
}
"""From the config.json that each was published with, so that a study can be planned before anything is downloaded."""

VARIANTS = ("-Base", "-Instruct-2507", "-Thinking-2507", "-Instruct", "-SFT")
"""Endings of Hub ids whose models have the shape of the one without."""


def model_shape(name: str) -> ModelShape | None:
    """The shape of a folder's, a downloaded or a published model; None where it is embedded or not known.

    LabError where its config.json cannot be read.
    """
    if name in EMBEDDED:
        return None
    folder = Path(name).expanduser()
    if folder.is_dir():
        return shape_of(read_config(folder))
    for config in sorted(hub_folder(name).glob("snapshots/*/config.json")):
        return shape_of(read_config(config.parent))
    short = next((name.removesuffix(ending) for ending in VARIANTS if name.endswith(ending)), name)
    return PUBLISHED.get(name) or PUBLISHED.get(short)


def check_rank(name: str, rank: int) -> None:
    """LabError where adapters of this rank are as wide as the model itself; of an unknown model nothing is said."""
    shape = model_shape(name)
    width = EMBEDDED_WIDTH if name in EMBEDDED else None if shape is None else shape.width
    if width is not None and rank > width:
        raise LabError(
            f"update.lora_rank = {rank}: the layers of '{name}' are {width} wide, and an adapter of a higher rank has "
            "more weights than what it stands beside; use 8 to 64, or 0 to train all weights"
        )


def shape_of(config: Mapping[str, Any]) -> ModelShape | None:
    """The shape that a config.json describes; None where it lacks what every decoder of this kind has."""
    config = {**config, **(config.get("text_config") or {})}
    try:
        width, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        experts = next((int(config[key]) for key in EXPERT_COUNTS if config.get(key)), 0)
        inner = config.get("moe_intermediate_size") if experts else None
        family = str(config.get("model_type", ""))
        return ModelShape(
            layers=int(config["num_hidden_layers"]),
            width=width,
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or width // heads),
            inner=int(inner or config["intermediate_size"]),
            vocabulary=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", family.startswith("gemma"))),
            experts=experts,
            experts_per_token=int(config.get("num_experts_per_tok") or 0),
            masked=family in MASKED and set(config.get("layer_types") or ["full_attention"]) == {"full_attention"},
            head_norms="head" if family.startswith("qwen3") else "whole" if family.startswith("olmo") else "",
        )
    except (KeyError, TypeError, ValueError):
        return None
