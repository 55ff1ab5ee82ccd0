"""Build the declaration (study.json) of imported runs: their stated settings; all other settings
are unknown.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, product
from pathlib import Path

from gspo_lab import __version__
from gspo_lab.common.atomic_files import read_json
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import STUDY
from gspo_lab.common.plain_data import JsonMapping, JsonObject, OptionalText
from gspo_lab.common.registry import nearest
from gspo_lab.exchange.importers.convert import Conversion
from gspo_lab.study.declaration import Arm, Declaration, Edit
from gspo_lab.study.dotted_keys import flat, set_dotted
from gspo_lab.study.import_origin import with_placeholders
from gspo_lab.study.load import NAMED, OBJECTIVE_KEYS, claims_of, fits_as_name, validated
from gspo_lab.study.schema import Settings
from gspo_lab.study.settings_validation import broken_looks, broken_question, broken_rules
from gspo_lab.study.verdict_tables import ClaimTable, VerdictTable
from gspo_lab.training.objectives.presets import PRESETS

Conversions = Iterable[tuple[str, int, Conversion]]
"""Arm, seed and log of each run."""

ArmSettings = dict[OptionalText, JsonMapping]
"""Arm (None: all arms) -> dotted settings."""

OBJECTIVE = "objective"
LEVEL = "objective.importance_sampling_level"
PRESET = "objective.preset"
DECIDED = ("question", "verdict", "claim")
"""Top-level keys beside settings and arms."""


@dataclass(frozen=True)
class StatedStudy:
    """What a person states about a study: its question, its rule, and per arm (None: all arms)
    dotted settings.
    """

    name: str
    question: OptionalText = None
    verdict: VerdictTable | None = None
    claims: tuple[ClaimTable, ...] = ()
    settings: Mapping[OptionalText, JsonMapping] | None = None

    def of(self, arm: str) -> JsonObject:
        """The stated settings of an arm and of all arms."""
        statement = self.settings or {}
        return {**statement.get(None, {}), **statement.get(arm, {})}


def parse_stated_study(raw: JsonMapping, name: str, where: object) -> StatedStudy:
    """Parse the tables of a TOML file except those that name logs.

    LabError with a line per mistake.
    """
    problems: list[str] = []
    if not fits_as_name(name):
        problems.append(
            f"a study cannot be named '{name}': {NAMED}; rename the file or give --study"
        )
    rule = raw.get("verdict")
    verdict = None if rule is None else validated(VerdictTable, rule, "verdict", problems)
    claims = claims_of(raw.get("claim", []), problems)
    question = raw.get("question")
    if question is not None and (not isinstance(question, str) or not question.strip()):
        problems.append("question: text")
    tables = raw.get("arm", {})
    if not isinstance(tables, dict) or not all(
        isinstance(table, dict) for table in tables.values()
    ):
        problems.append("arm: tables, each headed [arm.NAME]")
        tables = {}
    shared = {key: value for key, value in raw.items() if key not in (*DECIDED, "arm")}
    settings: ArmSettings = {None: dotted(shared)}
    settings |= {arm: dotted(table) for arm, table in tables.items()}
    for arm in tables:
        if not fits_as_arm(arm):
            problems.append(f"arm.{arm}: {NAMED}")
    _arms(settings, list(tables) or ["all"], [], problems)
    _raise(where, problems)
    return StatedStudy(name, question and question.strip(), verdict, claims, settings)


def fits_as_arm(name: str) -> bool:
    """Whether an arm can have this name; a sweep's value (`gspo@0.0002`) is allowed."""
    return fits_as_name(name.replace("@", "-", 1))


def dotted(table: JsonMapping) -> JsonObject:
    """A table's settings by dotted keys.

    An arm's table holds the objective's keys without their prefix.
    """
    settings: JsonObject = {}
    for key, value in flat(table).items() if table else ():
        name = f"{OBJECTIVE}.{key}" if key in OBJECTIVE_KEYS else key
        name = PRESET if key == OBJECTIVE else name
        settings[name] = value
        if name == PRESET and value in PRESETS:
            settings.setdefault(LEVEL, PRESETS[value].importance_sampling_level)
    return settings


def existing_import(runs: Path, name: str) -> Declaration:
    """The declaration of earlier imports; it has no arms before the first one.

    LabError if the lab's workers trained a study of that name.
    """
    file = runs / name / STUDY
    content = read_json(file)
    if content is None:
        return Declaration(
            name=name, question=usual_question(()), arms={}, seeds=(), verdict=VerdictTable()
        )
    declared = Declaration.parse(content, file)
    if declared.recorded is None:
        raise LabError(
            f"{file.parent} holds a study that was run here: give the import another --study"
        )
    return declared


def earlier_settings(declared: Declaration) -> ArmSettings:
    """Per arm the settings that earlier imports stated."""
    values = {name: arm.flat_settings for name, arm in declared.arms.items()}
    return {
        name: {key: values[name].get(key) for key in (*(declared.recorded or ()), *arm.declared)}
        for name, arm in declared.arms.items()
    }


def without_replaced(declared: Declaration, imported: Collection[tuple[str, int]]) -> Declaration:
    """The declaration of the runs that stay: without arms if this import replaces all of them, and
    no answers that came by themselves.
    """
    has_answers = any(
        bench.problems
        for bench in chain.from_iterable(arm.settings.bench for arm in declared.arms.values())
    )
    if has_answers or not set(product(declared.arms, declared.seeds)) <= set(imported):
        return declared
    return replace(declared, arms={}, seeds=(), recorded=None)


def declaration(
    earlier: Declaration,
    statement: StatedStudy,
    conversions: Conversions,
    run_names: str,
) -> Declaration:
    """The study with these runs. LabError if they contradict each other or an earlier import."""
    runs = list(conversions)
    arms = list(dict.fromkeys((*earlier.arms, *(arm for arm, _, _ in runs))))
    settings = _settings_of(arms, earlier, statement, runs)
    benches = _benches(earlier, [converted for _, _, converted in runs])
    problems: list[str] = []
    resolved = _arms(settings, arms, benches, problems)
    seeds = tuple(sorted({*earlier.seeds, *(seed for _, seed, _ in runs)}))
    verdict = statement.verdict or earlier.verdict
    claims = statement.claims or earlier.claims
    _check_unit(earlier, statement, verdict, runs, benches)
    if earlier.arms and verdict != earlier.verdict:
        problems.append(
            "verdict: another rule than the one that the study was imported with; give it another"
            " name"
        )
    if resolved:
        broken = broken_rules(resolved, verdict, resolved)
        broken += broken_looks(verdict.looks, len(seeds))
        problems += [line for line in broken if line.startswith(("bench", "verdict"))]
    if not earlier.arms or claims != earlier.claims:  # an earlier import's claims stay valid
        problems += broken_question(verdict, [claim.name for claim in claims])
    _raise(statement.name, problems)
    shared = set.intersection(*map(set, settings.values()))
    same = {key for key in shared if len({repr(settings[arm][key]) for arm in arms}) == 1}
    has_usual_question = not earlier.arms or earlier.question == usual_question(earlier.arms)
    usual = usual_question(arms) if has_usual_question else earlier.question
    time = datetime.now(UTC).isoformat(timespec="seconds")
    declared = Declaration(
        name=statement.name,
        question=statement.question or usual,
        arms={
            name: replace(arm, declared=tuple(sorted(settings[name].keys() - same)))
            for name, arm in resolved.items()
        },
        seeds=seeds,
        verdict=verdict,
        claims=claims,
        recorded=tuple(sorted(same)),
        created=earlier.created or time,
        version=__version__,
        edits=earlier.edits,
    )
    if earlier.arms and declared.locked() != earlier.locked():
        declared = replace(declared, edits=(*earlier.edits, Edit(time, f"imported: {run_names}")))
    return declared


def _raise(name: object, problems: list[str]) -> None:
    """LabError with a line per mistake, if there is one."""
    if len(problems) == 1:
        raise LabError(f"{name}: {problems[0]}")
    if problems:
        raise LabError(f"{name}: {len(problems)} mistakes", details=tuple(problems))


def _settings_of(
    arms: Iterable[str],
    earlier_declaration: Declaration,
    statement: StatedStudy,
    runs: Conversions,
) -> ArmSettings:
    """Per arm the settings that earlier imports, the person and the logs state."""
    earlier = earlier_settings(earlier_declaration)
    settings: ArmSettings = {}
    for arm in arms:
        settings[arm] = _merge_settings(
            arm, earlier.get(arm, {}), statement.of(arm), "the study says"
        )
    for arm, seed, converted in runs:
        who = f"the log of seed {seed} says"
        settings[arm] = _merge_settings(arm, settings[arm], converted.settings, who)
    return settings


def _check_unit(
    earlier: Declaration,
    statement: StatedStudy,
    verdict: VerdictTable,
    runs: Conversions,
    benches: list[JsonObject],
) -> None:
    """LabError if the deciding scores exceed 1 (percentages, for example) and no margin in their
    unit was stated.
    """
    usual = VerdictTable().margin
    has_margin = statement.verdict is not None and "margin" in statement.verdict.model_fields_set
    if has_margin or earlier.verdict.margin != usual or not benches:
        return
    primary = verdict.primary or benches[0]["name"]
    largest = max((converted.largest.get(primary, 0.0) for _, _, converted in runs), default=0.0)
    if largest > 1:
        raise LabError(
            f"{statement.name}: scores of {primary} reach {largest:g}, and the usual margin of"
            f" {usual:g} is of shares from 0 to 1: divide percentages by 100; of another scale say"
            " the margin, --set verdict.margin=0.5"
        )


def usual_question(arms: Iterable[str]) -> str:
    """The question of a study that states none."""
    names = list(arms)
    verb = "does" if len(names) == 1 else "do"
    return f"How {verb} {' and '.join(names)} compare, as logged?"


def _merge_settings(arm: str, settings: JsonMapping, new: JsonMapping, who: str) -> JsonObject:
    """Both tables. LabError if `new`, which `who` states, contradicts `settings`."""
    odd = [key for key in settings.keys() & new.keys() if settings[key] != new[key]]
    if odd:
        key = min(odd)
        raise LabError(
            f"arm {arm}: {key} is {settings[key]!r}, and {who} {new[key]!r}; make two arms of it,"
            " or mend it"
        )
    return {**settings, **new}


def _benches(earlier: Declaration, runs: Iterable[Conversion]) -> list[JsonObject]:
    problems: dict[str, int] = {}
    for arm in earlier.arms.values():
        problems |= {bench.name: bench.problems or 0 for bench in arm.settings.bench}
    for converted in runs:
        for name in converted.benches:
            problems[name] = max(problems.get(name, 0), len(converted.problems.get(name, ())))
    return [
        {"name": name, "problems": count} if count else {"name": name}
        for name, count in problems.items()
    ]


def _arms(
    settings: Mapping[OptionalText, JsonMapping],
    names: Iterable[str],
    benches: list[JsonObject],
    problems: list[str],
) -> dict[str, Arm]:
    """Arms whose known settings are the stated ones."""
    arms: dict[str, Arm] = {}
    for name in names:
        arm_settings = {**settings.get(None, {}), **settings.get(name, {})}
        raw: JsonObject = {"bench": benches}
        for key, value in arm_settings.items():
            set_dotted(raw, key, value)
        preset = arm_settings.get(PRESET)
        if preset is not None and preset not in PRESETS:
            problems.append(
                f"arm.{name}: unknown objective {preset!r}{nearest(str(preset), PRESETS)}"
            )
        resolved = validated(Settings, with_placeholders(raw), f"arm.{name}", problems)
        if resolved is not None:
            arms[name] = Arm(name, (), resolved, recorded_keys=frozenset(arm_settings))
    return arms
