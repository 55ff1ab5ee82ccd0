"""What a study of imported runs declares: the arms as they were told, and of every other setting that nobody did."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gspo_lab import __version__
from gspo_lab.errors import LabError
from gspo_lab.files import read_json
from gspo_lab.importers.convert import Conversion
from gspo_lab.importers.wanted import fits_as_arm
from gspo_lab.layout import STUDY
from gspo_lab.objectives.presets import PRESETS
from gspo_lab.registry import nearest
from gspo_lab.study.declaration import Arm, Declaration, Edit
from gspo_lab.study.dotted import flat, set_dotted
from gspo_lab.study.judging import ClaimTable, VerdictTable
from gspo_lab.study.load import NAMED, OBJECTIVE_KEYS, claims_of, fits_as_name, validated
from gspo_lab.study.origin import completed
from gspo_lab.study.rules import broken_looks, broken_question, broken_rules
from gspo_lab.study.schema import Settings

OBJECTIVE = "objective"
LEVEL = "objective.importance_sampling_level"
PRESET = "objective.preset"
DECIDED = ("question", "verdict", "claim")
"""What may be said of a study beside its settings and arms."""


@dataclass(frozen=True)
class Said:
    """What a person says of a study: its question, its rule, and per arm (None: of all) the dotted settings told."""

    name: str
    question: str | None = None
    verdict: VerdictTable | None = None
    claims: tuple[ClaimTable, ...] = ()
    told: Mapping[str | None, Mapping[str, Any]] | None = None

    def of(self, arm: str) -> dict[str, Any]:
        """The settings told of an arm, those told of all among them."""
        told = self.told or {}
        return {**told.get(None, {}), **told.get(arm, {})}


def said(raw: Mapping[str, Any], name: str, where: object) -> Said:
    """The tables of a TOML file, without those that name logs. LabError with a line per mistake."""
    problems: list[str] = []
    if not fits_as_name(name):
        problems.append(f"a study cannot be named '{name}': {NAMED}; rename the file or give --study")
    rule = raw.get("verdict")
    verdict = None if rule is None else validated(VerdictTable, rule, "verdict", problems)
    claims = claims_of(raw.get("claim", []), problems)
    question = raw.get("question")
    if question is not None and (not isinstance(question, str) or not question.strip()):
        problems.append("question: text")
    tables = raw.get("arm", {})
    if not isinstance(tables, dict) or not all(isinstance(one, dict) for one in tables.values()):
        problems.append("arm: tables, each headed [arm.NAME]")
        tables = {}
    shared = {key: value for key, value in raw.items() if key not in (*DECIDED, "arm")}
    told: dict[str | None, Mapping[str, Any]] = {None: dotted(shared)}
    told |= {arm: dotted(table) for arm, table in tables.items()}
    for arm in tables:
        if not fits_as_arm(arm):
            problems.append(f"arm.{arm}: {NAMED}")
    _arms(told, list(tables) or ["all"], [], problems)
    if problems:
        raise LabError(f"{where}: {len(problems)} mistake{'s' * (len(problems) > 1)}", details=tuple(problems))
    return Said(name, question and question.strip(), verdict, claims, told)


def dotted(table: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a study's table by their dotted keys; an arm writes the objective's keys flat."""
    out: dict[str, Any] = {}
    for key, value in flat(table).items() if table else ():
        name = PRESET if key == OBJECTIVE else f"{OBJECTIVE}.{key}" if key in OBJECTIVE_KEYS else key
        out[name] = value
        if name == PRESET and value in PRESETS:
            out.setdefault(LEVEL, PRESETS[value].importance_sampling_level)
    return out


def present(runs: Path, name: str) -> Declaration | None:
    """The study as it was imported before. LabError where the lab's workers have made one of that name."""
    file = runs / name / STUDY
    found = read_json(file)
    if found is None:
        return None
    declared = Declaration.parse(found, file)
    if declared.recorded is None:
        raise LabError(f"{file.parent} holds a study that was run here: give the import another --study")
    return declared


def told_before(declared: Declaration | None) -> dict[str | None, Mapping[str, Any]]:
    """Per arm the settings that earlier imports were told."""
    if declared is None:
        return {}
    values = {name: flat(arm.resolved) for name, arm in declared.arms.items()}
    return {
        name: {key: values[name].get(key) for key in (*(declared.recorded or ()), *arm.declared)}
        for name, arm in declared.arms.items()
    }


def declaration(
    before: Declaration | None, words: Said, done: Iterable[tuple[str, int, Conversion]], news: str
) -> Declaration:
    """The study with these runs. LabError where they contradict each other, or what was declared before."""
    runs = list(done)
    arms = list(dict.fromkeys((*(before.arms if before else ()), *(arm for arm, _, _ in runs))))
    told: dict[str | None, Mapping[str, Any]] = {arm: {} for arm in arms}
    for arm, settings in told_before(before).items():
        told[arm] = settings
    for arm in arms:
        told[arm] = _agreed(arm, told[arm], words.of(arm), "the study says")
    for arm, seed, converted in runs:
        told[arm] = _agreed(arm, told[arm], converted.told, f"the log of seed {seed} says")
    benches = _benches(before, [one for _, _, one in runs])
    problems: list[str] = []
    resolved = _arms(told, arms, benches, problems)
    seeds = tuple(sorted({*(before.seeds if before else ()), *(seed for _, seed, _ in runs)}))
    verdict = words.verdict or (before.verdict if before else VerdictTable())
    claims = words.claims or (before.claims if before else ())
    _check_unit(before, words, verdict, runs, benches)
    if before is not None and words.verdict is not None and words.verdict != before.verdict:
        problems.append("verdict: another rule than the one that the study was imported with; give it another name")
    named = [*broken_rules(resolved, verdict, resolved), *broken_looks(verdict.looks, len(seeds))] if resolved else []
    problems += [line for line in named if line.startswith(("bench", "verdict"))]
    if before is None or claims != before.claims:  # what was imported before goes on
        problems += broken_question(verdict, [claim.name for claim in claims])
    if problems:
        raise LabError(f"{words.name}: {len(problems)} mistake{'s' * (len(problems) > 1)}", details=tuple(problems))
    shared = set.intersection(*(set(one) for one in told.values()))
    same = {key for key in shared if len({repr(told[arm][key]) for arm in arms}) == 1}
    question = usual_question(arms)
    if before is not None and before.question != usual_question(before.arms):
        question = before.question
    now = datetime.now(UTC).isoformat(timespec="seconds")
    declared = Declaration(
        name=words.name,
        question=words.question or question,
        arms={name: replace(arm, declared=tuple(sorted(told[name].keys() - same))) for name, arm in resolved.items()},
        seeds=seeds,
        verdict=verdict,
        claims=claims,
        recorded=tuple(sorted(same)),
        created=before.created if before else now,
        version=__version__,
        edits=before.edits if before else (),
    )
    if before is not None and declared.locked() != before.locked():
        declared = replace(declared, edits=(*before.edits, Edit(now, f"imported: {news}")))
    return declared


def _check_unit(
    before: Declaration | None,
    words: Said,
    verdict: VerdictTable,
    runs: Iterable[tuple[str, int, Conversion]],
    benches: list[dict[str, Any]],
) -> None:
    """LabError where the scores that decide are above 1, percentages say, and nobody gave a margin in their unit."""
    usual = VerdictTable().margin
    stated = words.verdict is not None and "margin" in words.verdict.model_fields_set
    if stated or (before is not None and before.verdict.margin != usual) or not benches:
        return
    primary = verdict.primary or benches[0]["name"]
    largest = max((converted.largest.get(primary, 0.0) for _, _, converted in runs), default=0.0)
    if largest > 1:
        raise LabError(
            f"{words.name}: scores of {primary} reach {largest:g}, and the usual margin of {usual:g} is of shares from "
            "0 to 1: divide percentages by 100; of another scale say the margin, --set verdict.margin=0.5"
        )


def usual_question(arms: Iterable[str]) -> str:
    """The question where nobody says one."""
    names = list(arms)
    return f"How do{'es' * (len(names) == 1)} {' and '.join(names)} compare, as logged?"


def _agreed(arm: str, one: Mapping[str, Any], other: Mapping[str, Any], who: str) -> dict[str, Any]:
    odd = [key for key in one.keys() & other.keys() if one[key] != other[key]]
    if odd:
        key = min(odd)
        raise LabError(f"arm {arm}: {key} is {one[key]!r}, and {who} {other[key]!r}; make two arms of it, or mend it")
    return {**one, **other}


def _benches(before: Declaration | None, runs: Iterable[Conversion]) -> list[dict[str, Any]]:
    found: dict[str, int] = {}
    for bench in next(iter(before.arms.values())).settings.bench if before else ():
        found[bench.name] = bench.problems or 0
    for one in runs:
        for name in one.benches:
            found[name] = max(found.get(name, 0), len(one.problems.get(name, ())))
    return [{"name": name, **({"problems": count} if count else {})} for name, count in found.items()]


def _arms(
    told: Mapping[str | None, Mapping[str, Any]],
    names: Iterable[str],
    benches: list[dict[str, Any]],
    problems: list[str],
) -> dict[str, Arm]:
    """Arms that know what was told of them, and nothing else."""
    out: dict[str, Arm] = {}
    for name in names:
        known = {**told.get(None, {}), **told.get(name, {})}
        raw: dict[str, Any] = {"bench": benches}
        for key, value in known.items():
            set_dotted(raw, key, value)
        preset = known.get(PRESET)
        if preset is not None and preset not in PRESETS:
            problems.append(f"arm.{name}: unknown objective {preset!r}{nearest(str(preset), PRESETS)}")
        settings = validated(Settings, completed(raw), f"arm.{name}", problems)
        if settings is not None:
            out[name] = Arm(name, (), settings, known=frozenset(known))
    return out
