"""Two runs side by side, which of their differing settings their arms declare, and the result of a
check.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any

from gspo_lab.analysis.matching.trace import Trace
from gspo_lab.study import Arm, flat
from gspo_lab.study.dotted_keys import BAND, differing, under
from gspo_lab.study.import_origin import ABSENT


class Match(StrEnum):
    """What a check found of two runs or of a record, the worst first."""

    UNDECLARED = "differs undeclared"
    UNKNOWN = "not recorded"
    NOT_VERIFIED = "not verified"
    DECLARED = "differs as declared"
    EQUAL = "equal"


Fault = tuple[str, str]
"""An undeclared difference or a broken record: its short name, and a sentence about it."""


@dataclass(frozen=True)
class Check:
    """The result of one comparison. `parts` names what differs (dotted keys, packages, steps)."""

    name: str
    state: Match
    detail: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunPair:
    """Two runs of one seed, and the settings in which they differ: declared (`stated`) and
    undeclared ones.
    """

    left: Trace
    right: Trace
    stated: tuple[str, ...]
    unstated: tuple[str, ...]

    @property
    def traces(self) -> tuple[Trace, Trace]:
        """Both runs."""
        return self.left, self.right

    @property
    def imported(self) -> bool:
        """Whether another program recorded at least one of the runs."""
        return any(trace.recorder is not None for trace in self.traces)

    def declared_under(self, *names: str) -> list[str]:
        """The declared differences in one of the tables or keys `names`."""
        return [key for key in self.stated if under(key, names)]

    def setting_values(self, keys: Iterable[str]) -> str:
        """Settings of both runs as text."""
        unknown = ABSENT if self.imported else None
        left = self.left.settings
        right = self.right.settings
        pairs = ((key, left.get(key, unknown), right.get(key, unknown)) for key in keys)
        return "; ".join(f"{key}: {self.describe_values(a, b)}" for key, a, b in pairs)

    def describe_values(self, left: Any, right: Any) -> str:
        """Two values with the arms that they belong to."""
        return f"{format_value(left)} in {self.left.arm}, {format_value(right)} in {self.right.arm}"

    def missing_records(self, name: str, *recorded: bool, otherwise: str = "") -> Check:
        """A check that cannot be made, because a run recorded nothing (`recorded` per run), or as
        `otherwise` says.
        """
        arms = [trace.arm for trace, has in zip(self.traces, recorded, strict=True) if not has]
        return Check(
            name, Match.UNKNOWN, f"nothing recorded by {' and '.join(arms)}" if arms else otherwise
        )

    def same_graders(self, name: str, left: set[Any], right: set[Any]) -> Check:
        """Compare names and versions of graders. No declared setting excuses a different grader."""
        if not left or not right:
            return self.missing_records(name, bool(left), bool(right))
        if left == right:
            return Check(name, Match.EQUAL, join_names(sorted(left)))
        detail = self.describe_values(join_names(sorted(left)), join_names(sorted(right)))
        return Check(name, Match.UNDECLARED, detail, tuple(sorted(left ^ right)))


OWN_RECORD = "own record"
"""The name of the check that only imported runs have."""


def run_pair(left: Trace, right: Trace, arms: Mapping[str, Arm]) -> RunPair:
    """Two traces, with their declared and undeclared differences of settings."""
    keys = differing(left.settings, right.settings)
    allowed = chain.from_iterable(arms[trace.arm].declared for trace in (left, right))
    stated = declared(keys, allowed, left.settings, right.settings)
    return RunPair(left, right, tuple(stated), tuple(key for key in keys if key not in stated))


def differs(
    name: str,
    faults: Sequence[Fault],
    reasons: Iterable[str] = (),
    limit: int | None = None,
    equal: str = "",
) -> Check:
    """The check of differences, which describes `limit` of them. Declared settings (`reasons`)
    explain them.

    `equal` describes the check without any difference.
    """
    if not faults:
        return Check(name, Match.EQUAL, equal)
    detail = first_few([sentence for _, sentence in faults], "; ", limit)
    parts = tuple(dict.fromkeys(part for part, _ in faults))
    keys = list(dict.fromkeys(reasons))
    if keys:
        return Check(name, Match.DECLARED, f"{detail} (declared: {join_names(keys)})", parts)
    return Check(name, Match.UNDECLARED, detail, parts)


def first_few(texts: Sequence[str], separator: str, limit: int | None) -> str:
    """The first `limit` texts, and how many more there are: a study may have a thousand runs."""
    hidden = len(texts) - limit if limit is not None else 0
    return separator.join([*texts[:limit], *([f"and {hidden} more"] if hidden > 0 else [])])


def declared(
    keys: Iterable[str], allowed: Iterable[str], left: Mapping[str, Any], right: Mapping[str, Any]
) -> list[str]:
    """Those of `keys` that `allowed` names, by the key or by its table.

    `left` and `right` are flat settings.
    """
    named = set(allowed)
    if "calibrated" in (left.get("objective.clip"), right.get("objective.clip")):
        named |= set(BAND)
    return [key for key in keys if under(key, named)]


def undeclared(left: Arm, right: Arm) -> list[str]:
    """The settings in which two arms differ although neither arm declares them."""
    a = flat(left.resolved)
    b = flat(right.resolved)
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
