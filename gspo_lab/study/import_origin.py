"""Imported studies: `Origin`, the program that recorded a run, and the settings that are known.

Files hold only the settings that a log or its importer gives. In memory the remaining ones hold
meaningless defaults: call `Declaration.is_known` before you read one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping, JsonObject, Strings
from gspo_lab.study.dotted_keys import flat, read, set_dotted, under
from gspo_lab.study.schema import Settings

ORIGIN = "origin"
"""The key of run.json, and the fact beside a run's start, that hold one."""


@dataclass(frozen=True)
class Origin:
    """The program that recorded a run, the source, and the conversions.

    All of it is taken on trust.
    """

    program: str
    source: str
    """A path or an address, for people."""
    version: str | None = None
    """The program's; None: not known."""
    converted: Strings = ()
    """How the records differ from the program's: "reward is train/reward", "rows are means of 10
    steps".
    """
    metrics: Mapping[str, JsonMapping] = field(default_factory=dict, hash=False)
    """Each metric's `meaning`, the `quantity` that it defines, and the equal `column` of gspo-lab.

    Empty for an unknown name.
    """
    files: Mapping[str, str] = field(default_factory=dict, hash=False)
    """sha256 of each file that was read, by its name."""
    settings: JsonMapping = field(default_factory=dict, hash=False)
    """The dotted settings that the source states."""
    config: JsonMapping = field(default_factory=dict, hash=False)
    """The part of the program's configuration that runs with the same settings share, by its dotted
    keys.
    """

    @property
    def recorder(self) -> str:
        """The program with its version."""
        return f"{self.program} {self.version or 'of unknown version'}"

    def to_json(self) -> JsonObject:
        """Plain data, as run.json and the facts of a start have it."""
        details = ("metrics", "files", "settings", "config")
        return {
            "program": self.program,
            "source": self.source,
            "version": self.version,
            "converted": list(self.converted),
            **{key: dict(value) for key in details if (value := getattr(self, key))},
        }

    @staticmethod
    def from_fact(data: Any, run: str) -> "Origin":
        """The origin in the fact beside a run's start. LabError for other data."""
        try:
            return read(Origin, data)
        except TypeError as error:
            raise LabError(
                f"{run}: its journal names an origin that cannot be read ({error}): restore it from"
                " a copy, or move its folder away"
            ) from error


ABSENT = "not recorded"
"""Shown in place of an unknown value."""


def known_part(settings: Settings, keys: Collection[str]) -> JsonObject:
    """The settings under these dotted keys as nested plain data, with the benchmarks' names and
    sizes.
    """
    out: JsonObject = {}
    for key, value in flat(settings.model_dump(mode="json", exclude={"bench"})).items():
        if under(key, keys):
            set_dotted(out, key, value)
    benches = [{"name": bench.name, "problems": bench.problems} for bench in settings.bench]
    benches_without_none = [
        {key: value for key, value in bench.items() if value is not None} for bench in benches
    ]
    return {**out, **({"bench": benches_without_none} if benches_without_none else {})}


def filled(stored: JsonMapping) -> Settings:
    """These settings, nested plain data, over defaults. ValidationError for data that are none."""
    return Settings.model_validate(with_placeholders(stored))


def with_placeholders(stored: JsonMapping) -> JsonObject:
    """Stored settings with placeholders for the keys that have no default."""
    out = {"model": ABSENT, "task": {}, **stored}
    return out | (
        {"task": {"name": ABSENT, **out["task"]}} if isinstance(out["task"], Mapping) else {}
    )
