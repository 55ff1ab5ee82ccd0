"""What a model folder says of itself in its small files and headers: whether it is whole, without loading anything.

config.json                                 the family, its layers, the rows of its embedding
model.safetensors[.index.json], *.bin       8 bytes of length and a JSON header name every tensor and its place
tokenizer.json                              every token with its number
"""

import json
import re
import zipfile
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""The files of which `from_pretrained` wants one; an index names the shards beside it."""

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "vocab.txt", "spiece.model")
"""Without one of these in a folder, transformers may make up a tokenizer with an empty vocabulary."""

EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight")
"""How families end the name of the token embedding, [rows, width]."""

JSON_BYTES, HEADER_BYTES = 1 << 28, 100_000_000
"""The largest file of JSON that is read (a tokenizer's is a tenth of that), and the header that safetensors allows."""

AGAIN = "copy or download it again"

Tensors = Mapping[str, tuple[int, ...]]
"""Shapes by name."""


def check_folder(folder: Path) -> None:
    """LabError where config.json, whole weights of every layer or a tokenizer that fits them are missing."""
    config = read_config(folder)
    if not isinstance(config.get("model_type"), str):
        raise LabError(f"{folder / 'config.json'} names no model_type; a transformers model's configuration does")
    tensors = _weights(folder)
    parts = [config, *(part for part in (config.get("text_config"),) if isinstance(part, dict))]
    if tensors is not None:
        _check_layers(folder, _largest(parts, "num_hidden_layers"), tensors)
    _check_tokenizer(folder, _rows(parts, tensors or {}))


def read_config(folder: Path) -> dict[str, Any]:
    """A model folder's config.json, or LabError."""
    path = folder / "config.json"
    if not path.is_file():
        _refuse_gguf(folder)
        raise LabError(f"no config.json in the model folder {folder}; is it the folder that save_pretrained wrote?")
    return read_json_object(path, "a transformers configuration")


def read_json_object(path: Path, what: str) -> dict[str, Any]:
    """The object that a JSON file holds, `what` it should be; LabError where it holds none."""
    try:
        if (size := path.stat().st_size) > JSON_BYTES:
            raise LabError(f"{path} is not {what}: {size:,} bytes; {AGAIN}")
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise LabError(f"{path} cannot be read: {error}; {AGAIN}") from error
    if not isinstance(content, dict):
        raise LabError(f"{path} holds no JSON object; {what} is one")
    return content


def _weights(folder: Path) -> Tensors | None:
    """Every tensor; None where the files do not tell (.bin). LabError where one is missing, cut off or not there."""
    path = next((folder / file for file in WEIGHTS if (folder / file).is_file()), None)
    if path is None:
        _refuse_gguf(folder)
        raise LabError(f"no weights in the model folder {folder}; wanted model.safetensors, its shards or a .bin")
    if not path.name.endswith(".index.json"):
        return _tensors(path)
    shards = read_json_object(path, "an index of weight files").get("weight_map")
    if not isinstance(shards, dict) or not shards or not all(isinstance(shard, str) for shard in shards.values()):
        raise LabError(f"{path} cannot be read as an index of weight files; {AGAIN}")
    files = sorted(set(shards.values()))
    missing = [file for file in files if not (folder / file).is_file()]
    if missing:
        raise LabError(f"{len(missing)} of {len(files)} weight files are missing in {folder}, first {missing[0]}")
    held = {file: _tensors(folder / file) for file in files}
    for name, file in shards.items():
        tensors = held[file]
        if tensors is not None and name not in tensors:
            raise LabError(f"{folder / file} lacks the tensor {name}, which the index says it holds; {AGAIN}")
    known = [tensors for tensors in held.values() if tensors is not None]
    return {name: shape for shapes in known for name, shape in shapes.items()} if len(known) == len(held) else None


def _refuse_gguf(folder: Path) -> None:
    """LabError where the weights are in llama.cpp's format, in which nothing can be trained."""
    if gguf := sorted(folder.glob("*.gguf")):
        raise LabError(
            f"the weights in {folder} are GGUF ({gguf[0].name}), which cannot be trained; read them with transformers' "
            "from_pretrained(..., gguf_file=...) and write them with save_pretrained"
        )


def _tensors(path: Path) -> Tensors | None:
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if path.suffix != ".safetensors":
            if not start or (start.startswith(b"PK") and not zipfile.is_zipfile(path)):
                raise LabError(f"{path} is cut off: {size:,} bytes without an end; {AGAIN}")
            return None
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > size - 8:
            raise LabError(f"{path} is cut off within its header, or no safetensors file: {size:,} bytes; {AGAIN}")
        if length > HEADER_BYTES:
            raise LabError(f"{path} is not a safetensors file: it announces a header of {length:,} bytes; {AGAIN}")
        text = file.read(length)
    try:
        header = {name: entry for name, entry in json.loads(text).items() if name != "__metadata__"}
        end = 8 + length + max((int(entry["data_offsets"][1]) for entry in header.values()), default=0)
        shapes = {name: tuple(map(int, entry["shape"])) for name, entry in header.items()}
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise LabError(f"the header of {path} cannot be read: {error}; {AGAIN}") from error
    if not shapes:
        raise LabError(f"{path} holds no tensor; {AGAIN}")
    if size != end:
        what = "cut off" if size < end else "damaged"
        raise LabError(f"{path} is {what}: {size:,} bytes, of which its header announces {end:,}; {AGAIN}")
    return shapes


def _check_layers(folder: Path, layers: int, tensors: Tensors) -> None:
    """Names say `layers.N.` in most families; in the others nothing is known."""
    there = {int(match[1]) for name in tensors if (match := re.search(r"\blayers\.(\d+)\.", name))}
    missing = layers - sum(layer < layers for layer in there) if there else 0
    if missing:
        first = next(layer for layer in count() if layer not in there)
        raise LabError(
            f"the model folder {folder} lacks the weights of {missing} of {layers} layers, first layer {first}; {AGAIN}"
        )


def _check_tokenizer(folder: Path, rows: int) -> None:
    path = next((folder / file for file in TOKENIZERS if (folder / file).is_file()), None)
    if path is None:
        raise LabError(f"no tokenizer in the model folder {folder}; copy the one the model was trained with there")
    largest = -1
    if path.name == "tokenizer.json":
        content = read_json_object(path, "a tokenizer")
        model, added = content.get("model"), content.get("added_tokens")
        vocabulary = model.get("vocab") if isinstance(model, dict) else None
        if isinstance(vocabulary, list):  # of a Unigram model: the place is the number
            largest = len(vocabulary) - 1
        elif isinstance(vocabulary, dict):
            largest = _greatest(vocabulary.values())
        if isinstance(added, list):
            largest = max(largest, _greatest(token.get("id") for token in added if isinstance(token, dict)))
    elif path.name == "vocab.json":
        largest = _greatest(read_json_object(path, "a vocabulary").values())
    if 0 < rows <= largest:
        raise LabError(
            f"the tokenizer in {folder} has token {largest}, the model embeds {rows}: they do not belong together; "
            "copy the one the model was trained with there"
        )


def _rows(parts: list[dict[str, Any]], tensors: Tensors) -> int:
    """Tokens that the model embeds, the most that either its weights or its configuration say; 0: not known."""
    held = [shape[0] for name, shape in tensors.items() if name.endswith(EMBEDDINGS) and len(shape) == 2]
    return max([_largest(parts, "vocab_size"), *held])


def _largest(parts: list[dict[str, Any]], key: str) -> int:
    return max(_greatest(part.get(key) for part in parts), 0)


def _greatest(values: Iterable[Any]) -> int:
    return max((value for value in values if isinstance(value, int) and not isinstance(value, bool)), default=-1)
