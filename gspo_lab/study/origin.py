"""Imported studies: `Origin`, who recorded a run that no worker of this lab trained, and the settings that are known.

Only the settings that a log or its importer told are written. In memory the others hold defaults that stand for
nothing: whoever reads one asks `Declaration.told` first.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.study.dotted import flat, put, read, under
from gspo_lab.study.schema import Settings

ORIGIN = "origin"
"""The key of run.json, and the fact beside a run's start, that hold one."""


@dataclass(frozen=True)
class Origin:
    """The program that recorded a run, where that lay, and what was changed on the way here. All of it, and all that
    came with it, is taken on trust."""

    program: str
    source: str
    """A path or an address, for people."""
    version: str | None = None
    """The program's; None: not known."""
    converted: tuple[str, ...] = ()
    """What the records are not as the program wrote them in: "reward is train/reward", "rows are means of 10 steps"."""
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    """By the program's own name of a number its `meaning`, the `quantity` that it is one of several definitions of, and
    the lab's `column` that has the same; nothing where the name was not understood."""
    files: Mapping[str, str] = field(default_factory=dict, hash=False)
    """sha256 of each file that was read, by its name."""
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The dotted settings that the source itself told."""
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What of the program's own configuration two runs with the same settings share, by the program's dotted keys."""

    @property
    def recorder(self) -> str:
        """The program with its version."""
        return f"{self.program} {self.version or 'of unknown version'}"

    def to_json(self) -> dict[str, Any]:
        """Plain data, as run.json and the facts of a start have it."""
        own = {key: dict(found) for key in ("metrics", "files", "settings", "config") if (found := getattr(self, key))}
        return {
            "program": self.program,
            "source": self.source,
            "version": self.version,
            "converted": list(self.converted),
            **own,
        }

    @staticmethod
    def from_fact(data: Any, run: str) -> "Origin":
        """The same of the fact beside a run's start. LabError for other data."""
        try:
            return read(Origin, data)
        except TypeError as error:
            raise LabError(
                f"{run}: its journal names an origin that cannot be read ({error}): restore it from a copy, or move "
                "its folder away"
            ) from error


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
