"""Build the declaration (study.json) of imported runs: their stated settings; all other settings
are unknown.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gspo_lab import __version__
from gspo_lab.common.atomic_files import read_json
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import STUDY
from gspo_lab.common.registry import nearest
from gspo_lab.exchange.importers.convert import Conversion
from gspo_lab.study.declaration import Arm, Declaration, Edit
from gspo_lab.study.dotted_keys import flat, set_dotted
from gspo_lab.study.import_origin import completed
from gspo_lab.study.load import NAMED, OBJECTIVE_KEYS, claims_of, fits_as_name, validated
from gspo_lab.study.schema import Settings
from gspo_lab.study.settings_validation import broken_looks, broken_question, broken_rules
from gspo_lab.study.verdict_tables import ClaimTable, VerdictTable
from gspo_lab.training.objectives.presets import PRESETS

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
    question: str | None = None
    verdict: VerdictTable | None = None
    claims: tuple[ClaimTable, ...] = ()
    settings: Mapping[str | None, Mapping[str, Any]] | None = None

    def of(self, arm: str) -> dict[str, Any]:
        """The stated settings of an arm and of all arms."""
        stated = self.settings or {}
        return {**stated.get(None, {}), **stated.get(arm, {})}


def parse_stated_study(raw: Mapping[str, Any], name: str, where: object) -> StatedStudy:
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
    settings: dict[str | None, Mapping[str, Any]] = {None: dotted(shared)}
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


def dotted(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table's settings by dotted keys.

    An arm's table holds the objective's keys without their prefix.
    """
    settings: dict[str, Any] = {}
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


def earlier_settings(declared: Declaration) -> dict[str | None, Mapping[str, Any]]:
    """Per arm the settings that earlier imports stated."""
    values = {name: flat(arm.resolved) for name, arm in declared.arms.items()}
    return {
        name: {key: values[name].get(key) for key in (*(declared.recorded or ()), *arm.declared)}
        for name, arm in declared.arms.items()
    }


def without_replaced(declared: Declaration, imported: Collection[tuple[str, int]]) -> Declaration:
    """The declaration of the runs that stay: without arms if this import replaces all of them, and
    no answers that came by themselves.
    """
    everything = {(arm, seed) for arm in declared.arms for seed in declared.seeds}
    benches = [bench for arm in declared.arms.values() for bench in arm.settings.bench]
    if not everything <= set(imported) or any(bench.problems for bench in benches):
        return declared
    return replace(declared, arms={}, seeds=(), recorded=None)


def declaration(
    before: Declaration, stated: StatedStudy, done: Iterable[tuple[str, int, Conversion]], news: str
) -> Declaration:
    """The study with these runs. LabError if they contradict each other or an earlier import."""
    runs = list(done)
    arms = list(dict.fromkeys((*before.arms, *(arm for arm, _, _ in runs))))
    settings = _settings_of(arms, before, stated, runs)
    benches = _benches(before, [converted for _, _, converted in runs])
    problems: list[str] = []
    resolved = _arms(settings, arms, benches, problems)
    seeds = tuple(sorted({*before.seeds, *(seed for _, seed, _ in runs)}))
    verdict = stated.verdict or before.verdict
    claims = stated.claims or before.claims
    _check_unit(before, stated, verdict, runs, benches)
    if before.arms and verdict != before.verdict:
        problems.append(
            "verdict: another rule than the one that the study was imported with; give it another"
            " name"
        )
    if resolved:
        broken = broken_rules(resolved, verdict, resolved)
        broken += broken_looks(verdict.looks, len(seeds))
        problems += [line for line in broken if line.startswith(("bench", "verdict"))]
    if not before.arms or claims != before.claims:  # an earlier import's claims stay valid
        problems += broken_question(verdict, [claim.name for claim in claims])
    _raise(stated.name, problems)
    shared = set.intersection(*map(set, settings.values()))
    same = {key for key in shared if len({repr(settings[arm][key]) for arm in arms}) == 1}
    has_usual_question = not before.arms or before.question == usual_question(before.arms)
    usual = usual_question(arms) if has_usual_question else before.question
    now = datetime.now(UTC).isoformat(timespec="seconds")
    declared = Declaration(
        name=stated.name,
        question=stated.question or usual,
        arms={
            name: replace(arm, declared=tuple(sorted(settings[name].keys() - same)))
            for name, arm in resolved.items()
        },
        seeds=seeds,
        verdict=verdict,
        claims=claims,
        recorded=tuple(sorted(same)),
        created=before.created or now,
        version=__version__,
        edits=before.edits,
    )
    if before.arms and declared.locked() != before.locked():
        declared = replace(declared, edits=(*before.edits, Edit(now, f"imported: {news}")))
    return declared


def _raise(name: object, problems: list[str]) -> None:
    """LabError with a line per mistake, if there is one."""
    if problems:
        mistakes = "mistake" if len(problems) == 1 else "mistakes"
        raise LabError(f"{name}: {len(problems)} {mistakes}", details=tuple(problems))


def _settings_of(
    arms: Iterable[str],
    before: Declaration,
    stated: StatedStudy,
    runs: Iterable[tuple[str, int, Conversion]],
) -> dict[str | None, Mapping[str, Any]]:
    """Per arm the settings that earlier imports, the person and the logs state."""
    earlier = earlier_settings(before)
    settings: dict[str | None, Mapping[str, Any]] = {}
    for arm in arms:
        settings[arm] = _merge_settings(arm, earlier.get(arm, {}), stated.of(arm), "the study says")
    for arm, seed, converted in runs:
        who = f"the log of seed {seed} says"
        settings[arm] = _merge_settings(arm, settings[arm], converted.settings, who)
    return settings


def _check_unit(
    before: Declaration,
    stated: StatedStudy,
    verdict: VerdictTable,
    runs: Iterable[tuple[str, int, Conversion]],
    benches: list[dict[str, Any]],
) -> None:
    """LabError if the deciding scores exceed 1 (percentages, for example) and no margin in their
    unit was stated.
    """
    usual = VerdictTable().margin
    has_margin = stated.verdict is not None and "margin" in stated.verdict.model_fields_set
    if has_margin or before.verdict.margin != usual or not benches:
        return
    primary = verdict.primary or benches[0]["name"]
    largest = max((converted.largest.get(primary, 0.0) for _, _, converted in runs), default=0.0)
    if largest > 1:
        raise LabError(
            f"{stated.name}: scores of {primary} reach {largest:g}, and the usual margin of"
            f" {usual:g} is of shares from 0 to 1: divide percentages by 100; of another scale say"
            " the margin, --set verdict.margin=0.5"
        )


def usual_question(arms: Iterable[str]) -> str:
    """The question of a study that states none."""
    names = list(arms)
    verb = "does" if len(names) == 1 else "do"
    return f"How {verb} {' and '.join(names)} compare, as logged?"


def _merge_settings(
    arm: str, known: Mapping[str, Any], new: Mapping[str, Any], who: str
) -> dict[str, Any]:
    """Both tables. LabError if `new`, which `who` states, contradicts `known`."""
    odd = [key for key in known.keys() & new.keys() if known[key] != new[key]]
    if odd:
        key = min(odd)
        raise LabError(
            f"arm {arm}: {key} is {known[key]!r}, and {who} {new[key]!r}; make two arms of it, or"
            " mend it"
        )
    return {**known, **new}


def _benches(before: Declaration, runs: Iterable[Conversion]) -> list[dict[str, Any]]:
    problems = {
        bench.name: bench.problems or 0
        for arm in before.arms.values()
        for bench in arm.settings.bench
    }
    for converted in runs:
        for name in converted.benches:
            problems[name] = max(problems.get(name, 0), len(converted.problems.get(name, ())))
    return [
        {"name": name, "problems": count} if count else {"name": name}
        for name, count in problems.items()
    ]


def _arms(
    settings: Mapping[str | None, Mapping[str, Any]],
    names: Iterable[str],
    benches: list[dict[str, Any]],
    problems: list[str],
) -> dict[str, Arm]:
    """Arms whose known settings are the stated ones."""
    arms: dict[str, Arm] = {}
    for name in names:
        known = {**settings.get(None, {}), **settings.get(name, {})}
        raw: dict[str, Any] = {"bench": benches}
        for key, value in known.items():
            set_dotted(raw, key, value)
        preset = known.get(PRESET)
        if preset is not None and preset not in PRESETS:
            problems.append(
                f"arm.{name}: unknown objective {preset!r}{nearest(str(preset), PRESETS)}"
            )
        resolved = validated(Settings, completed(raw), f"arm.{name}", problems)
        if resolved is not None:
            arms[name] = Arm(name, (), resolved, known=frozenset(known))
    return arms
