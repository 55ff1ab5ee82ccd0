"""Models that come with the lab: transformers' own classes at a size that a laptop trains in
minutes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers.convert_slow_tokenizer import bytes_to_unicode

from gspo_lab.common.errors import LabError
from gspo_lab.common.registry import unlisted
from gspo_lab.training.models.check import EMBEDDED, EMBEDDED_WIDTH, EXPERT_COUNTS
from gspo_lab.training.models.same_bits import install

EXPERTS_IMPLEMENTATION = "grouped_mm"
"""On a CPU, "eager" takes 12 to 18 % longer in decoding and no less in training; "batched_mm" 30
times as long.
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of an embedded model; the last three matter to a mixture of experts only.

    A dense feed-forward layer is 2 x width wide, an expert width / 2.
    """

    layers: int = 4
    width: int = EMBEDDED_WIDTH
    heads: int = 4
    kv_heads: int = 2
    experts: int = 16
    experts_per_token: int = 2


_CLASSES: dict[str, tuple[Any, Any]] = {
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    "qwen3_moe": (transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM),
    "olmoe": (transformers.OlmoeConfig, transformers.OlmoeForCausalLM),
}


def config(name: str, overrides: Mapping[str, int] | None = None) -> Any:
    """The transformers configuration of an embedded model; `overrides` are fields of `Shape`."""
    if name not in EMBEDDED:
        raise LabError(f"no embedded model {unlisted(name, EMBEDDED, 'embedded:')}")
    shape = replace(Shape(), **(overrides or {}))
    trunk = {
        "vocab_size": VOCABULARY,
        "pad_token_id": PAD_ID,
        "bos_token_id": None,
        "eos_token_id": EOS_ID,
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": MAX_POSITIONS,
        "tie_word_embeddings": True,
        "attention_dropout": 0.0,
    }
    routed = {
        "num_experts": shape.experts,
        "num_experts_per_tok": shape.experts_per_token,
        "experts_implementation": EXPERTS_IMPLEMENTATION,
    }
    family = EMBEDDED[name].family
    if family == "qwen3":
        return transformers.Qwen3Config(
            **trunk, head_dim=shape.width // shape.heads, intermediate_size=2 * shape.width
        )
    if family == "qwen3_moe":
        return transformers.Qwen3MoeConfig(
            **trunk,
            **routed,
            head_dim=shape.width // shape.heads,
            intermediate_size=2 * shape.width,
            moe_intermediate_size=shape.width // 2,
            norm_topk_prob=True,
        )
    # As in the released OLMoE, gate weights are not divided by their sum.
    return transformers.OlmoeConfig(
        **trunk, **routed, intermediate_size=shape.width // 2, norm_topk_prob=False
    )


def build(name: str, seed: int, overrides: Mapping[str, int] | None = None) -> Any:
    """The embedded model `name` on the CPU, in float32, with the weights that `seed` draws.

    The global random state is as before. `overrides` are fields of `Shape`: `build("tiny-qwen3", 0,
    {"layers": 2})`.
    """
    install()
    settings = config(name, overrides)
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would seed the accelerators as well, which fork_rng was told to leave
        # alone.
        torch.default_generator.manual_seed(seed)
        model = _CLASSES[EMBEDDED[name].family][1](settings)
    return model.eval()


def param_counts(model: torch.nn.Module) -> tuple[int, int]:
    """`(total, active)` parameters of a transformers causal language model.

    Active are those that one token is computed with: of the routed experts only its top-k;
    everything else in full, the embedding table included. Equal for a dense model. Tied parameters
    count once.
    """
    config: Any = model.config
    text = config.get_text_config()
    experts = next((count for key in EXPERT_COUNTS if (count := getattr(text, key, None))), None)
    total = sum(parameter.numel() for parameter in model.parameters())
    if experts is None:
        return total, total
    # Families name routed experts ".experts."; shared ones, which every token uses,
    # ".shared_expert(s).".
    routed = sum(
        parameter.numel() for name, parameter in model.named_parameters() if ".experts." in name
    )
    return total, total - routed + routed * int(text.num_experts_per_tok) // experts


PAD_ID = 256
EOS_ID = 257
VOCABULARY = 264
"""Rows of the embedding: 256 bytes, <pad>, <eos>, and unused ones up to a multiple of 8, which
decode to nothing.
"""

MAX_POSITIONS = 4096


def byte_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """A fast tokenizer without merges; decoding what it encodes gives back every text.

    The text "<eos>" is five bytes, never the end: only a program can put the special tokens, by
    number. Bytes that are no UTF-8 decode to U+FFFD; a text with a lone surrogate has no bytes and
    cannot be encoded.
    """
    vocabulary = {character: byte for byte, character in bytes_to_unicode().items()}
    backend = Tokenizer(
        models.BPE(vocab=vocabulary | {"<pad>": PAD_ID, "<eos>": EOS_ID}, merges=[])
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        eos_token="<eos>",
        padding_side="left",
        model_max_length=MAX_POSITIONS,
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,
    )


def is_byte_level(tokenizer: Any) -> bool:
    """Whether a loaded tokenizer is the embedded models' own: 256 bytes, <pad> and <eos>."""
    return len(tokenizer) == EOS_ID + 1 and tokenizer.eos_token_id == EOS_ID
