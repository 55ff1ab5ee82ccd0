"""A run's state on disk: one file to go on from, replaced in one move, and the final model as a Hugging Face folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from gspo_lab.engines.native.trained import Trained
from gspo_lab.errors import LabError
from gspo_lab.files import whole, whole_folder
from gspo_lab.models.lora import merged_state


def save(path: Path, step: int, trained: Mapping[str, Trained], totals: dict[str, Any]) -> None:
    """Replace the checkpoint that the run would go on from; a death on the way leaves the one before."""
    state = {"step": step, "trained": {name: one.state() for name, one in trained.items()}, "totals": totals}
    with whole(path) as beside:
        torch.save(state, beside)


def load(path: Path, trained: Mapping[str, Trained], device: torch.device) -> tuple[int, dict[str, Any]] | None:
    """Put back what `save` kept, and its step and totals; None at the very start.

    LabError where the file is damaged, or holds other parts than `trained` has.
    """
    if not path.exists():
        return None
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # whatever torch makes of a damaged file
        raise LabError(f"{path} is damaged: delete it and the run starts again from its first step") from error
    # A checkpoint of version 0.1 holds the policy alone, and that by no name.
    parts = state.get("trained", {"policy": state})
    if parts.keys() != trained.keys():
        raise LabError(
            f"{path} holds {', '.join(sorted(parts))}, and this run trains {', '.join(sorted(trained))}: go on with "
            "the version of gspo-lab that wrote it, or delete it and the run starts again from its first step"
        )
    for name, one in trained.items():
        one.load(parts[name])
    return int(state["step"]), state["totals"]


def save_model(path: Path, model: Any, tokenizer: Any) -> None:
    """The model, adapters merged, as the folder `path`, which `AutoModelForCausalLM` reads; only ever whole."""
    with whole_folder(path) as beside:
        model.save_pretrained(beside, state_dict=merged_state(model))
        tokenizer.save_pretrained(beside)
