"""Keys of a study, declared once: the base of all TOML tables, and the properties of a key beside
its type.

A field of a table is a key. Its `Field` holds default, bounds and meaning, a `Key` in its
annotation the rest.

    minibatches: Annotated[int, Key(cost=True, peers="trl verl")] = Field(4, ge=1,
    description="...")

Unread settings, a plan's pace, trials, certificates, engines' capabilities, importers and the
reference page all read `keys()`. There is no second list of keys.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from pydantic import BaseModel, ConfigDict, Field

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
"""A valid folder name; names that begin with another character are reserved for gspo-lab."""

MANY = 10**9
HUGE = 1e9
"""More than any count, and any number that multiplies, may sensibly be: float32's arithmetic stays
finite below.
"""

COLDEST = 1e-3
"""The lowest temperature above 0: logits divided by less leave float32's range."""

Name = Annotated[str, Field(pattern=NAME)]
Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1, le=MANY)]
Whole = Annotated[int, Field(ge=0, le=MANY)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Share = Annotated[float, Field(ge=0, le=1)]
Dtype = Literal["float32", "bfloat16", "float16"]
Replay = Literal["none", "old-policy", "rollout"]

Arms = Literal["study", "vary", "choose"]
"""Whether a key is the whole study's, may vary from arm to arm, or may even be chosen by an arm in
`[tune]`.
"""

Affects = Literal["start", "sampling", "ratio", "update"]
"""What a key affects first: the starting model, the responses, the importance ratio alone, or the
update.
"""


class Table(BaseModel):
    """A TOML table: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)

    def replace(self, **values: Any) -> Self:
        """The table with other values, which are not checked."""
        return self.model_copy(update=values)


class Read(NamedTuple):
    """When a run reads a key: where `holds` is true of its settings. Elsewhere the key "does
    nothing `otherwise`"."""

    holds: Callable[[Any], bool]
    otherwise: str
    """Half a sentence, formatted with the settings: "without advantage = 'gae'"."""


@dataclass(frozen=True, slots=True)
class Key:
    """The properties of a key. A key inside a table has the table's `read`, `arms` and `affects`
    unless it says its own."""

    read: Read | None = None
    """None: every run reads it."""
    arms: Arms | None = None
    affects: Affects | None = None
    cost: bool = False
    """Whether a step's time depends on it: a plan takes its pace from runs with equal values."""
    adds_forward_passes: bool = False
    """Whether it decides how many passes a step makes over the same responses, or through how much
    of a model.
    """
    expensive_values: Callable[[Any], bool] | None = None
    """Whether a value is among those that cost more; all values on one side cost the same."""
    anywhere: bool = False
    """Whether two executions of one study may differ in it: it is no part of the study's content.
    """
    peers: str = ""
    """The engines that obey the key, each with the key of that program's configuration that holds
    the same value, if one does: "trl=num_generations verl"."""

    @property
    def names(self) -> dict[str, str]:
        """The key's name in each engine; "" where the engine has no such key."""
        return {
            engine: name for engine, _, name in (peer.partition("=") for peer in self.peers.split())
        }


@cache
def keys(table: type[BaseModel]) -> Mapping[str, Key]:
    """Every dotted key of a table, with the keys of the tables inside it: `update`,
    `update.epochs`."""
    return dict(_keys(table, "", Key(arms="study", affects="update")))


def _keys(table: type[BaseModel], prefix: str, outer: Key) -> Iterator[tuple[str, Key]]:
    for name, entry in table.model_fields.items():
        key = next((data for data in entry.metadata if isinstance(data, Key)), Key())
        key = replace(
            key,
            read=key.read or outer.read,
            arms=key.arms or outer.arms,
            affects=key.affects or outer.affects,
        )
        yield f"{prefix}{name}", key
        if (inner := table_of(entry.annotation)) is not None:
            yield from _keys(inner, f"{prefix}{name}.", key)


def table_of(annotation: Any) -> type[BaseModel] | None:
    """The table that a key holds, itself or in a list; None for a plain value."""
    types = [part for part in (annotation, *get_args(annotation)) if isinstance(part, type)]
    return next((part for part in types if issubclass(part, BaseModel)), None)
