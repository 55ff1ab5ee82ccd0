"""Low-rank adapters beside frozen weights (LoRA, arXiv 2106.09685), put into the model's own linear
layers by peft.

The model stays the class that it was, so that everything else (routers, head, replay) finds what it
looks for:

    adapt(model, rank=16, alpha=32)    B = 0: the adapted model says what the model said
    with adapters_off(model): ...      the starting model, for the KL term
    merged_state(model)                the weights with their adapters added, by the model's names
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from gspo_lab.training.models.check import check_lora

Tensors = dict[str, Tensor]
"""Tensors by name."""

NAME = "default"
"""peft's name of the one adapter."""
BASE = ".base_layer"
"""What peft adds to the name of a weight that has an adapter beside it."""
PART = ".lora_"
"""What the adapters' own weights have in their names."""


def add_adapters(model: Any, *, rank: int, alpha: int) -> None:
    """Freeze `model` and put an adapter of float32 weights beside every linear layer but the output
    head, in place.

    Routers and the experts' stacked weights are no linear layers: they stay as they are. The first
    factor is drawn from torch's global random state, the second is 0.
    """
    check_lora(rank)
    from peft import LoraConfig, inject_adapter_in_model

    head = model.get_output_embeddings()
    names = [
        name
        for name, layer in model.named_modules()
        if isinstance(layer, torch.nn.Linear) and layer is not head
    ]
    inject_adapter_in_model(
        LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules=names), model
    )
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def is_adapted(model: Any) -> bool:
    """Whether the model has adapters."""
    return any(PART in name for name, _ in model.named_parameters())


@contextmanager
def adapters_off(model: Any) -> Iterator[None]:
    """The model without its adapters; one without any is as it is."""
    layers = list(_adapted_layers(model).values())
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def plain_state(model: Any) -> Tensors:
    """The state dict under the plain model's names, without adapters."""
    return {
        name.replace(BASE, ""): value
        for name, value in model.state_dict().items()
        if PART not in name
    }


def merged_state(model: Any) -> Tensors:
    """The state dict under the plain model's names, adapters added to the weights that they stand
    beside.
    """
    out = plain_state(model)
    with torch.no_grad():
        for name, layer in _adapted_layers(model).items():
            weight = f"{name}.weight"
            out[weight] = (out[weight].float() + layer.get_delta_weight(NAME).float()).to(
                out[weight].dtype
            )
    return out


def trained_state(model: Any) -> Tensors:
    """What training changes: the adapters where there are any, else the whole state dict."""
    state: Tensors = model.state_dict()
    if is_adapted(model):
        return {name: value for name, value in state.items() if PART in name}
    return state


def load_trained_state(model: Any, state: Tensors) -> None:
    """Put back what `trained_state` gave."""
    model.load_state_dict(state, strict=not is_adapted(model))


def _adapted_layers(model: Any) -> dict[str, Any]:
    return {name: layer for name, layer in model.named_modules() if hasattr(layer, "lora_A")}
