"""Two runs side by side, which of their differing settings their arms declare, and the result of a
check.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any

from gspo_lab.analysis.matching.trace import Trace
from gspo_lab.common.plain_data import JsonMapping, Strings
from gspo_lab.common.text import first_few
from gspo_lab.study import Arm, ArmsByName
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
    parts: Strings = ()


@dataclass(frozen=True)
class RunPair:
    """Two runs of one seed, and the settings in which they differ: declared (`declared_keys`) and
    undeclared ones.
    """

    run_a: Trace
    run_b: Trace
    declared_keys: Strings
    undeclared_keys: Strings

    @property
    def traces(self) -> tuple[Trace, Trace]:
        """Both runs."""
        return self.run_a, self.run_b

    @property
    def imported(self) -> bool:
        """Whether another program recorded at least one of the runs."""
        return any(trace.recorder is not None for trace in self.traces)

    def declared_under(self, *names: str) -> list[str]:
        """The declared differences in one of the tables or keys `names`."""
        return [key for key in self.declared_keys if under(key, names)]

    def setting_values(self, keys: Iterable[str]) -> str:
        """Settings of both runs as text."""
        unknown = ABSENT if self.imported else None
        settings_a = self.run_a.settings
        settings_b = self.run_b.settings
        pairs = ((key, settings_a.get(key, unknown), settings_b.get(key, unknown)) for key in keys)
        return "; ".join(f"{key}: {self.describe_values(a, b)}" for key, a, b in pairs)

    def setting_faults(self, keys: Iterable[str]) -> list[Fault]:
        """A fault for each of these settings."""
        return [(key, self.setting_values([key])) for key in keys]

    def describe_values(self, value_a: Any, value_b: Any) -> str:
        """Two values with the arms that they belong to."""
        text_a = f"{format_value(value_a)} in {self.run_a.arm}"
        return f"{text_a}, {format_value(value_b)} in {self.run_b.arm}"

    def gap(self, name: str, *recorded: object) -> Check | None:
        """The check that cannot be made, because a run recorded nothing (`recorded` per run); None
        where both recorded something.
        """
        arms = [trace.arm for trace, has in zip(self.traces, recorded, strict=True) if not has]
        if not arms:
            return None
        return Check(name, Match.UNKNOWN, f"nothing recorded by {' and '.join(arms)}")

    def compare(
        self,
        name: str,
        recorded: Callable[[Trace], JsonMapping],
        reasons: Iterable[str] = (),
        suffix: str = "",
    ) -> Check:
        """Compare what both runs recorded, key by key; declared settings (`reasons`) explain a
        difference. `suffix` stands behind a key in sentences.
        """
        values_a = recorded(self.run_a)
        values_b = recorded(self.run_b)
        if gap := self.gap(name, values_a, values_b):
            return gap
        faults = []
        for key in differing(values_a, values_b):
            values = self.describe_values(values_a.get(key), values_b.get(key))
            faults.append((key, f"{key}{suffix}: {values}"))
        return differs(name, faults, reasons, equal=_value_list(name, values_a))

    def same_graders(self, name: str, graders: Callable[[Trace], set[Any]]) -> Check:
        """Compare names and versions of graders. No declared setting excuses a different grader."""
        graders_a = graders(self.run_a)
        graders_b = graders(self.run_b)
        if gap := self.gap(name, graders_a, graders_b):
            return gap
        text = join_names(sorted(graders_a))
        if graders_a == graders_b:
            return Check(name, Match.EQUAL, text)
        detail = self.describe_values(text, join_names(sorted(graders_b)))
        return Check(name, Match.UNDECLARED, detail, tuple(sorted(graders_a ^ graders_b)))


def _value_list(name: str, values: JsonMapping) -> str:
    """Recorded values as text. The key that has the check's own name goes without saying."""
    texts = []
    for key, value in sorted(values.items()):
        label = "" if key == name.replace(" ", "_") else f"{key} "
        texts.append(label + format_value(value))
    return ", ".join(texts)


OWN_RECORD = "own record"
"""The name of the check that only imported runs have."""


def run_pair(run_a: Trace, run_b: Trace, arms: ArmsByName) -> RunPair:
    """Two traces, with their declared and undeclared differences of settings."""
    keys = differing(run_a.settings, run_b.settings)
    allowed = chain.from_iterable(arms[trace.arm].declared for trace in (run_a, run_b))
    declared_keys = declared(keys, allowed, run_a.settings, run_b.settings)
    return RunPair(
        run_a, run_b, tuple(declared_keys), tuple(key for key in keys if key not in declared_keys)
    )


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
    detail = first_few([sentence for _, sentence in faults], limit, "; ")
    differing = tuple(dict.fromkeys(part for part, _ in faults))
    keys = list(dict.fromkeys(reasons))
    if keys:
        return Check(name, Match.DECLARED, f"{detail} (declared: {join_names(keys)})", differing)
    return Check(name, Match.UNDECLARED, detail, differing)


def other_values(values: JsonMapping, expected: JsonMapping, word: str) -> Iterator[Fault]:
    """The keys whose values are not as `expected`, each with both values; `word` names the expected
    one: "rate = 2, before 1".
    """
    for key in differing(values, expected):
        text = f"{key} = {format_value(values.get(key))}"
        yield key, f"{text}, {word} {format_value(expected.get(key))}"


def declared(
    keys: Iterable[str],
    allowed: Iterable[str],
    settings_a: JsonMapping,
    settings_b: JsonMapping,
) -> list[str]:
    """The `keys` that `allowed` names, by the key or by its table.

    `settings_a` and `settings_b` are flat settings.
    """
    names = set(allowed)
    if "calibrated" in (settings_a.get("objective.clip"), settings_b.get("objective.clip")):
        names |= set(BAND)
    return [key for key in keys if under(key, names)]


def undeclared(arm_a: Arm, arm_b: Arm) -> list[str]:
    """The settings in which two arms differ although neither arm declares them."""
    a = arm_a.flat_settings
    b = arm_b.flat_settings
    keys = differing(a, b)
    declared_keys = declared(keys, [*arm_a.declared, *arm_b.declared], a, b)
    return [key for key in keys if key not in declared_keys]


def join_names(names: Iterable[Any]) -> str:
    """Names with commas between them; "nothing" for no names."""
    return ", ".join(str(name) for name in names) or "nothing"


def format_value(value: Any) -> str:
    """A recorded value as text; of a sha256 digest only the first twelve digits."""
    if value is None:
        return "unset"
    text = f"{value:.9g}" if isinstance(value, float) else str(value)
    return text[:12] if len(text) == 64 and set(text) <= set("0123456789abcdef") else text
