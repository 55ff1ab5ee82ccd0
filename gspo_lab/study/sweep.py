"""`[sweep]`: every arm at every value (dose) of one shared setting, to find the value at which runs collapse.

    [sweep]
    update.learning_rate = [2e-4, 5e-4, 1e-3, 2e-3]

An arm `gspo` becomes the arms `gspo@0.0002`, `gspo@0.0005`, ..., each with `of = "gspo"`.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gspo_lab.study.declaration import Arm, Sweep
from gspo_lab.study.dotted_keys import flat, set_dotted
from gspo_lab.study.schema import STUDY_KEYS

LARGEST = 1e12
"""More than any setting may be."""


def read_sweep(table: Any, problems: list[str]) -> Sweep | None:
    """The sweep of a study, None where it has none; mistakes go to `problems`."""
    if table is None:
        return None
    settings = flat(table) if isinstance(table, dict) else {}
    if len(settings) != 1:
        problems.append("sweep: give one setting and its doses, e.g. update.learning_rate = [2e-4, 5e-4, 1e-3]")
        return None
    ((key, doses),) = settings.items()
    if key.partition(".")[0] in STUDY_KEYS:
        known = "seeds pair the arms, every arm runs on all of them: write seeds = [...] at the top of the file"
        why = known if key == "seeds" else "it belongs to the study and to no single run"
        problems.append(f"sweep.{key}: cannot be swept; {why}, and sweep a setting such as update.learning_rate")
        return None
    numbers = isinstance(doses, list) and all(isinstance(d, int | float) and not isinstance(d, bool) for d in doses)
    if not numbers or not all(0 < dose <= LARGEST for dose in doses) or len({f"{d:g}" for d in doses}) < 2:
        problems.append(f"sweep.{key}: doses are at least two different numbers > 0 in a list; got {doses!r}")
        return None
    if len({f"{dose:g}" for dose in doses}) < len(doses):
        problems.append(f"sweep.{key}: two doses are the same in six digits, by which arms are named; got {doses!r}")
        return None
    return Sweep(key, tuple(sorted(doses)))


def at_every_dose(
    sweep: Sweep,
    base: dict[str, Any],
    tables: dict[str, dict[str, Any]],
    resolve: Callable[[dict[str, Any], dict[str, dict[str, Any]], list[str]], dict[str, Arm]],
    problems: list[str],
) -> dict[str, Arm]:
    """The arms of `resolve(settings, tables, problems)` at each dose; a mistake in several is reported once."""
    out: dict[str, Arm] = {}
    if (part := _through_no_table(base, sweep.key)) is not None:
        problems.append(f"sweep.{sweep.key}: '{part}' is no table; a sweep sets one key of a table, as update.epochs")
        return out
    for dose in sweep.doses:
        mistakes: list[str] = []
        settings = copy.deepcopy(base)
        set_dotted(settings, sweep.key, dose)
        for name, arm in resolve(settings, tables, mistakes).items():
            declared = tuple(sorted({*arm.declared, sweep.key}))
            out[f"{name}@{dose:g}"] = replace(arm, name=f"{name}@{dose:g}", declared=declared, of=name, dose=dose)
        problems += [line for line in mistakes if line not in problems]
    return out


def _through_no_table(base: dict[str, Any], key: str) -> str | None:
    """The first part of a dotted key that is not a table in the study; None where all are tables."""
    table: Any = base
    for part in key.split(".")[:-1]:
        table = table.get(part, {})
        if not isinstance(table, dict):
            return part
    return None
