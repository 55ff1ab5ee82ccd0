"""A run's state on disk: one file to go on from, replaced in one move, and the final model as a
Hugging Face folder.

    resume.pt = what torch.save writes, and behind it the line {"owner": "study/arm/s0", "sha256":
    "..."}

The digest is over everything before the line and over the owner. torch.load reads such a file as it
reads one without the line.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Protocol

import torch

from gspo_lab.common.atomic_files import atomic_file, atomic_folder, write_sums
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.training.models.load import explain_write_error
from gspo_lab.training.models.lora import merged_state

LONGEST_LINE = 1 << 12

FROM_THERE = "the run goes on from its last checkpoint"
AGAIN = "delete it and the run starts again from its first step"


class Checkpointed(Protocol):
    """A part of a run that its checkpoint keeps: a trained model, or what else the next step
    depends on.
    """

    def state(self) -> JsonObject:
        """All that is needed to go on."""
        ...

    def load(self, state: JsonObject) -> None:
        """Put back what `state` gave."""
        ...


def save(
    path: Path, owner: str, step: int, trained: Mapping[str, Checkpointed], totals: JsonObject
) -> None:
    """Replace the checkpoint that the run `owner` would go on from; a death on the way leaves the
    one before.
    """
    state = {
        "step": step,
        "trained": {name: part.state() for name, part in trained.items()},
        "totals": totals,
    }
    with explain_write_error(path, FROM_THERE), atomic_file(path) as temporary:
        torch.save(state, temporary)
        with temporary.open("rb+") as file:
            seal = {"owner": owner, "sha256": _digest(file, temporary.stat().st_size, owner)}
            file.write(b"\n" + json.dumps(seal).encode() + b"\n")


def load(
    path: Path, owner: str, trained: Mapping[str, Checkpointed]
) -> tuple[int, JsonObject] | None:
    """Put back what `save` kept; its step and totals, None at the very start. LabError where the
    file is damaged, another run's, or holds other parts than `trained`."""
    if not path.exists():
        return None
    writer = _owner(path)
    if writer != owner:
        raise LabError(
            f"{path} is of the run {writer}, not of {owner}: put back this run's own, or {AGAIN}"
        )
    try:
        # In main memory: a GPU has no room for a second model with its moments.
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever torch makes of a damaged file
        raise _damage(path) from error
    states = state["trained"]
    if states.keys() != trained.keys():
        raise LabError(
            f"{path} holds {', '.join(sorted(states))}, and this run trains"
            f" {', '.join(sorted(trained))}: {AGAIN}"
        )
    for name, part in trained.items():
        part.load(states[name])
    return int(state["step"]), state["totals"]


def save_model(path: Path, model: Any, tokenizer: Any) -> None:
    """The model, adapters merged, as the folder `path`, which `AutoModelForCausalLM` reads; only
    ever whole.
    """
    with explain_write_error(path, FROM_THERE), atomic_folder(path) as temporary:
        model.save_pretrained(temporary, state_dict=merged_state(model))
        tokenizer.save_pretrained(temporary)
        write_sums(temporary)


def _owner(path: Path) -> str:
    """The run that wrote a checkpoint. LabError where the file is not as it was written."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - LONGEST_LINE))
        end = file.read()
        line = end[end.rfind(b"\n", 0, -1) + 1 :]
        try:
            seal = json.loads(line)
            owner = str(seal["owner"])
            digest = seal["sha256"]
        except (KeyError, TypeError, ValueError) as error:
            raise _damage(path) from error
        if _digest(file, size - len(line) - 1, owner) != digest:
            raise _damage(path)
        return owner


def _digest(file: IO[bytes], size: int, owner: str) -> str:
    """sha256 of a file's first `size` bytes and of its owner; leaves the file where they end."""
    digest = hashlib.sha256()
    file.seek(0)
    while size > 0 and (piece := file.read(min(size, 1 << 20))):
        digest.update(piece)
        size -= len(piece)
    digest.update(owner.encode())
    return digest.hexdigest()


def _damage(path: Path) -> LabError:
    return LabError(f"{path} is damaged: {AGAIN}")
