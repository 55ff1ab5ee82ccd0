"""From a TOML file (and `--set`, `--seeds`, `--steps`, `--arms`) to a `Study`; every mistake
reported at once.
"""

import copy
import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gspo_lab.common.errors import LabError
from gspo_lab.common.keys import NAME, Table
from gspo_lab.common.plain_data import Integers, JsonMapping, JsonObject, OptionalInt, Strings
from gspo_lab.common.registry import nearest, unlisted
from gspo_lab.common.text import counted
from gspo_lab.study.claim_validation import broken_claims
from gspo_lab.study.contrast import broken_contrast, broken_order, broken_over
from gspo_lab.study.declaration import Arm, ArmsByName, Sweep, reference_bands
from gspo_lab.study.dotted_keys import flat, set_dotted
from gspo_lab.study.lints import WAIVABLE
from gspo_lab.study.overrides import command_of, set_override
from gspo_lab.study.runtime_tables import LaunchTable, MirrorTable
from gspo_lab.study.schema import ARM_KEYS, RATE, STUDY_KEYS, BenchTable, Settings
from gspo_lab.study.settings_validation import broken_looks, broken_question, broken_rules
from gspo_lab.study.study import Study
from gspo_lab.study.tune import TuneTable
from gspo_lab.study.tuning_trials import read_tune
from gspo_lab.study.verdict_tables import ClaimTable, VerdictTable
from gspo_lab.training.objectives.presets import PRESETS, Objective, with_published_range

OBJECTIVE_KEYS = tuple(key for key in Objective.model_fields if key != "preset")
BASE_KEYS = tuple(Settings.model_fields)
NAMED = (
    "names are made of at most 100 of a to z, A to Z, digits, '-', '_' and '.', and begin with a"
    " letter or digit"
)
RESERVED = re.compile(r"lab\.db.*|study\.json")
MOST_SEEDS = 10_000
SWEPT = "a sweep gives its arms their values itself; leave [sweep] or [tune] out"
PART = "all arms choose on the same budget, so --arms cannot take some of them; leave it out"
DEEPEST = 20
LARGEST = 1e12
"""More than any swept setting may be."""


def fits_as_name(name: str) -> bool:
    """Whether a study or an arm can have this name, which is then a folder's."""
    return re.fullmatch(NAME, name) is not None and RESERVED.fullmatch(name) is None


def load_study(
    path: Path,
    *,
    overrides: Sequence[str] = (),
    seeds: int | Sequence[int] | None = None,
    steps: OptionalInt = None,
    arms: Sequence[str] | None = None,
    name: str | None = None,
) -> Study:
    """Read, override, validate and resolve a study. Raises LabError with one line per mistake.

    A number of `seeds` takes the first declared ones, and then follows them upward.
    """
    path = study_file(path)
    raw = parsed(path)
    file_seeds = _seeds(raw.get("seeds", 3), [])
    _override(raw, overrides, steps, seeds)
    problems: list[str] = []
    mirror = _mirror(raw, problems)
    base, tables = split(raw, problems)
    verdict = validated(VerdictTable, raw.get("verdict", {}), "verdict", problems) or VerdictTable()
    base["bench"] = BenchTable.with_decisive(base.get("bench", []), verdict.last)
    sweep = _sweep(raw.get("sweep"), problems)
    resolve = resolved_arms if sweep is None else partial(_at_every_dose, sweep)
    study_arms = resolve(base, tables, problems)
    declared_seeds = _seeds(raw.get("seeds", 3), problems)
    claims = claims_of(raw.get("claim", []), problems)
    waived = _read_waivers(raw.get("waive", {}), problems)
    launch = validated(LaunchTable, raw.get("launch", {}), "launch", problems) or LaunchTable()
    choices = validated(TuneTable, raw["tune"], "tune", problems) if "tune" in raw else None
    tune = read_tune(choices, study_arms, declared_seeds, verdict, problems)
    if tune is not None:
        study_arms = {name: arm.stating(tune.values(name)) for name, arm in study_arms.items()}
        if sweep is not None:
            problems.append(f"tune: {SWEPT}")
        if arms is not None:
            problems.append(f"tune: {PART}")
    question = raw.get("question", "")
    if not isinstance(question, str) or not question.strip():
        problems.append("question: every study opens with the question it asks, as text")
    claimable = list(tables if sweep is None else study_arms)
    if arms is not None:
        study_arms = _chosen_arms(study_arms, arms, tables, problems)
    command = command_of(path, overrides, seeds, steps, arms, name)
    name = path.stem if name is None else name
    if not fits_as_name(name):
        problems.append(
            f"a study cannot be named '{name}': {NAMED}; rename the file or give --name"
        )
    if not problems:
        problems += broken_rules(study_arms, verdict, tables, raw.get("compares_engines", False))
        problems += _broken_verdict(verdict, study_arms, tables, sweep, len(declared_seeds))
        problems += broken_question(verdict, [claim.name for claim in claims])
        problems += broken_claims(
            claims, claimable, [bench["name"] for bench in base.get("bench", [])]
        )
    if problems:
        mistakes = counted(len(problems), "mistake")
        raise LabError(f"{path}: {mistakes}", details=tuple(problems))
    return Study(
        name=name,
        path=path,
        launch=launch,
        mirror=mirror,
        question=question.strip(),
        arms=study_arms,
        seeds=declared_seeds,
        file_seeds=file_seeds,
        verdict=verdict,
        claims=claims,
        sweep=sweep,
        tune=tune,
        waived=waived,
        reference_bands=reference_bands([arm.settings for arm in study_arms.values()]),
        comment=_opening_comment(path),
        command=command,
    )


def _override(
    raw: JsonObject,
    overrides: Sequence[str],
    steps: OptionalInt,
    seeds: int | Sequence[int] | None,
) -> None:
    """Apply `--set`, `--steps` and `--seeds` to a study's tables."""
    for override in overrides:
        set_override(raw, override)
    if steps is not None:
        raw["steps"] = steps
    if isinstance(seeds, int):
        raw["seeds"] = _first_seeds(raw, seeds)
    elif seeds is not None:
        raw["seeds"] = list(seeds)


def _chosen_arms(
    study_arms: ArmsByName,
    names: Sequence[str],
    tables: JsonMapping,
    problems: list[str],
) -> dict[str, Arm]:
    """The arms that `--arms` names, of a sweep at every dose; mistakes go to `problems`."""
    if not names:
        problems.append("--arms: names no arm")
    for name in names:
        if name not in tables:
            problems.append(f"--arms: no arm {unlisted(name, tables, 'this study has')}")
    return {key: arm for key, arm in study_arms.items() if (arm.of or key) in names}


def _broken_verdict(
    verdict: VerdictTable,
    arms: ArmsByName,
    tables: JsonMapping,
    sweep: Sweep | None,
    seeds: int,
) -> list[str]:
    """The mistakes of `[verdict]` in a study of these arms and so many seeds."""
    problems = [
        *broken_looks(verdict.looks, seeds),
        *broken_contrast(verdict, arms, tables, sweep is not None),
        *broken_order(verdict, arms, tables, sweep is not None),
        *broken_over(verdict, sweep, seeds),
    ]
    if sweep is not None and verdict.looks:
        problems.append(
            "verdict.looks: a sweep is judged value by value and has no verdict to look at; leave"
            " it out"
        )
    return problems


def _mirror(raw: JsonObject, problems: list[str]) -> Strings:
    """Take `mirror` out of the table `[record]`, whose remaining keys belong to each run."""
    record = raw.get("record")
    if not isinstance(record, dict) or "mirror" not in record:
        return ()
    raw["record"] = record = dict(record)
    table = validated(MirrorTable, {"mirror": record.pop("mirror")}, "record", problems)
    return () if table is None else tuple(dict.fromkeys(table.mirror))


def study_file(path: Path) -> Path:
    """The file of a study.

    `path` is that file, a name here or in studies/, or the folder that `gspo-lab init` wrote.
    """
    if path.suffix == ".toml" or path.is_file():
        return path
    file = f"{path.name}.toml"
    for candidate in (path.with_name(file), Path("studies") / file, path / file):
        if candidate.is_file():
            return candidate
    return path


def _first_seeds(raw: JsonObject, count: int) -> list[int]:
    """The first `count` declared seeds, then those above them that no trial of [tune] has."""
    declared = list(_seeds(raw.get("seeds", 3), []))
    tune = raw.get("tune")
    tried = tune.get("seeds", []) if isinstance(tune, dict) else []
    following = max(declared, default=-1)
    while len(declared) < count:
        following += 1
        if following not in tried:
            declared.append(following)
    return declared[:count]


def parsed(path: Path) -> JsonObject:
    """The tables of a TOML file. LabError where the file is missing or not TOML."""
    if not path.is_file():
        studies = sorted(p.stem for p in path.parent.glob("*.toml")) if path.parent.is_dir() else []
        listing = f"; {path.parent}/ has {', '.join(studies)}" if studies else ""
        raise LabError(f"no study file {path}{nearest(path.stem, studies)}{listing}")
    try:
        content = tomllib.loads(_text(path))
    except ValueError as error:  # of syntax, of encoding, of numbers with thousands of digits
        raise LabError(f"{path}: not valid TOML: {error}") from error
    except RecursionError:
        raise LabError(f"{path}: not valid TOML: too deeply nested") from None
    within: list[Any] = [content]
    for _ in range(DEEPEST):
        tables = [table for table in within if isinstance(table, dict)]
        within = list(chain.from_iterable(table.values() for table in tables))
    if within:
        raise LabError(
            f"{path}: tables within tables, more than {DEEPEST} deep; no study has more than a few"
        )
    return content


def _text(path: Path) -> str:
    """A study's text without a byte order mark. LabError for another encoding than UTF-8."""
    data = path.read_bytes()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data[:4]:
        raise LabError(
            f"{path}: is UTF-16 or UTF-32 text, TOML is UTF-8; save it with the encoding UTF-8"
        )
    return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def split(raw: JsonMapping, problems: list[str]) -> tuple[JsonObject, dict[str, JsonObject]]:
    """The settings that all arms share, and the arms' own tables."""
    keys = (*BASE_KEYS, *STUDY_KEYS)
    for key in raw:
        if key not in keys:
            hint = (
                " (it belongs under [objective] or an arm)"
                if key in OBJECTIVE_KEYS
                else nearest(key, keys)
            )
            problems.append(f"{key}: unknown key{hint}")
    base = {key: value for key, value in raw.items() if key in BASE_KEYS}
    task = base.get("task", {})
    base["task"] = {"name": task} if isinstance(task, str) else task
    tables = raw.get("arm", {})
    if not isinstance(tables, dict) or not tables:
        problems.append("arm: a study needs at least one [arm.NAME] table")
        return base, {}
    out = {}
    for name, table in tables.items():
        if isinstance(table, dict):
            out[name] = table
        else:
            problems.append(f"arm.{name}: must be a table, [arm.{name}]")
    return base, out


def resolved_arms(
    base: JsonObject, tables: dict[str, JsonObject], problems: list[str]
) -> dict[str, Arm]:
    """The arms of a study's tables over what all share; mistakes are added to `problems`."""
    shared = base.get("objective", {})
    if not isinstance(shared, dict):
        problems.append(
            "objective: must be a table; an arm names its preset with objective = '...'"
        )
        shared = {}
    # Validate the shared part alone first, so that its mistakes are reported once and not once per
    # arm.
    count = len(problems)
    validated(
        Settings,
        {**base, "objective": _objective(shared, {}, "objective.preset", problems)},
        "",
        problems,
    )
    reported = {line.removeprefix("objective.") for line in problems[count:]}
    out: dict[str, Arm] = {}
    folders: dict[str, str] = {}
    for name, table in tables.items():
        if (twin := folders.setdefault(name.lower(), name)) != name:
            problems.append(
                f"arm.{name}: differs from arm.{twin} in capitals alone; some disks take them"
                " for one"
            )
        mistakes: list[str] = []
        arm = _arm(name, table, base, shared, mistakes)
        problems += [line for line in mistakes if line.removeprefix(f"arm.{name}.") not in reported]
        if arm is not None:
            out[name] = arm
    return out


def _arm(
    name: str,
    table: JsonObject,
    base: JsonObject,
    shared: JsonObject,
    problems: list[str],
) -> Arm | None:
    where = f"arm.{name}"
    if not fits_as_name(name):
        problems.append(f"{where}: {NAMED}")
        return None
    if not table:
        problems.append(
            f"{where}: this table changes nothing; say what the arm does, e.g. objective = 'gspo'"
        )
        return None
    merged, objective = _merged_table(where, table, base, problems)
    # A wrong preset of the shared part was reported there.
    merged["objective"] = _objective(
        shared, objective, f"{where}.objective", problems if "preset" in objective else []
    )
    settings = validated(Settings, merged, where, problems)
    if settings is None:
        return None
    declared = [f"objective.{key}" for key in objective]
    for key, value in table.items():
        if key in ARM_KEYS:
            # an engine's options come and go with it
            replaces_table = key == "engine" or not isinstance(value, dict)
            declared += [key] if replaces_table else [f"{key}.{inner}" for inner in value]
    if objective.keys() & {"preset", "mismatch_correction"}:
        # These bring values along, and declare each that differs from the shared objective's.
        plain = _objective(shared, {}, where, [])
        declared += [f"objective.{k}" for k, v in merged["objective"].items() if plain.get(k) != v]
    return Arm(name, tuple(sorted(set(declared))), settings)


def _merged_table(
    where: str, table: JsonMapping, base: JsonMapping, problems: list[str]
) -> tuple[JsonObject, JsonObject]:
    """The shared settings changed by an arm's table, and the table's keys of the objective."""
    merged = dict(base)
    objective: JsonObject = {}
    for key, value in table.items():
        if key == "objective":
            objective["preset"] = value
        elif key in OBJECTIVE_KEYS:
            objective[key] = value
        elif key in ARM_KEYS:
            extends = isinstance(value, dict) and isinstance(merged.get(key, {}), dict)
            merged[key] = {**merged.get(key, {}), **value} if extends else value
        elif key in BASE_KEYS or key in STUDY_KEYS:
            problems.append(
                f"{where}.{key}: arms cannot differ in '{key}'; it belongs to the whole study"
            )
        else:
            own_loss = ":" in str(table.get("policy_loss"))
            problems.append(f"{where}.{key}: unknown key{_key_hint(key, own_loss)}")
    return merged, objective


def _key_hint(key: str, own_loss: bool) -> str:
    """What to write in place of an unknown key of an arm, "" if nothing is near."""
    if key == "preset":
        return " (an arm names its preset with objective = '...')"
    hint = nearest(key, ("objective", *OBJECTIVE_KEYS, *ARM_KEYS))
    if not hint and own_loss:
        return " (keys of your own loss belong in loss_options)"
    return hint


def _sweep(table: Any, problems: list[str]) -> Sweep | None:
    """The sweep of a study, None where it has none; mistakes go to `problems`."""
    if table is None:
        return None
    settings = flat(table) if isinstance(table, dict) else {}
    if len(settings) != 1:
        problems.append(f"sweep: give one setting and its values, e.g. {RATE} = [2e-4, 5e-4, 1e-3]")
        return None
    ((key, doses),) = settings.items()
    numbers = isinstance(doses, list) and all(
        isinstance(d, int | float) and not isinstance(d, bool) for d in doses
    )
    labels = (
        {f"{dose:g}" for dose in doses}
        if numbers and all(0 < dose <= LARGEST for dose in doses)
        else set()
    )
    if key == "seeds":
        mistake = (
            "cannot be swept; seeds pair the arms, every arm runs on all of them: write seeds ="
            " [...] at the top"
        )
    elif key.partition(".")[0] in STUDY_KEYS:
        mistake = (
            "cannot be swept; it belongs to the study and to no single run: sweep one such as"
            " update.epochs"
        )
    elif len(labels) < 2:
        mistake = f"its values are at least two different numbers > 0 in a list; got {doses!r}"
    elif len(labels) < len(doses):
        mistake = f"two values are the same in six digits, by which arms are named; got {doses!r}"
    else:
        return Sweep(key, tuple(sorted(doses)))
    problems.append(f"sweep.{key}: {mistake}")
    return None


def _at_every_dose(
    sweep: Sweep, base: JsonObject, tables: dict[str, JsonObject], problems: list[str]
) -> dict[str, Arm]:
    """The arms at each dose, `gspo@0.0002` of `gspo`; a mistake at several doses is reported
    once.
    """
    table: Any = base
    for part in sweep.key.split(".")[:-1]:
        table = table.get(part, {})
        if not isinstance(table, dict):
            problems.append(
                f"sweep.{sweep.key}: '{part}' is no table; a sweep sets one key of a table, as"
                " update.epochs"
            )
            return {}
    out: dict[str, Arm] = {}
    for dose in sweep.doses:
        mistakes: list[str] = []
        settings = copy.deepcopy(base)
        set_dotted(settings, sweep.key, dose)
        for name, arm in resolved_arms(settings, tables, mistakes).items():
            declared = tuple(sorted({*arm.declared, sweep.key}))
            out[f"{name}@{dose:g}"] = replace(
                arm, name=f"{name}@{dose:g}", declared=declared, of=name, dose=dose
            )
        problems += [line for line in mistakes if line not in problems]
    return out


def _objective(
    shared: JsonMapping, own_keys: JsonMapping, where: str, problems: list[str]
) -> JsonObject:
    """Every key of the objective: the preset's values, changed by `shared` and then by the arm's
    own `stated` keys.
    """
    preset = own_keys.get("preset", shared.get("preset", "grpo"))
    if not isinstance(preset, str):
        problems.append(
            f"{where}: must be a preset's name, one of {', '.join(PRESETS)}; an arm's own keys"
            " stand flat"
        )
        preset = "grpo"
    elif preset not in PRESETS:
        problems.append(f"{where}: unknown objective {unlisted(preset, PRESETS)}")
        preset = "grpo"
    return with_published_range(
        {**PRESETS[preset].model_dump(), **shared, **own_keys, "preset": preset}
    )


def _seeds(value: Any, problems: list[str]) -> Integers:
    count = type(value) is int
    if count and value > MOST_SEEDS:
        problems.append(
            f"seeds: {value} seeds are more than the {MOST_SEEDS} that make sense; list those you"
            " mean"
        )
    elif not count and not isinstance(value, list):
        problems.append("seeds: a number of seeds or a list of them, e.g. [0, 1, 2]")
    else:
        seeds = tuple(range(value) if count else value)
        if not seeds or any(type(seed) is not int or not 0 <= seed < 2**63 for seed in seeds):
            problems.append(f"seeds: need at least one, all whole numbers >= 0; got {list(seeds)}")
        elif len(set(seeds)) == len(seeds):
            return seeds
        else:
            problems.append(f"seeds: {list(seeds)} holds a seed twice; a seed counts once")
    return ()


def claims_of(value: Any, problems: list[str]) -> tuple[ClaimTable, ...]:
    """The `[[claim]]` tables; mistakes are added to `problems`."""
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        problems.append("claim: a list of tables, each headed [[claim]]")
        return ()
    tables = [
        validated(ClaimTable, entry, f"claim.{entry.get('name', i)}", problems)
        for i, entry in enumerate(value)
    ]
    return tuple(claim for claim in tables if claim is not None)


def _read_waivers(value: Any, problems: list[str]) -> dict[str, str]:
    if not isinstance(value, dict):
        problems.append(
            "waive: a table of reasons, e.g. [waive] with aggregation-label = 'why it is right"
            " here'"
        )
        return {}
    for name, reason in value.items():
        if name not in WAIVABLE:
            problems.append(f"waive: no error {unlisted(name, WAIVABLE)}")
        elif not isinstance(reason, str) or not reason.strip():
            problems.append(f"waive.{name}: give the reason as text; it is printed in the report")
    return dict(value)


def validated(model: type[Table], data: Any, where: str, problems: list[str]) -> Any:
    """The table of these data; None where mistakes were added to `problems`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        for item in error.errors():
            path_parts = _path_by_bench_name([str(part) for part in item["loc"]], data)
            flat = (
                where.startswith("arm.") and path_parts[0] == "objective"
            )  # an arm writes the objective's keys flat
            path = ".".join(filter(None, [where, *path_parts[flat:]]))
            if item["type"] == "extra_forbidden":
                problems.append(
                    f"{path}: unknown key{nearest(path_parts[-1], _keys(path_parts[:-1], model))}"
                )
            elif item["type"] == "missing":
                problems.append(f"{path}: missing")
            else:
                got = f"; got {item['input']!r}" if not isinstance(item["input"], dict) else ""
                problems.append(f"{path}: {item['msg'][0].lower()}{item['msg'][1:]}{got}")
        return None


def _path_by_bench_name(path: list[str], data: Any) -> list[str]:
    """The path to a value, with a benchmark's name in place of its index: `bench.held-out`."""
    if path[:1] == ["bench"] and len(path) > 1 and path[1].isdigit():
        bench = data["bench"][int(path[1])]
        name = bench.get("name") if isinstance(bench, dict) else None
        return [
            "bench",
            name if isinstance(name, str) and re.fullmatch(NAME, name) else path[1],
            *path[2:],
        ]
    return path


def _keys(path: Sequence[str], model: type[Table]) -> list[str]:
    current: Any = model
    for part in path:
        if current is list:
            current = BenchTable  # `part` is an entry's name or number
            continue
        entry = getattr(current, "model_fields", {}).get(part)
        if entry is None:
            return []
        current = list if part == "bench" else entry.annotation
    return list(getattr(current, "model_fields", {}))


def _opening_comment(path: Path) -> str:
    opening = takewhile(lambda line: line.startswith("#"), _text(path).splitlines())
    return "\n".join(line.lstrip("# ").rstrip() for line in opening)
