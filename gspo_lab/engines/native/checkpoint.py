"""A run's state on disk: one file to go on from, replaced in one move, and the final model as a Hugging Face folder."""

import os
import shutil
from pathlib import Path
from typing import Any

import torch

from gspo_lab.engines.base import RESUME
from gspo_lab.errors import LabError
from gspo_lab.models.lora import merged_state


def save(folder: Path, state: dict[str, Any]) -> None:
    """Replace the checkpoint that the run would go on from; a death on the way leaves the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / (RESUME.name + ".new")
    with new.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / RESUME.name)


def load(folder: Path, device: torch.device) -> dict[str, Any] | None:
    """The state to go on from, or None at the very start."""
    path = folder / RESUME.name
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # whatever torch makes of a damaged file
        raise LabError(f"{path} is damaged: delete it and the run starts again from its first step") from error
    return state


def save_model(folder: Path, model: Any, tokenizer: Any) -> None:
    """The model, adapters merged, as `folder/final`, which `AutoModelForCausalLM` reads; only ever whole."""
    new, final = folder / "final.new", folder / "final"
    for path in (new, final):
        shutil.rmtree(path, ignore_errors=True)
    model.save_pretrained(new, state_dict=merged_state(model))
    tokenizer.save_pretrained(new)
    for path in new.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    new.rename(final)
