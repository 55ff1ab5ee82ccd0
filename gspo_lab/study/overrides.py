"""Overrides of the command line, `--set table.key=value`, applied to a study's tables.

They also make the command that repeats a study."""

import tomllib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonObject, Strings
from gspo_lab.common.registry import unlisted
from gspo_lab.study.schema import RATE


def set_override(raw: JsonObject, override: str) -> None:
    """Apply one `--set` to the tables.

    `update.epochs=2`, `task.digits=3`, `arm.gspo.objective=dapo`, `bench.addition.problems=64` (an
    entry's name).
    """
    key, _, text = override.partition("=")
    try:
        path = _path(tomllib.loads(f"{key} = 0"))
    except (tomllib.TOMLDecodeError, ValueError):
        path = []
    if not path or "=" not in override:
        raise LabError(
            f"--set {override}: write it as --set table.key=value, e.g. --set {RATE}=3e-4"
        )
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        value = text  # a bare word is text: --set model=tiny-olmoe
    arms = raw.get("arm")
    if path[0] == "arm" and len(path) > 1 and isinstance(arms, dict) and path[1] not in arms:
        raise LabError(f"--set {override}: no arm {unlisted(path[1], arms, 'this study has')}")
    table: Any = raw
    for part in path[:-1]:
        table = _subtable(table, part, override)
    if not isinstance(table, dict):
        raise LabError(
            f"--set {override}: '{path[-2]}' is a list of tables; write {path[-2]}.NAME.key=value"
        )
    table[path[-1]] = value


def _path(nested: Any) -> list[str]:
    """The path of a dotted key: `{"arm": {"gspo": {"steps": 0}}}` -> `["arm", "gspo", "steps"]`.

    TOML's own reader has made the nested tables."""
    out = []
    while isinstance(nested, dict):
        ((key, nested),) = nested.items()
        out.append(key)
    return out


def _subtable(table: Any, part: str, override: str) -> Any:
    """The table (or list of named tables) called `part` inside `table`, created if missing."""
    if isinstance(table, list):
        entries = {entry.get("name"): entry for entry in table if isinstance(entry, dict)}
        if part not in entries:
            names = [name for name in entries if isinstance(name, str)]
            raise LabError(f"--set {override}: no table {unlisted(part, names, 'there are')}")
        return entries[part]
    if part in ("task", "engine") and isinstance(table.get(part), str):
        table[part] = {"name": table[part]}
    inner = table.setdefault(part, {})
    if not isinstance(inner, dict | list):
        raise LabError(f"--set {override}: '{part}' is no table in this study")
    return inner


def command_of(
    path: Path,
    overrides: Sequence[str],
    seeds: int | Sequence[int] | None,
    steps: int | None,
    arms: Sequence[str] | None,
    name: str | None,
) -> Strings:
    """The arguments of `gspo-lab run` that repeat this study; a file with an absolute path is taken
    from studies/.
    """
    words = [f"studies/{path.name}" if path.is_absolute() else path.as_posix()]
    for override in overrides:
        if override.startswith(
            ("launch.", "record.mirror=")
        ):  # launchers and mirrors are not declared
            continue
        words += ["--set", override]
    words += seed_words(seeds)
    words += [] if steps is None else ["--steps", str(steps)]
    words += [] if arms is None else ["--arms", ",".join(arms)]
    words += [] if name is None else ["--name", name]
    return tuple(words)


def seed_words(seeds: int | Sequence[int] | None) -> list[str]:
    """The option that asks for these seeds: a count, one seed, or a list."""
    if seeds is None:
        return []
    if isinstance(seeds, int):
        return ["--seeds", str(seeds)]
    if len(seeds) == 1:  # --seeds 7 would be a count
        return ["--seed", str(seeds[0])]
    return ["--seeds", ",".join(map(str, seeds))]


def drop_options(words: Sequence[str], *options: str) -> Strings:
    """The arguments without these options and their values."""
    pairs = zip(words[1::2], words[2::2], strict=False)
    return (*words[:1], *chain.from_iterable(pair for pair in pairs if pair[0] not in options))
