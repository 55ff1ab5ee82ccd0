"""Settings as dotted keys, and which of their differences two arms declare."""

from collections.abc import Iterable, Mapping
from typing import Any

from gspo_lab.study import Arm, flat
from gspo_lab.study.dotted import BAND, differing, under


def declared(
    keys: Iterable[str], allowed: Iterable[str], one: Mapping[str, Any], other: Mapping[str, Any]
) -> list[str]:
    """Those of `keys` that `allowed` names, itself or as the table around it; one, other: the two flat settings."""
    named = set(allowed)
    if "calibrated" in (one.get("objective.clip"), other.get("objective.clip")):
        named |= set(BAND)
    return [key for key in keys if under(key, named)]


def undeclared(one: Arm, other: Arm) -> list[str]:
    """The settings in which two arms differ although neither states them as its own."""
    a, b = flat(one.resolved), flat(other.resolved)
    keys = differing(a, b)
    stated = declared(keys, [*one.declared, *other.declared], a, b)
    return [key for key in keys if key not in stated]


def listed(names: Iterable[Any]) -> str:
    """Names with commas between them."""
    return ", ".join(str(name) for name in names) or "nothing"


def shown(value: Any) -> str:
    """A recorded value for a reader: digests by their first twelve digits."""
    if value is None:
        return "unset"
    text = f"{value:.9g}" if isinstance(value, float) else str(value)
    return text[:12] if len(text) == 64 and set(text) <= set("0123456789abcdef") else text
