"""What can be said of a model without torch: is it there, is it whole, and is it a mixture of
experts?

    config.json                              the family, its layers, the rows of its embedding
    model.safetensors[.index.json], *.bin    8 bytes of length and a JSON header name every tensor
                                             and its place
    tokenizer.json                           every token with its number
"""

import difflib
import json
import os
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from gspo_lab.common.errors import LabError, MissingExtra
from gspo_lab.common.plain_data import Integers, JsonObject


@dataclass(frozen=True, slots=True)
class Embedded:
    """A model that is built, not downloaded: random weights from a seed, a byte-level tokenizer."""

    family: str
    """The `model_type` of the transformers classes that it is made of."""
    is_moe: bool
    trains_routers: bool = True
    """Whether a warm start trains the routers.

    As drawn, their logits lie close and updates move many choices.
    """


EMBEDDED = {
    # 4 layers, width 128: .6 million parameters.
    "tiny-qwen3": Embedded("qwen3", False),
    # The same with 16 experts, 2 per token: 1.8 million parameters, .4 million active.
    "tiny-qwen3-moe": Embedded("qwen3_moe", True),
    # The same, whose routers a warm start leaves as drawn.
    "tiny-qwen3-moe-fresh": Embedded("qwen3_moe", True, trains_routers=False),
    "tiny-olmoe": Embedded("olmoe", True),
}

EMBEDDED_WIDTH = 128
"""Width of the embedded models' trunk."""

EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""How families call the number of routed experts in config.json."""

_HUB_ID = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)?")


def check_model(name: str, *, cached: bool = True) -> None:
    """LabError where `name` cannot be loaded and that can be seen without loading it or asking the
    network.

    An embedded name is good; a folder needs config.json, whole weights and a tokenizer that fits
    them; anything else must look like a Hub id and, with `cached` and where the Hub is switched off
    (HF_HUB_OFFLINE), lie in its cache.
    """
    if name in EMBEDDED:
        return
    try:
        folder = Path(name).expanduser()
    except RuntimeError as error:
        raise LabError(
            f"the model '{name}': there is no such home folder; write the folder's whole path"
        ) from error
    if name.strip() and folder.is_dir():
        check_folder(folder)
        return
    embedded = ", ".join(EMBEDDED)
    if folder.is_file():
        raise LabError(
            f"the model '{name}' is a file; give the folder that holds config.json and the weights"
        )
    if not _HUB_ID.fullmatch(name):
        raise LabError(
            f"no model folder '{name}'; give an embedded model ({embedded}), a folder, or a Hub id"
        )
    near = difflib.get_close_matches(name, list(EMBEDDED), n=1)
    if "/" not in name and near:
        raise LabError(
            f"no model '{name}' (did you mean '{near[0]}'?); embedded models: {embedded}"
        )
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    if cached and offline and not hub_folder(name).is_dir():
        raise LabError(
            f"the model '{name}' is neither embedded ({embedded}) nor a folder here nor in the"
            f" Hub's cache {_hub_cache()}, and HF_HUB_OFFLINE keeps it from being downloaded"
        )


def model_folder(name: str) -> Path | None:
    """The folder that a name is; None for an embedded model and a Hub id."""
    folder = Path(name).expanduser()
    return folder if name not in EMBEDDED and folder.is_dir() else None


def is_moe(name: str) -> bool | None:
    """Whether the model is a mixture of experts; None where that is unknown before loading (a Hub
    id).

    LabError where `name` is a folder without a readable config.json.
    """
    if name in EMBEDDED:
        return EMBEDDED[name].is_moe
    if (folder := model_folder(name)) is None:
        return None
    config = read_config(folder)
    configs = [config, config.get("text_config") or {}]
    return any(_largest(configs, key) > 1 for key in EXPERT_COUNTS)


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
    if (folder := model_folder(name)) is None:
        return
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    family = read_config(folder).get("model_type")
    if family not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise LabError(
            f"the model '{name}' is of the architecture '{family}', which is none of the causal"
            " language models that the installed transformers knows"
        )


def check_chat_template(name: str) -> None:
    """LabError where a model folder's chat template fails on a question.

    Imports transformers, for folders alone.
    """
    if (folder := model_folder(name)) is None:
        return
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        if tokenizer.chat_template:
            tokenizer.apply_chat_template(
                [{"role": "user", "content": "?"}], add_generation_prompt=True, tokenize=False
            )
    except (
        Exception
    ) as error:  # tokenizers raise bare Exception; a template is a program with errors of its own
        raise LabError(
            f"the tokenizer or chat template of the model '{name}' cannot be used:"
            f" {first_line(error)}"
        ) from error


HUB_SECONDS = 10.0
"""How long the Hub is waited for."""


def check_hub(name: str) -> None:
    """LabError where `name` is neither embedded, nor a folder, nor in the Hub's cache, nor on the
    Hub.
    """
    if (
        name in EMBEDDED
        or model_folder(name)
        or any(hub_folder(name).glob("snapshots/*/config.json"))
    ):
        return
    from huggingface_hub import HfApi

    try:
        HfApi().model_info(name, timeout=HUB_SECONDS)
    except Exception as error:  # the Hub, its client and the network each raise their own
        raise LabError(
            f"no model '{name}': there is no such folder, nothing of it in the Hub's cache"
            f" {_hub_cache()}, and the Hub cannot be asked ({first_line(error)}); correct the name,"
            " or give a folder"
        ) from error


def first_line(error: Exception) -> str:
    """What an error says, in one line; its name where it says nothing."""
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__
    )


def hub_folder(name: str) -> Path:
    """Where the Hub's cache keeps the model, whether it holds it or not."""
    return _hub_cache() / ("models--" + name.replace("/", "--"))


def _hub_cache() -> Path:
    """Where huggingface_hub keeps downloads, by its own environment variables."""
    if "HF_HUB_CACHE" in os.environ:
        return Path(os.environ["HF_HUB_CACHE"]).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("HF_HOME", f"{cache}/huggingface")).expanduser() / "hub"


WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""The files of which `from_pretrained` wants one; an index names the shards beside it."""

TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "tekken.json",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
)
"""Without one of these in a folder, transformers may make up a tokenizer with an empty vocabulary.
"""

EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight")
"""How families end the name of the token embedding, [rows, width]."""

JSON_BYTES = 1 << 28
"""The largest file of JSON that is read; a tokenizer's is a tenth of that."""

AGAIN = "copy or download it again"

Tensors = Mapping[str, Integers]
"""Shapes by name."""


def check_folder(folder: Path) -> None:
    """LabError where config.json, whole weights of every layer or a tokenizer that fits them are
    missing.
    """
    config = read_config(folder)
    if not isinstance(config.get("model_type"), str):
        raise LabError(
            f"{folder / 'config.json'} names no model_type; a transformers model's configuration"
            " does"
        )
    tensors = _weights(folder)
    configs = [config, *(part for part in (config.get("text_config"),) if isinstance(part, dict))]
    if tensors is not None:
        _check_layers(folder, _largest(configs, "num_hidden_layers"), tensors)
    _check_tokenizer(folder, _rows(configs, tensors or {}))


def read_config(folder: Path) -> JsonObject:
    """A model folder's config.json, or LabError."""
    _refuse_adapter(folder)
    path = folder / "config.json"
    if not path.is_file():
        _refuse_gguf(folder)
        raise LabError(
            f"no config.json in the model folder {folder}; is it the folder that save_pretrained"
            " wrote?"
        )
    return read_json_object(path, "a transformers configuration")


def read_json_object(path: Path, description: str) -> JsonObject:
    """The object that a JSON file holds. LabError, with what it should be, where it holds none."""
    try:
        if (size := path.stat().st_size) > JSON_BYTES:
            raise LabError(f"{path} is not {description}: {size:,} bytes; {AGAIN}")
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise LabError(f"{path} cannot be read: {error}; {AGAIN}") from error
    if not isinstance(content, dict):
        raise LabError(f"{path} holds no JSON object; {description} is one")
    return content


def _weights(folder: Path) -> Tensors | None:
    """Every tensor; None where the files do not tell (.bin).

    LabError where one is missing, cut off or not there.
    """
    path = next((folder / file for file in WEIGHTS if (folder / file).is_file()), None)
    if path is None:
        _refuse_gguf(folder)
        raise LabError(
            f"no weights in the model folder {folder}; wanted model.safetensors, its shards or a"
            " .bin"
        )
    if not path.name.endswith(".index.json"):
        return _tensors(path)
    file_of: Any = read_json_object(path, "an index of weight files").get("weight_map")
    files = sorted(set(map(str, file_of.values()))) if isinstance(file_of, dict) else []
    if not files:
        raise LabError(f"{path} cannot be read as an index of weight files; {AGAIN}")
    missing = [file for file in files if not (folder / file).is_file()]
    if missing:
        raise LabError(
            f"{len(missing)} of {len(files)} weight files are missing in {folder}, first"
            f" {missing[0]}"
        )
    shapes: dict[str, Integers] = {}
    for file in files:
        tensors = _tensors(folder / file)
        if tensors is None:
            return None
        for name in file_of:
            if file_of[name] == file and name not in tensors:
                raise LabError(
                    f"{folder / file} lacks the tensor {name}, which the index says it holds;"
                    f" {AGAIN}"
                )
        shapes.update(tensors)
    return shapes


def _refuse_adapter(folder: Path) -> None:
    """LabError for an adapter of PEFT.

    transformers would load the adapter's base, wherever that is.
    """
    adapter = folder / "adapter_config.json"
    if adapter.is_file():
        config = read_json_object(adapter, "a PEFT configuration")
        base = config.get("base_model_name_or_path") or "BASE"
        raise LabError(
            f"{folder} is an adapter of '{base}', not a model: merge it first, with"
            f" PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained('{base}'),"
            f" '{folder}').merge_and_unload().save_pretrained('MERGED'), and save the tokenizer"
            " there too"
        )


def _refuse_gguf(folder: Path) -> None:
    """LabError where the weights are in llama.cpp's format, in which nothing can be trained."""
    if gguf := sorted(folder.glob("*.gguf")):
        raise LabError(
            f"the weights in {folder} are GGUF ({gguf[0].name}), which cannot be trained; read them"
            " with transformers' from_pretrained(..., gguf_file=...) and write them with"
            " save_pretrained"
        )


def _tensors(path: Path) -> Tensors | None:
    """The shapes of a file's tensors; None where it does not tell them, or safetensors is absent.

    LabError where the file is cut off or damaged.
    """
    if path.suffix != ".safetensors":
        with path.open("rb") as file:
            start = file.read(2)
        if not start or (start == b"PK" and not zipfile.is_zipfile(path)):
            raise LabError(f"{path} is cut off: it has no end; {AGAIN}")
        return None
    if find_spec("safetensors") is None:
        return None
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as tensors:
            shapes = {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise LabError(f"{path} is cut off or damaged ({first_line(error)}); {AGAIN}") from error
    if not shapes:
        raise LabError(f"{path} holds no tensor; {AGAIN}")
    return shapes


def _check_layers(folder: Path, layers: int, tensors: Tensors) -> None:
    """Names say `layers.N.` in most families; in the others nothing is known."""
    present = {
        int(match[1]) for name in tensors if (match := re.search(r"\blayers\.(\d+)\.", name))
    }
    missing = layers - sum(layer < layers for layer in present) if present else 0
    if missing:
        first_missing = next(layer for layer in count() if layer not in present)
        raise LabError(
            f"the model folder {folder} lacks the weights of {missing} of {layers} layers, first"
            f" layer {first_missing}; {AGAIN}"
        )


def _check_tokenizer(folder: Path, rows: int) -> None:
    path = next((folder / file for file in TOKENIZERS if (folder / file).is_file()), None)
    if path is None:
        raise LabError(
            f"no tokenizer in the model folder {folder}; copy the one the model was trained with"
            " there"
        )
    largest = -1
    if path.name == "tokenizer.json":
        content = read_json_object(path, "a tokenizer")
        model = content.get("model")
        added = content.get("added_tokens")
        vocabulary = model.get("vocab") if isinstance(model, dict) else None
        if isinstance(vocabulary, list):  # of a Unigram model: the place is the number
            largest = len(vocabulary) - 1
        elif isinstance(vocabulary, dict):
            largest = _greatest(vocabulary.values())
        if isinstance(added, list):
            largest = max(
                largest, _greatest(token.get("id") for token in added if isinstance(token, dict))
            )
    elif path.name == "vocab.json":
        largest = _greatest(read_json_object(path, "a vocabulary").values())
    if 0 < rows <= largest:
        raise LabError(
            f"the tokenizer in {folder} has token {largest}, the model embeds {rows}: they do not"
            " belong together; copy the one the model was trained with there"
        )


def _rows(configs: list[JsonObject], tensors: Tensors) -> int:
    """Tokens that the model embeds, the most that either its weights or its configuration say; 0:
    not known.
    """
    embedded = [
        shape[0] for name, shape in tensors.items() if name.endswith(EMBEDDINGS) and len(shape) == 2
    ]
    return max([_largest(configs, "vocab_size"), *embedded])


def _largest(configs: list[JsonObject], key: str) -> int:
    return max(_greatest(config.get(key) for config in configs), 0)


def _greatest(values: Iterable[Any]) -> int:
    return max(
        (value for value in values if isinstance(value, int) and not isinstance(value, bool)),
        default=-1,
    )
