"""Settings as dotted keys, and which of their differences two arms declare."""

from collections.abc import Iterable, Mapping
from typing import Any

BAND = ("objective.clip_low", "objective.clip_high")
"""A calibrated arm finds these two by a pilot, so they are declared with `clip = "calibrated"`."""


def flat(data: Any, prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys; a list of tables counts its entries from 0."""
    if isinstance(data, list) and any(isinstance(entry, dict) for entry in data):
        data = {str(index): entry for index, entry in enumerate(data)}
    if not isinstance(data, dict):
        return {prefix: data}
    out: dict[str, Any] = {}
    for key, entry in data.items():
        out.update(flat(entry, f"{prefix}.{key}" if prefix else str(key)))
    return out


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The keys whose values differ; a key that only one side has differs, None and absent are the same."""
    return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))


def declared(
    keys: Iterable[str], allowed: Iterable[str], one: Mapping[str, Any], other: Mapping[str, Any]
) -> list[str]:
    """Those of `keys` that `allowed` names, itself or as the table around it; one, other: the two flat settings."""
    named = set(allowed)
    if "calibrated" in (one.get("objective.clip"), other.get("objective.clip")):
        named |= set(BAND)
    return [key for key in keys if under(key, named)]


def undeclared(study: Mapping[str, Any], one: str, other: str) -> list[str]:
    """The settings in which two arms of a study.json differ although neither states them as its own."""
    first, second = study["arms"][one], study["arms"][other]
    a, b = flat(first["settings"]), flat(second["settings"])
    keys = differing(a, b)
    stated = declared(keys, [*first["declared"], *second["declared"]], a, b)
    return [key for key in keys if key not in stated]


def under(key: str, names: Iterable[str]) -> bool:
    """Whether one of `names` is the key or a table around it."""
    return any(key == name or key.startswith(f"{name}.") for name in names)


def shown(value: Any) -> str:
    """A recorded value for a reader: digests by their first twelve digits."""
    if value is None:
        return "unset"
    text = f"{value:.9g}" if isinstance(value, float) else str(value)
    return text[:12] if len(text) == 64 and set(text) <= set("0123456789abcdef") else text
