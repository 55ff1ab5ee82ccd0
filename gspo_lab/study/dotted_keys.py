"""Settings as dotted keys, their differences, and typed values from JSON."""

import json
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from gspo_lab.common.plain_data import JsonMapping, JsonObject
from gspo_lab.training.objectives.settings import CLIP_RANGE

T = TypeVar("T")
adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
"""pydantic's reader of a type."""

BAND = tuple(f"objective.{key}" for key in CLIP_RANGE)
"""With `clip = "calibrated"` a pilot sets these two, so they are declared with it."""


def flat(data: Any, prefix: str = "") -> JsonObject:
    """Nested tables as dotted keys: `{"update": {"epochs": 1}}` -> `{"update.epochs": 1}`.

    A list of tables counts its entries from 0 (`bench.0.name`); other lists stay whole.
    """
    if isinstance(data, list) and any(isinstance(entry, dict) for entry in data):
        data = {str(index): entry for index, entry in enumerate(data)}
    if not isinstance(data, dict):
        return {prefix: data}
    out: JsonObject = {}
    for key, value in data.items():
        out.update(flat(value, f"{prefix}.{key}" if prefix else str(key)))
    return out


def differing(settings: JsonMapping, other: JsonMapping) -> list[str]:
    """The keys whose values differ; None and an absent key are the same."""
    if settings == other:
        return []
    return sorted(
        key for key in settings.keys() | other.keys() if settings.get(key) != other.get(key)
    )


def under(key: str, names: Iterable[str]) -> bool:
    """Whether one of `names` is the key or a table around it."""
    return f"{key}.".startswith(tuple([f"{name}." for name in names]))


def alike_but(settings: JsonMapping, other: JsonMapping, names: Iterable[str]) -> bool:
    """Whether two nested settings differ only in the keys or tables `names`."""
    allowed = tuple(names)
    return all(under(key, allowed) for key in differing(flat(settings), flat(other)))


def set_dotted(table: JsonObject, key: str, value: Any) -> None:
    """Set a dotted key in nested tables, creating missing tables."""
    *path, last = key.split(".")
    for part in path:
        table = table.setdefault(part, {})
    table[last] = value


def read(kind: type[T], data: Any) -> T:
    """Data from JSON as a model, a dataclass or a tuple. TypeError where they do not fit."""
    try:
        return cast(T, adapter(kind).validate_json(json.dumps(data), strict=True))
    except ValidationError as error:
        raise TypeError(str(error).partition("\n")[2].replace("\n", " ")) from error
