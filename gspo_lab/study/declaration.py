"""`Declaration`: a study's content, which study.json holds and only this module reads and writes.

Its digest covers the part that is locked before the first step (`locked`). Beside that it holds the
reference ranges of counterfactual clipping, the commands, and every later edit.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Self

from pydantic import FiniteFloat, ValidationError

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import (
    Integers,
    JsonMapping,
    JsonObject,
    OptionalFloat,
    OptionalText,
    Strings,
)
from gspo_lab.common.registry import one_line_error
from gspo_lab.study.dotted_keys import BAND, adapter, differing, flat
from gspo_lab.study.import_origin import known_part, with_placeholders
from gspo_lab.study.parent import Kind, Parent
from gspo_lab.study.schema import KEYS, Settings
from gspo_lab.study.tune import Tune, with_values
from gspo_lab.study.verdict_tables import ClaimTable, VerdictTable
from gspo_lab.training.objectives.ratios import RATIOS, RULES

LOCKED = (
    "name",
    "question",
    "seeds",
    "added",
    "verdict",
    "arms",
    "claims",
    "sweep",
    "tune",
    "parent",
    "waive",
    "recorded",
)
"""The keys of study.json that its digest covers."""
UNLOCKED = (
    "reference_bands",
    "comment",
    "commands",
    "created",
    "version",
    "edits",
    "superseded",
    "digest",
)
"""The other keys of study.json."""

Band = tuple[FiniteFloat, FiniteFloat]
"""How far below and above 1 a ratio is clipped."""


@dataclass(frozen=True)
class Arm:
    """One arm. `declared` are the dotted settings that its own table states, `settings` all of them
    resolved.

    In a sweep `of` names the arm without its swept value, and `dose` is that value. Of an imported
    arm only the dotted settings in `recorded_keys` were recorded; None: all are known.
    """

    name: str
    declared: Strings
    settings: Settings
    of: OptionalText = None
    dose: OptionalFloat = None
    recorded_keys: frozenset[str] | None = None

    @cached_property
    def resolved(self) -> JsonObject:
        """The settings as nested plain data: every key; of an imported arm those
        recorded.
        """
        return (
            self.settings.model_dump(mode="json")
            if self.recorded_keys is None
            else known_part(self.settings, self.recorded_keys)
        )

    @cached_property
    def flat_settings(self) -> JsonObject:
        """`resolved` by dotted keys."""
        return flat(self.resolved)

    def stating(self, values: JsonMapping) -> "Arm":
        """The arm with some dotted keys changed.

        It declares these keys, and those that change with them.
        """
        settings = with_values(self.settings, values)
        changed = differing(self.flat_settings, flat(settings.model_dump(mode="json")))
        return replace(
            self, declared=tuple(sorted({*self.declared, *values, *changed})), settings=settings
        )

    def to_json(self) -> JsonObject:
        """Plain data, as study.json has it under the arm's name."""
        swept = {} if self.of is None else {"of": self.of, "dose": self.dose}
        return {"declared": list(self.declared), "settings": self.resolved, **swept}


ArmsByName = Mapping[str, Arm]


@dataclass(frozen=True)
class Sweep:
    """One setting, by its dotted key, and its values in rising order."""

    key: str
    doses: tuple[float, ...]

    def to_json(self) -> JsonObject:
        """Plain data, as study.json has it."""
        return {"key": self.key, "doses": list(self.doses)}


@dataclass(frozen=True)
class Edit:
    """A change by a later start, with its time."""

    at: str = ""
    what: str = ""

    def __str__(self) -> str:
        return f"{self.at} {self.what}".strip()


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """A question, arms, seeds and the rule of the verdict.

    `edits` are changes by later starts, `commands` the arguments of `gspo-lab run` of all starts.
    `digest` is the one with which study.json was locked, `content_digest` that of its present
    content. They differ if another program edited the file. None: not locked, or never written.
    """

    name: str
    question: str
    arms: dict[str, Arm]
    seeds: Integers
    verdict: VerdictTable
    added: Integers = ()
    """The seeds added after the first step, which never change the verdict."""
    claims: tuple[ClaimTable, ...] = ()
    sweep: Sweep | None = None
    tune: Tune | None = None
    """How its arms choose some of their settings, and from the first step on the chosen ones."""
    parent: Parent | None = None
    """The study that it was derived from."""
    waived: dict[str, str] = field(default_factory=dict)
    """Waived lint errors: the lint's name and the author's reason."""
    reference_bands: dict[str, Band] = field(default_factory=dict)
    """Per rule ("grpo", "gspo") the range at which counterfactual clipping is counted in each arm.
    """
    recorded: Strings | None = None
    """In a study of imported runs the dotted settings recorded for all arms.

    None: gspo-lab trained the runs.
    """
    comment: str = field(default="", compare=False)
    commands: tuple[Strings, ...] = field(default=(), compare=False)
    created: str = ""
    version: str = ""
    edits: tuple[Edit, ...] = ()
    superseded: tuple[JsonObject, ...] = field(default=(), compare=False)
    """The whole locked content of earlier starts under which runs began."""
    digest: OptionalText = None
    content_digest: OptionalText = None

    @property
    def baseline(self) -> str:
        """The declared baseline, else the first arm."""
        return self.verdict.baseline or next(iter(self.arms))

    @property
    def arms_added(self) -> Strings:
        """The arms added after the first step, a sweep's further values among them."""
        if not self.superseded:
            return ()
        original = self.superseded[0].get("arms", {})
        return tuple(name for name in self.arms if name not in original)

    @property
    def not_grown(self) -> Strings:
        """Differences between the declarations under "superseded" that later starts cannot have
        made.

        A study grows only by arms, and by seeds that it names as added.
        """
        versions = [*self.superseded, self.locked()]
        odd = list(dict.fromkeys(chain.from_iterable(map(_not_grown, versions, versions[1:]))))
        if silent := [
            str(s) for s in self.seeds if s not in (*versions[0].get("seeds", ()), *self.added)
        ]:
            odd.append(f"seeds added, and not named as added: {', '.join(silent)}")
        return tuple(odd)

    @property
    def deciding(self) -> Integers:
        """The deciding seeds: those declared before the first step, up to the last look."""
        declared = tuple(seed for seed in self.seeds if seed not in self.added)
        return declared[: self.looks[-1]]

    @property
    def looks(self) -> Integers:
        """After how many declared seeds the study is judged: the declared looks, else after all
        seeds.
        """
        return tuple(self.verdict.looks or (len(self.seeds) - len(self.added),))

    @property
    def families(self) -> list[str]:
        """The arms' names; in a sweep without their doses."""
        return list(dict.fromkeys(arm.of or name for name, arm in self.arms.items()))

    @property
    def treatments(self) -> list[str]:
        """Every arm but the baseline; empty where the baseline is no arm (`run --arms`)."""
        if self.baseline not in self.arms:
            return []
        return [name for name in self.arms if name != self.baseline]

    @property
    def benches(self) -> list[str]:
        """The benchmarks' names, the same for all arms."""
        return [bench.name for bench in self.first_arm.settings.bench]

    @property
    def first_arm(self) -> Arm:
        """The arm that the study's file has first."""
        return next(iter(self.arms.values()))

    @property
    def primary(self) -> OptionalText:
        """The deciding benchmark: the declared one, else the first; None without a benchmark."""
        return self.verdict.primary or next(iter(self.benches), None)

    @property
    def has_verdict(self) -> bool:
        """Whether its runs give a verdict; those of trials, pilots and advice prepare another
        study.
        """
        return self.parent is None or self.parent.kind.has_verdict

    @property
    def original(self) -> OptionalText:
        """The study that it replicates."""
        if self.parent is None or self.parent.kind is not Kind.REPLICATION:
            return None
        return self.parent.study

    def derive(
        self,
        kind: Kind,
        arms: Iterable[Arm],
        seeds: Iterable[int],
        overrides: JsonMapping | None = None,
        *,
        detail: object = "",
        **changes: Any,
    ) -> Self:
        """A study made from this one, with no history. `detail` ends its name, `overrides` are
        dotted settings of all arms.
        """
        derived = [arm.stating(overrides) if overrides else arm for arm in arms]
        history: JsonObject = {
            "added": (),
            "commands": (),
            "created": "",
            "edits": (),
            "superseded": (),
            "digest": None,
            "content_digest": None,
            "reference_bands": reference_bands([arm.settings for arm in derived]),
        }
        return replace(
            self,
            name=kind.study_name(self.name, detail),
            parent=Parent(self.name, kind, identity(self)),
            arms={arm.name: arm for arm in derived},
            seeds=tuple(seeds),
            **history | changes,
        )

    def is_known(self, arm: str, key: str) -> bool:
        """Whether an arm's setting is known; logs of imported runs record only some."""
        return self.recorded is None or key in self.recorded or key in self.arms[arm].declared

    def locked(self) -> JsonObject:
        """The content that is locked before the first step, as plain data."""
        words = {"names": self.verdict.names, "chosen": self.verdict.chosen}
        words = {key: value for key, value in words.items() if value is not None}
        optional = {
            "added": list(self.added),
            "sweep": self.sweep and self.sweep.to_json(),
            "tune": self.tune and self.tune.model_dump(mode="json"),
            "parent": self.parent and vars(self.parent),
            "waive": self.waived,
            "claims": [claim.model_dump(mode="json") for claim in self.claims],
        }
        return {
            "name": self.name,
            "question": self.question,
            "seeds": list(self.seeds),
            "verdict": self.verdict.model_dump(mode="json") | words,
            "arms": {name: arm.to_json() for name, arm in self.arms.items()},
            **{key: value for key, value in optional.items() if value},
            **({} if self.recorded is None else {"recorded": list(self.recorded)}),
        }

    def to_json(self) -> JsonObject:
        """The content of study.json, with the digest of its locked part."""
        locked = self.locked()
        return {
            **locked,
            "reference_bands": {rule: list(band) for rule, band in self.reference_bands.items()},
            "comment": self.comment,
            "commands": [list(command) for command in self.commands],
            "created": self.created,
            "version": self.version,
            "edits": [vars(edit) for edit in self.edits],
            **({"superseded": list(self.superseded)} if self.superseded else {}),
            "digest": digest(locked),
        }

    @staticmethod
    def parse(data: Any, where: object) -> "Declaration":
        """The declaration in study.json's content. LabError, which begins with `where`, for other
        content.
        """
        if unknown := sorted(set(data) - {*LOCKED, *UNLOCKED} if isinstance(data, dict) else ()):
            raise LabError(
                f"{where} has the unknown key '{unknown[0]}'; remove it, or restore the file from a"
                " copy"
            )
        try:
            plain = {key: value for key, value in data.items() if value is not None}
            plain |= {
                "arms": {
                    name: _plain_arm(name, entry, plain.get("recorded"))
                    for name, entry in data["arms"].items()
                }
            }
            plain |= {"waived": plain.get("waive", {}), "tune": plain.get("tune") or None}
            declared: Declaration = adapter(Declaration).validate_json(
                json.dumps(plain), strict=True
            )
            if not declared.arms or not declared.seeds:
                raise ValueError("without arms or seeds")
            return replace(declared, content_digest=digest(locked_of(data)))
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            OverflowError,
            RecursionError,
        ) as error:
            raise LabError(
                f"{where} is no study of this lab ({one_line_error(error):.200}): restore it from"
                " a copy, or move its folder away"
            ) from error


def _plain_arm(name: str, data: JsonMapping, recorded: Iterable[str] | None) -> JsonObject:
    """An arm of study.json with its name, and where the study was imported with all settings and
    the known ones.
    """
    if recorded is None:
        return {**data, "name": name, "recorded_keys": None}
    return {
        **data,
        "name": name,
        "settings": with_placeholders(data["settings"]),
        "recorded_keys": [*recorded, *data["declared"]],
    }


def _not_grown(earlier: JsonMapping, later: JsonMapping) -> Iterator[str]:
    """The changes from one declaration of a study to a later one that are not growth."""
    for key, unit in (("seeds", "seeds"), ("added", "added seeds"), ("arms", "arms")):
        if removed := [
            str(value) for value in earlier.get(key, ()) if value not in later.get(key, ())
        ]:
            yield f"{unit} taken away: {', '.join(removed)}"
    try:
        claims = [
            list(map(ClaimTable.model_validate, version.get("claims", ())))
            for version in (earlier, later)
        ]
        rules = [
            VerdictTable.model_validate(version["verdict"]).model_dump()
            for version in (earlier, later)
        ]
    except (KeyError, TypeError, ValidationError):
        yield "an earlier declaration that holds no verdict or claims"
        return
    if claims[0] != claims[1]:
        yield "other claims"
    names = earlier["verdict"].get("names")
    if names is not None and names != later["verdict"].get("names"):
        yield f"other names of the contrast's sides than {' and '.join(map(str, names))}"
    if rules[0] != rules[1]:
        yield "another rule of the verdict"


def locked_of(data: JsonMapping) -> JsonObject:
    """The part of study.json's content that its digest covers."""
    return {key: data[key] for key in LOCKED if key in data}


def rule_of(settings: Settings) -> str:
    """The ratio rule that these settings follow."""
    return RATIOS[settings.objective.importance_sampling_level].rule


def reference_bands(settings: Iterable[Settings]) -> dict[str, Band]:
    """Per rule the range of the first arm that clips by it, else the paper's; the same for all
    arms.
    """
    bands = {rule: ratio.band for rule, ratio in RULES.items()}
    for arm in reversed(list(settings)):
        if arm.objective.policy_loss == "clip":
            bands[rule_of(arm)] = arm.objective.clip_range
    return bands


def digest(data: Any) -> str:
    """sha256 of canonical JSON."""
    return hashlib.sha256(
        json.dumps(data, sort_keys=True, separators=(",", ":"), default=str).encode()
    ).hexdigest()


def identity(declared: Declaration) -> str:
    """The digest of a study's content: each arm's settings and the verdict's rule.

    Name, seeds, date, question, claims and waivers do not count, nor do the paths and contents of
    files that it names. Equal digests mean the same study.
    """
    return digest(_content(declared))


def same_content(declaration: Declaration, other: Declaration) -> bool:
    """Whether two studies are executions of the same content; never where a study prepares another
    one, or was imported: logs never record all settings.
    """
    comparable = all(study.has_verdict and study.recorded is None for study in (declaration, other))
    return comparable and not differences(declaration, other)


def _content(declared: Declaration) -> JsonObject:
    """The content of a study: dotted key -> value."""
    verdict = {
        **declared.verdict.model_dump(mode="json"),
        "baseline": declared.baseline,
        "primary": declared.primary,
    }
    sweep = None if declared.sweep is None else declared.sweep.to_json()
    content = {**flat(verdict, "verdict"), **flat(sweep, "sweep")}
    for name, arm in declared.arms.items():
        content |= {f"arm.{name}.{key}": value for key, value in _outcome_settings(arm)}
    return content


def differences(declaration: Declaration, other: Declaration) -> list[str]:
    """The keys in which the contents of two studies differ; a key that differs in every arm is
    named once.
    """
    keys = differing(_content(declaration), _content(other))
    # Names stand in the answer's sentence, and exchanged ones turn it; formulas say the same.
    names = declaration.verdict.names, other.verdict.names
    if None not in names and names[0] != names[1]:
        keys.append("verdict.names")
    arms = declaration.arms.keys() | other.arms.keys()
    if declaration.arms.keys() != other.arms.keys():
        return ["arms", *(key for key in keys if not key.startswith("arm."))]
    bare = {
        key: key.split(".", 2)[2] if key.startswith("arm.") and "@" not in key else key
        for key in keys
    }
    everywhere = {name for name in bare.values() if list(bare.values()).count(name) == len(arms)}
    return list(dict.fromkeys(name if name in everywhere else key for key, name in bare.items()))


def _outcome_settings(arm: Arm) -> Iterator[tuple[str, Any]]:
    settings = arm.flat_settings
    piloted = BAND if settings.get("objective.clip") == "calibrated" else ()
    anywhere = [name for name, key in KEYS.items() if key.anywhere]
    yield from ((key, value) for key, value in settings.items() if key not in (*anywhere, *piloted))
