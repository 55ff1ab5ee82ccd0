"""What can be said of a model before any compute, and without torch: is it there, and is it a mixture of experts?"""

import difflib
import hashlib
import os
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from gspo_lab.errors import LabError, MissingExtra
from gspo_lab.models.model_folder import check_folder, read_config


@dataclass(frozen=True, slots=True)
class Embedded:
    """A model that is built, not downloaded: random weights from a seed, a byte-level tokenizer."""

    family: str
    """The `model_type` of the transformers classes that it is made of."""
    is_moe: bool
    about: str
    trains_routers: bool = True
    """Whether a warm start trains the routers. As drawn, their logits lie close and updates move many choices."""


EMBEDDED = {
    "tiny-qwen3": Embedded("qwen3", False, "Qwen3, 4 layers, width 128, 0.6 M parameters"),
    "tiny-qwen3-moe": Embedded(
        "qwen3_moe", True, "Qwen3-MoE, the same trunk, 16 experts, 2 per token, 1.8 M parameters (0.4 M active)"
    ),
    "tiny-qwen3-moe-fresh": Embedded(
        "qwen3_moe", True, "tiny-qwen3-moe whose routers a warm start leaves as drawn", trains_routers=False
    ),
    "tiny-olmoe": Embedded(
        "olmoe", True, "OLMoE, the same trunk, 16 experts, 2 per token, 1.8 M parameters (0.4 M active)"
    ),
}

EMBEDDED_WIDTH = 128
"""Width of the embedded models' trunk."""

EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""How families call the number of routed experts in config.json."""

_HUB_ID = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)?")


def check_model(name: str, *, here: bool = True) -> None:
    """LabError where `name` cannot be loaded and that can be seen without loading it or asking the network.

    An embedded name is good; a folder needs config.json, whole weights and a tokenizer that fits them; anything else
    must look like a Hub id and, with `here` and where the Hub is switched off (HF_HUB_OFFLINE), lie in its cache.
    """
    if name in EMBEDDED:
        return
    try:
        folder = Path(name).expanduser()
    except RuntimeError as error:
        raise LabError(f"the model '{name}': there is no such home folder; write the folder's whole path") from error
    if name.strip() and folder.is_dir():
        check_folder(folder)
        return
    embedded = ", ".join(EMBEDDED)
    if folder.is_file():
        raise LabError(f"the model '{name}' is a file; give the folder that holds config.json and the weights")
    if not _HUB_ID.fullmatch(name):
        raise LabError(f"no model folder '{name}'; give an embedded model ({embedded}), a folder, or a Hub id")
    near = difflib.get_close_matches(name, list(EMBEDDED), n=1)
    if "/" not in name and near:
        raise LabError(f"no model '{name}' (did you mean '{near[0]}'?); embedded models: {embedded}")
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    if here and offline and not hub_folder(name).is_dir():
        raise LabError(
            f"the model '{name}' is neither embedded ({embedded}) nor a folder here nor in the Hub's cache"
            f" {_hub_cache()}, and HF_HUB_OFFLINE keeps it from being downloaded"
        )


def is_moe(name: str) -> bool | None:
    """Whether the model is a mixture of experts; None where that is unknown before loading (a Hub id).

    LabError where `name` is a folder without a readable config.json.
    """
    if name in EMBEDDED:
        return EMBEDDED[name].is_moe
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return None
    config = read_config(folder)
    return any(
        isinstance(part.get(key), int) and part[key] > 1
        for part in (config, config.get("text_config") or {})
        for key in EXPERT_COUNTS
    )


def check_lora(rank: int) -> None:
    """MissingExtra where adapters are wanted and peft is absent; imports nothing."""
    if rank and find_spec("peft") is None:
        raise MissingExtra("peft", "lora", f"update.lora_rank = {rank}")


def check_eight_bit() -> None:
    """MissingExtra where bitsandbytes is absent; imports nothing."""
    if find_spec("bitsandbytes") is None:
        raise MissingExtra("bitsandbytes", "8bit", "update.optimizer = 'adamw-8bit'")


def check_architecture(name: str) -> None:
    """LabError where a model folder's architecture is none of transformers' causal language models.

    Imports transformers, for folders alone: seconds, where loading the weights may take minutes.
    """
    folder = Path(name).expanduser()
    if name in EMBEDDED or not folder.is_dir():
        return
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    family = read_config(folder).get("model_type")
    if family not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise LabError(
            f"the model '{name}' is of the architecture '{family}', which is none of the causal language models that "
            "the installed transformers knows"
        )


def check_chat_template(name: str) -> None:
    """LabError where a model folder's chat template fails on a question. Imports transformers, for folders alone."""
    folder = Path(name).expanduser()
    if name in EMBEDDED or not folder.is_dir():
        return
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        if tokenizer.chat_template:
            tokenizer.apply_chat_template(
                [{"role": "user", "content": "?"}], add_generation_prompt=True, tokenize=False
            )
    except Exception as error:  # tokenizers raise bare Exception; a template is a program with errors of its own
        raise LabError(
            f"the tokenizer or chat template of the model '{name}' cannot be used: {first_line(error)}"
        ) from error


HUB_SECONDS = 10.0
"""How long the Hub is waited for."""


def check_hub(name: str) -> None:
    """LabError where `name` is neither embedded, nor a folder, nor in the Hub's cache, nor on the Hub."""
    if name in EMBEDDED or Path(name).expanduser().is_dir() or any(hub_folder(name).glob("snapshots/*/config.json")):
        return
    from huggingface_hub import HfApi

    try:
        HfApi().model_info(name, timeout=HUB_SECONDS)
    except Exception as error:  # the Hub, its client and the network each raise their own
        raise LabError(
            f"no model '{name}': there is no such folder, nothing of it in the Hub's cache {_hub_cache()}, and the "
            f"Hub cannot be asked ({first_line(error)}); correct the name, or give a folder"
        ) from error


def first_line(error: Exception) -> str:
    """What an error says, in one line; its name where it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


PIECES, PIECE_BYTES = 64, 1 << 16
"""Of a large file of weights this much is read: training changes them everywhere."""


def folder_digest(folder: Path) -> str:
    """What tells a model folder from others: sha256 of its settings, its tokenizer and a sample of its weights."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".json", ".jinja", ".model", ".txt", ".safetensors", ".bin"):
            continue
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            if size <= PIECES * PIECE_BYTES:
                digest.update(file.read())
                continue
            for piece in range(PIECES):
                file.seek(piece * (size - PIECE_BYTES) // (PIECES - 1))
                digest.update(file.read(PIECE_BYTES))
    return digest.hexdigest()


def hub_folder(name: str) -> Path:
    """Where the Hub's cache keeps the model, whether it holds it or not."""
    return _hub_cache() / ("models--" + name.replace("/", "--"))


def _hub_cache() -> Path:
    """Where huggingface_hub keeps downloads, by its own environment variables."""
    if "HF_HUB_CACHE" in os.environ:
        return Path(os.environ["HF_HUB_CACHE"]).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("HF_HOME", f"{cache}/huggingface")).expanduser() / "hub"
