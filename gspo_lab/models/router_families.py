"""How each MoE family turns router logits into gate weights, and where its router puts them.

In transformers (read in 5.19) the choice of experts is made inside one module per layer, `<Family>TopKRouter` or
`<Family>TopkRouter`; what follows it only computes with the experts and weights that it returns. Each rule below is
that module's own arithmetic with the choice taken as given: on the router's own choice it returns the same bits.

N tokens (rows x positions), E experts, K experts per token.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from gspo_lab.errors import LabError

Gate = Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]
"""`(router, logits_NE, chosen_NK) -> weights_NK`, differentiable in the logits."""


@dataclass(frozen=True, slots=True)
class Family:
    """One family's router: the name users know, the gate rule, and the places in the tuple that it returns."""

    name: str
    gate: Gate
    logits_at: int = 0
    weights_at: int = 1
    chosen_at: int = 2


def _softmax_gate(router: Any, logits_NE: torch.Tensor, chosen_NK: torch.Tensor) -> torch.Tensor:
    """Softmax over all experts; divided by the sum over the chosen where `norm_topk_prob`."""
    weights_NK = torch.softmax(logits_NE, dim=-1, dtype=torch.float32).gather(-1, chosen_NK)
    return weights_NK / weights_NK.sum(dim=-1, keepdim=True) if router.norm_topk_prob else weights_NK


def _normalised_softmax_gate(_: Any, logits_NE: torch.Tensor, chosen_NK: torch.Tensor) -> torch.Tensor:
    """Softmax over all experts, always divided by the sum over the chosen."""
    weights_NK = torch.softmax(logits_NE, dim=-1, dtype=torch.float32).gather(-1, chosen_NK)
    return weights_NK / weights_NK.sum(dim=-1, keepdim=True)


def _chosen_softmax_gate(_: Any, logits_NE: torch.Tensor, chosen_NK: torch.Tensor) -> torch.Tensor:
    """Softmax over the chosen experts only, in the precision of the logits."""
    return torch.softmax(logits_NE.gather(-1, chosen_NK), dim=-1, dtype=logits_NE.dtype)


def _sigmoid_gate(router: Any, logits_NE: torch.Tensor, chosen_NK: torch.Tensor) -> torch.Tensor:
    """Sigmoid scores; groups and `e_score_correction_bias` act on the choice alone, so they have no part here."""
    weights_NK = logits_NE.sigmoid().gather(-1, chosen_NK)
    if router.norm_topk_prob:
        weights_NK = weights_NK / (weights_NK.sum(dim=-1, keepdim=True) + 1e-20)
    scaled_NK: torch.Tensor = weights_NK * router.routed_scaling_factor
    return scaled_NK


FAMILIES: dict[str, Family] = {
    "Qwen2MoeTopKRouter": Family("qwen2_moe", _softmax_gate),
    "Qwen3MoeTopKRouter": Family("qwen3_moe", _softmax_gate),
    "OlmoeTopKRouter": Family("olmoe", _softmax_gate),
    "MixtralTopKRouter": Family("mixtral", _normalised_softmax_gate),
    "DeepseekV3TopkRouter": Family("deepseek_v3", _sigmoid_gate),
    "Glm4MoeTopkRouter": Family("glm4_moe", _sigmoid_gate),
    "GraniteMoeTopKRouter": Family("granitemoe", _chosen_softmax_gate, logits_at=2, weights_at=1, chosen_at=0),
    "GptOssTopKRouter": Family("gpt_oss", _chosen_softmax_gate),
}

_PART_OF_A_MOE = re.compile(r"(Experts?|Router|Gating|SparseMLP|SparseMoeBlock|MoeBlock|MoE|MoEGate)$")
"""How transformers' classes for mixtures of experts end; none of its dense families has such a module."""


def find_routers(model: torch.nn.Module) -> list[tuple[Family, torch.nn.Module]]:
    """The routers of `model` in layer order; an empty list for a dense model; LabError for a MoE not in `FAMILIES`."""
    found = [
        (FAMILIES[type(module).__name__], module) for module in model.modules() if type(module).__name__ in FAMILIES
    ]
    if not found:
        for path, module in model.named_modules():
            kind = type(module).__name__
            if _PART_OF_A_MOE.search(kind):
                name = getattr(getattr(model, "config", None), "model_type", type(model).__name__)
                known = ", ".join(sorted(family.name for family in FAMILIES.values()))
                raise LabError(
                    f"the MoE family '{name}' (module '{path}', a {kind}) is not one whose routing can be recorded and"
                    f" replayed; use a model of a known family: {known}"
                )
    return found
