"""Settings as dotted keys, which of them differ, and values of one kind as JSON gives them."""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)

BAND = ("objective.clip_low", "objective.clip_high")
"""With `clip = "calibrated"` a pilot finds these two, so they are declared with it."""


def flat(data: Any, prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys: `{"update": {"epochs": 1}}` -> `{"update.epochs": 1}`.

    A list of tables counts its entries from 0 (`bench.0.name`); other lists stay whole.
    """
    if isinstance(data, list) and any(isinstance(entry, dict) for entry in data):
        data = {str(index): entry for index, entry in enumerate(data)}
    if not isinstance(data, dict):
        return {prefix: data}
    out: dict[str, Any] = {}
    for key, value in data.items():
        out.update(flat(value, f"{prefix}.{key}" if prefix else str(key)))
    return out


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The keys whose values differ; a key that only one side has differs, None and absent are the same."""
    return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))


def under(key: str, names: Iterable[str]) -> bool:
    """Whether one of `names` is the key or a table around it."""
    return any(key == name or key.startswith(f"{name}.") for name in names)


def alike_but(one: Mapping[str, Any], other: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether two nested settings differ in nothing but the keys or tables `names`."""
    allowed = tuple(names)
    return all(under(key, allowed) for key in differing(flat(one), flat(other)))


def put(table: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key in nested tables; tables that are missing on the way are made."""
    *path, last = key.split(".")
    for part in path:
        table = table.setdefault(part, {})
    table[last] = value


def read(kind: type[T], data: Any) -> T:
    """Plain data as JSON gives them, as one kind: a model, a dataclass, a tuple. TypeError where they are another."""
    try:
        return cast(T, _adapter(kind).validate_json(json.dumps(data), strict=True))
    except ValidationError as error:
        raise TypeError(str(error).partition("\n")[2].replace("\n", " ")) from error
