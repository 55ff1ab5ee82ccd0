"""Two runs side by side: what their arms declare, and how a check says what it found."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from gspo_lab.matching.settings import declared, listed, shown
from gspo_lab.matching.trace import Trace
from gspo_lab.study import Arm
from gspo_lab.study.dotted import differing, under
from gspo_lab.study.origin import ABSENT
from gspo_lab.study.schema import KEYS

State = Literal["equal", "differs as declared", "differs undeclared", "not recorded", "not verified"]

EQUAL: State = "equal"
DECLARED: State = "differs as declared"
UNDECLARED: State = "differs undeclared"
UNKNOWN: State = "not recorded"
NOT_VERIFIED: State = "not verified"


@dataclass(frozen=True)
class Check:
    """One thing compared. `parts` names what differs (dotted keys, packages, steps); empty where nothing does."""

    name: str
    state: State
    detail: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sides:
    """Two runs of one seed. `stated` are the declared settings in which they really differ."""

    one: Trace
    other: Trace
    stated: tuple[str, ...]
    unstated: tuple[str, ...]

    @property
    def imported(self) -> bool:
        """Whether another program recorded either."""
        return self.one.recorder is not None or self.other.recorder is not None

    def excuses(self, *names: str) -> list[str]:
        """The declared differences in one of the tables or keys `names`."""
        return [key for key in self.stated if under(key, names)]

    def values(self, keys: Iterable[str]) -> str:
        """Settings in both runs, for a reader."""
        unknown = ABSENT if self.imported else None
        one, other = self.one.settings, self.other.settings
        return "; ".join(f"{key}: {self.told(one.get(key, unknown), other.get(key, unknown))}" for key in keys)

    def told(self, one: Any, other: Any) -> str:
        """Two values with the arms that they are of, for a reader."""
        return f"{shown(one)} in {self.one.arm}, {shown(other)} in {self.other.arm}"

    def silent(self, *known: bool) -> str:
        """Who recorded nothing: `known` says of each side whether it did."""
        names = [trace.arm for trace, has in zip((self.one, self.other), known, strict=True) if not has]
        return f"nothing recorded by {' and '.join(names)}"

    def same_graders(self, name: str, one: set[Any], other: set[Any]) -> Check:
        """A check on the names and versions of graders; no setting of an arm excuses another one."""
        if not one or not other:
            return Check(name, UNKNOWN, self.silent(bool(one), bool(other)))
        if one == other:
            return Check(name, EQUAL, listed(sorted(one)))
        said = self.told(listed(sorted(one)), listed(sorted(other)))
        return Check(name, UNDECLARED, said, tuple(sorted(one ^ other)))


OWN_RECORD = "own record"
"""The check that only runs have which another program recorded."""

STARTING = tuple(name for name, key in KEYS.items() if key.acts == "start")
"""Settings that, declared, let two runs start from different models; a sweep may vary any."""
SAMPLING = tuple(name for name, key in KEYS.items() if key.acts in ("start", "sampling"))
"""Settings that, declared, let two runs sample different first responses."""


def sides(one: Trace, other: Trace, arms: Mapping[str, Arm]) -> Sides:
    """Two traces with what the study's arms declare of them."""
    keys = differing(one.settings, other.settings)
    allowed = chain.from_iterable(arms[trace.arm].declared for trace in (one, other))
    stated = declared(keys, allowed, one.settings, other.settings)
    return Sides(one, other, tuple(stated), tuple(key for key in keys if key not in stated))


def differs(name: str, said: str, parts: tuple[str, ...], excuses: Iterable[str]) -> Check:
    """A check that found a difference; it is as declared if one of the declared settings excuses it."""
    reasons = list(dict.fromkeys(excuses))
    if reasons:
        return Check(name, DECLARED, f"{said} (declared: {listed(reasons)})", parts)
    return Check(name, UNDECLARED, said, parts)
