"""A run's state on disk: one file to go on from, replaced in one move, and the final model as a Hugging Face folder."""

from pathlib import Path
from typing import Any

import torch

from gspo_lab.errors import LabError
from gspo_lab.files import whole, whole_folder
from gspo_lab.models.lora import merged_state


def save(path: Path, state: dict[str, Any]) -> None:
    """Replace the checkpoint that the run would go on from; a death on the way leaves the one before."""
    with whole(path) as beside:
        torch.save(state, beside)


def load(path: Path, device: torch.device) -> dict[str, Any] | None:
    """The state to go on from, or None at the very start."""
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # whatever torch makes of a damaged file
        raise LabError(f"{path} is damaged: delete it and the run starts again from its first step") from error
    return state


def save_model(path: Path, model: Any, tokenizer: Any) -> None:
    """The model, adapters merged, as the folder `path`, which `AutoModelForCausalLM` reads; only ever whole."""
    with whole_folder(path) as beside:
        model.save_pretrained(beside, state_dict=merged_state(model))
        tokenizer.save_pretrained(beside)
