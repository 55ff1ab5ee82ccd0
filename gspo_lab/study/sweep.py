"""`[sweep]`: every arm at every dose of one shared setting, so that a study can ask at which dose training breaks.

    [sweep]
    update.learning_rate = [2e-4, 5e-4, 1e-3, 2e-3]

An arm `gspo` becomes the arms `gspo@0.0002`, `gspo@0.0005`, ...; each knows which arm it is a dose of.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from gspo_lab.study.dotted import flat
from gspo_lab.study.study import Arm


@dataclass(frozen=True)
class Sweep:
    """One setting, by its dotted key, and its values in rising order."""

    key: str
    doses: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, "doses": list(self.doses)}


def read_sweep(table: Any, problems: list[str]) -> Sweep | None:
    """The sweep of a study, None where it has none; mistakes go to `problems`."""
    if table is None:
        return None
    settings = flat(table) if isinstance(table, dict) else {}
    if len(settings) != 1:
        problems.append("sweep: give one setting and its doses, e.g. update.learning_rate = [2e-4, 5e-4, 1e-3]")
        return None
    ((key, doses),) = settings.items()
    numbers = isinstance(doses, list) and all(isinstance(d, int | float) and not isinstance(d, bool) for d in doses)
    if not numbers or len(set(doses)) < max(len(doses), 2) or min(doses) <= 0:
        problems.append(f"sweep.{key}: doses are at least two different numbers > 0 in a list; got {doses!r}")
        return None
    return Sweep(key, tuple(sorted(doses)))


def at_every_dose(
    sweep: Sweep,
    base: dict[str, Any],
    arms_of: Callable[[dict[str, Any], list[str]], dict[str, Arm]],
    problems: list[str],
) -> dict[str, Arm]:
    """The arms that `arms_of(settings, problems)` resolves, dose by dose; a mistake is told once, not once per dose."""
    out: dict[str, Arm] = {}
    for dose in sweep.doses:
        told: list[str] = []
        for name, arm in arms_of(_with(base, sweep.key, dose), told).items():
            declared = tuple(sorted({*arm.declared, sweep.key}))
            out[f"{name}@{dose:g}"] = replace(arm, name=f"{name}@{dose:g}", declared=declared, of=name, dose=dose)
        _add(problems, told)
    return out


def _with(base: dict[str, Any], key: str, dose: float) -> dict[str, Any]:
    out = copy.deepcopy(base)
    *path, last = key.split(".")
    table = out
    for part in path:
        table = table.setdefault(part, {})
    table[last] = dose
    return out


def _add(problems: list[str], told: Iterable[str]) -> None:
    problems += [line for line in told if line not in problems]
