"""A run's settings as its program recorded them: read from files, and compared between runs of one
arm.

Entries about the place and the person of a run are left out: names, paths, hosts, seeds.
"""

import json
import pickle
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gspo_lab.common.errors import LabError, require_package
from gspo_lab.study.dotted_keys import differing, flat

ARGUMENTS = "training_args.bin"
"""The file beside each checkpoint of a transformers trainer: its arguments, pickled in a zip file.
"""
LARGEST = 1 << 24
"""Largest size of a configuration file in bytes."""
PLACES = frozenset(
    (
        "seed",
        "seeds",
        "rank",
        "host",
        "hostname",
        "port",
        "user",
        "username",
        "url",
        "ip",
        "id",
        "ids",
        "run",
        "name",
        "names",
        "path",
        "paths",
        "dir",
        "dirs",
        "folder",
        "project",
        "entity",
        "experiment",
        "tag",
        "tags",
        "log",
        "logs",
        "logger",
        "logging",
        "save",
        "saves",
        "resume",
        "report",
        "output",
        "cache",
        "hub",
        "push",
        "time",
        "timeout",
        "timestamp",
        "date",
        "wandb",
        "trackio",
        "tensorboard",
        "version",
        "debug",
        "notes",
        "gpu",
        "gpus",
        "node",
        "nodes",
        "worker",
        "workers",
        "process",
        "processes",
    )
)
"""Words in keys of entries about the place, time or person of a run, which change nothing about its
training.
"""
MODEL = "model"
"""With this word in its key, a name or path is the trained model's."""


def comparable_settings(config: Mapping[str, Any], ignored: Iterable[str] = ()) -> dict[str, Any]:
    """The entries that are equal in all runs with equal settings, by dotted keys, without the
    `ignored` ones.
    """
    left_out = set(ignored)
    out = {}
    for key, value in flat(dict(config)).items() if config else ():
        words = set(re.split(r"[^a-z0-9]+", key.lower()))
        unrelated = bool(words & PLACES) and not (MODEL in words and words & {"name", "path"})
        if key not in left_out and not unrelated and (plain := _plain(value)) is not None:
            out[key] = plain
    return out


def model_name(value: Any) -> Any:
    """A model's name as in a study: of a local path only the last part."""
    local = isinstance(value, str) and value.startswith(("/", "~", "."))
    return value.rstrip("/").rpartition("/")[2] if local else value


def _plain(value: Any) -> Any:
    """The value, or None if it may identify a person or a machine."""
    if isinstance(value, str):
        value = model_name(value)
        return (
            None if any(part in value for part in ("@", "://", "${")) or len(value) > 200 else value
        )
    if isinstance(value, list):
        return value if all(isinstance(entry, int | float) for entry in value) else None
    return value if isinstance(value, bool | int | float) else None


def check_alike(
    arm: str, name: str, config: Mapping[str, Any], runs: Iterable[tuple[str, Mapping[str, Any]]]
) -> None:
    """LabError if a run's configuration differs from one of the arm's `runs` (names and
    configurations).
    """
    for earlier, before in runs:
        shared = config.keys() & before.keys()
        if odd := differing(
            {key: before[key] for key in shared}, {key: config[key] for key in shared}
        ):
            more = f" ({len(odd)} settings differ)" if len(odd) > 1 else ""
            raise LabError(
                f"arm {arm}: {odd[0]} is {before[odd[0]]!r} in {earlier} and {config[odd[0]]!r} in"
                f" {name}{more}; make two arms of them, or give --ignore {odd[0]} if it changes"
                " nothing"
            )


def read_config(path: Path) -> dict[str, Any]:
    """A configuration file in JSON or YAML. LabError for any other file."""
    try:
        if path.stat().st_size > LARGEST:
            raise LabError(f"{path}: larger than {LARGEST >> 20} MiB, which no configuration is")
        text = path.read_text(encoding="utf-8")
        config = _yaml(text, path) if path.suffix in (".yaml", ".yml") else json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise LabError(f"{path}: not a configuration as JSON or YAML ({error})") from error
    if not isinstance(config, dict):
        raise LabError(
            f"{path}: not a configuration: its top level is {type(config).__name__}, not a table"
        )
    # W&B's config.yaml has every entry as {desc, value}.
    return {
        str(key): entry["value"]
        if isinstance(entry, dict) and entry.keys() <= {"desc", "value"} and "value" in entry
        else entry
        for key, entry in config.items()
    }


def _yaml(text: str, path: Path) -> Any:
    require_package("pyyaml", "import", f"reading {path}", "yaml")
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error).replace("\n", " ")) from error


def training_arguments(path: Path) -> dict[str, Any] | None:
    """The arguments in `training_args.bin`; None if it is absent or unreadable.

    No code in it is executed.
    """
    try:
        if path.stat().st_size > LARGEST:
            return None
        with zipfile.ZipFile(path) as archive:
            [name] = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            with archive.open(name) as file:
                arguments = _Reader(file).load()
        return {
            key: _argument(value)
            for key, value in vars(arguments).items()
            if not key.startswith("_")
        }
    except Exception:  # a damaged pickle may raise anything
        return None


class _Inert:
    """Replaces every object in a pickle.

    It holds the constructor's arguments and executes nothing.
    """

    def __new__(cls, *made_of: Any, **more: Any) -> "_Inert":
        out = object.__new__(cls)
        out.__dict__["_made_of"] = made_of
        return out

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


class _Reader(pickle.Unpickler):
    """Reads a pickle without importing or calling the objects that it names."""

    def find_class(self, module: str, name: str) -> type[_Inert]:
        return _Inert

    def persistent_load(self, pid: Any) -> None:
        return None


def _argument(value: Any) -> Any:
    """An argument; of an enumeration's member its value.

    Python before 3.11.4 pickles a member by its name, which transformers' values repeat in lower
    case.
    """
    if isinstance(value, _Inert):
        match value.__dict__["_made_of"]:
            case (of_value,):
                return of_value
            case (type(), str(name)):
                return name.lower()
        return None
    return value
