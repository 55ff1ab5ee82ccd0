"""Settings of an imported study: only those that a log or its importer told are known, and only these are written.

In memory the others hold defaults that stand for nothing: whoever reads one asks `Declaration.told` first.
"""

from collections.abc import Collection, Mapping
from typing import Any

from gspo_lab.study.dotted import flat, put, under
from gspo_lab.study.schema import Settings

ABSENT = "not recorded"
"""Stands for a value that nobody told, wherever a reader sees it."""


def known_part(settings: Settings, known: Collection[str]) -> dict[str, Any]:
    """The settings under these dotted keys as nested plain data, with the benchmarks' names and sizes."""
    out: dict[str, Any] = {}
    for key, value in flat(settings.model_dump(mode="json", exclude={"bench"})).items():
        if under(key, known):
            put(out, key, value)
    benches = [{"name": bench.name, "problems": bench.problems} for bench in settings.bench]
    named = [{key: value for key, value in bench.items() if value is not None} for bench in benches]
    return {**out, **({"bench": named} if named else {})}


def filled(known: Mapping[str, Any]) -> Settings:
    """These settings, nested plain data, over defaults. ValidationError for data that are none."""
    return Settings.model_validate(completed(known))


def completed(known: Mapping[str, Any]) -> dict[str, Any]:
    """The same as plain data, with the keys that have no default."""
    out = {"model": ABSENT, "task": {}, **known}
    return out | ({"task": {"name": ABSENT, **out["task"]}} if isinstance(out["task"], Mapping) else {})
