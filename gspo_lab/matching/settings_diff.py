"""The settings in which two arms differ, and which of these differences the arms declare."""

from collections.abc import Iterable, Mapping
from typing import Any

from gspo_lab.study import Arm, flat
from gspo_lab.study.dotted_keys import BAND, differing, under


def declared(
    keys: Iterable[str], allowed: Iterable[str], left: Mapping[str, Any], right: Mapping[str, Any]
) -> list[str]:
    """Those of `keys` that `allowed` names, by the key or by its table. `left` and `right` are flat settings."""
    named = set(allowed)
    if "calibrated" in (left.get("objective.clip"), right.get("objective.clip")):
        named |= set(BAND)
    return [key for key in keys if under(key, named)]


def undeclared(left: Arm, right: Arm) -> list[str]:
    """The settings in which two arms differ although neither arm declares them."""
    a, b = flat(left.resolved), flat(right.resolved)
    keys = differing(a, b)
    stated = declared(keys, [*left.declared, *right.declared], a, b)
    return [key for key in keys if key not in stated]


def join_names(names: Iterable[Any]) -> str:
    """Names with commas between them; "nothing" for no names."""
    return ", ".join(str(name) for name in names) or "nothing"


def format_value(value: Any) -> str:
    """A recorded value as text; of a sha256 digest only the first twelve digits."""
    if value is None:
        return "unset"
    text = f"{value:.9g}" if isinstance(value, float) else str(value)
    return text[:12] if len(text) == 64 and set(text) <= set("0123456789abcdef") else text
