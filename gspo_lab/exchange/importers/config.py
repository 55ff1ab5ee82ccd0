"""A run's settings as its program recorded them: read from files, and compared between runs of one
arm.

Entries about the place and the person of a run are left out: names, paths, hosts, seeds.
"""

import io
import json
import pickle
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gspo_lab.common.errors import LabError, require_package
from gspo_lab.common.plain_data import JsonMapping, JsonObject
from gspo_lab.exchange.importers.base import encoding_of
from gspo_lab.exchange.importers.secrets import word_set
from gspo_lab.study.dotted_keys import differing

ARGUMENTS = "training_args.bin"
"""The file beside each checkpoint of a transformers trainer: its arguments, pickled in a zip file.
"""
LARGEST = 1 << 24
"""Largest size of a configuration file in bytes."""
UNRELATED_WORDS = word_set(
    "seed seeds rank host hostname port url ip id ids run name names path paths dir dirs folder"
    " project entity experiment tag tags log logs logger logging save saves resume report output"
    " cache hub push time timeout timestamp date wandb trackio tensorboard version debug notes gpu"
    " gpus node nodes worker workers process processes"
)
"""An entry whose key has one of these words is left out: it changes nothing about training."""
LONGEST_TEXT = 200
"""The most characters of a text that can be a setting; longer ones are notes."""
MODEL = "model"
"""With this word in its key, a name or path is the trained model's."""


def comparable_settings(settings: JsonMapping, ignored: Iterable[str] = ()) -> JsonObject:
    """The entries in which runs with equal settings cannot differ, without the `ignored` ones.

    `settings` are a program's by dotted keys, without secrets (`secrets.public_settings`).
    """
    left_out = set(ignored)
    comparable = {}
    for key, value in settings.items():
        words = set(re.split(r"[^a-z0-9]+", key.lower()))
        names_model = MODEL in words and bool(words & {"name", "path"})
        plain = _plain(value)
        if key in left_out or plain is None or (words & UNRELATED_WORDS and not names_model):
            continue
        comparable[key] = plain
    return comparable


def model_name(value: Any) -> Any:
    """A model's name as a study writes it; for a local path only its last part."""
    local = isinstance(value, str) and value.startswith(("/", "~", "."))
    return value.rstrip("/").rpartition("/")[2] if local else value


def _plain(value: Any) -> Any:
    """The value as a number, a truth value or a short text; None for another one."""
    if isinstance(value, str):
        name = model_name(value)
        is_address = "://" in name or "${" in name
        return None if is_address or len(name) > LONGEST_TEXT else name
    if isinstance(value, list):
        return value if all(isinstance(entry, int | float) for entry in value) else None
    return value if isinstance(value, bool | int | float) else None


def check_equal_configs(
    arm: str, name: str, config: JsonMapping, configs: Mapping[str, JsonMapping]
) -> None:
    """LabError if a run's configuration differs from that of another run of its arm.

    `config` is the run's; `configs` are those of the other runs by name.
    """
    for other, earlier in configs.items():
        shared = config.keys() & earlier.keys()
        odd = differing({key: earlier[key] for key in shared}, {key: config[key] for key in shared})
        if odd:
            raise LabError(
                f"arm {arm}: {odd[0]} is {earlier[odd[0]]!r} in {other} and {config[odd[0]]!r} in"
                f" {name}; make two arms of them, or give --ignore {odd[0]} if it changes"
                " nothing"
            )


def read_config(path: Path) -> JsonObject:
    """A configuration file in JSON or YAML. LabError for any other file."""
    try:
        if path.stat().st_size > LARGEST:
            raise LabError(f"{path}: larger than {LARGEST >> 20} MiB, which no configuration is")
        text = path.read_text(encoding_of(path))
        config = _yaml(text, path) if path.suffix in (".yaml", ".yml") else json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise LabError(f"{path}: not a configuration as JSON or YAML ({error})") from error
    if not isinstance(config, dict):
        raise LabError(
            f"{path}: not a configuration: its top level is {type(config).__name__}, not a table"
        )
    return {str(key): _wandb_value(entry) for key, entry in config.items()}


def _wandb_value(entry: Any) -> Any:
    """The value of an entry {desc, value}, as W&B's config.yaml has them; else the entry."""
    wrapped = isinstance(entry, dict) and entry.keys() <= {"desc", "value"} and "value" in entry
    return entry["value"] if wrapped else entry


def _yaml(text: str, path: Path) -> Any:
    require_package("pyyaml", "import", f"reading {path}", "yaml")
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error).replace("\n", " ")) from error


def training_arguments(path: Path) -> JsonObject | None:
    """The arguments in `training_args.bin`; None if they cannot be read.

    No code in it is executed, and no more than LARGEST bytes of it are unpacked.
    """
    try:
        if path.stat().st_size > LARGEST:
            return None
        with zipfile.ZipFile(path) as archive:
            [name] = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            with archive.open(name) as file:
                content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            return None
        arguments = _Reader(io.BytesIO(content)).load()
        entries = vars(arguments).items()
    except Exception:  # a damaged pickle may raise anything
        return None
    return {key: _argument(value) for key, value in entries if not key.startswith("_")}


class _Inert:
    """Replaces every object in a pickle.

    It holds the constructor's arguments and executes nothing.
    """

    def __new__(cls, *arguments: Any, **keywords: Any) -> "_Inert":
        inert = object.__new__(cls)
        inert.__dict__["_made_of"] = arguments
        return inert

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


class _Reader(pickle.Unpickler):
    """Reads a pickle without importing or calling the objects that it names."""

    def find_class(self, module: str, name: str) -> type[_Inert]:
        return _Inert

    def persistent_load(self, pid: Any) -> None:
        return None


def _argument(value: Any) -> Any:
    """The argument as a number, a text or a list; an enumeration's member becomes its value.

    Python before 3.11.4 pickles a member by its name, which transformers' values repeat in lower
    case.
    """
    if isinstance(value, _Inert):
        match value.__dict__["_made_of"]:
            case (bool() | int() | float() | str() as member,):
                return member
            case (type(), str(name)):
                return name.lower()
    plain = (bool, int, float, str)
    if isinstance(value, list) and all(isinstance(entry, plain) for entry in value):
        return value
    return value if isinstance(value, plain) else None
