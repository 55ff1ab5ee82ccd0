"""study.json: the declaration of a study, written before its first step and compared at every later
start.

A begun study may grow by seeds, arms, swept values and waivers, which "edits" lists. The settings
of its runs and the rule of its verdict must not change.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path

from gspo_lab import __version__
from gspo_lab.analysis.matching.run_pair import format_value
from gspo_lab.common.atomic_files import read_json, write_json
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import ARCHIVE, STUDY
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.common.text import first_few
from gspo_lab.recording.runfolder import begun_arms
from gspo_lab.study import Arm, Declaration, Edit, Study, digest, flat
from gspo_lab.study.declaration import Band, locked_of, reference_bands
from gspo_lab.study.dotted_keys import BAND, differing
from gspo_lab.study.tuning_trials import tuned
from gspo_lab.training.objectives.settings import CLIP_RANGE

SHOWN = 4
SEEDS_ADDED = "seeds added: "
CLAIMS_COUNT = "those declared before the first step are the ones that count"


def stored_declaration(home: Path) -> Declaration | None:
    """What `home`/study.json declares; None without the file."""
    data = read_json(home / STUDY)
    return None if data is None else Declaration.parse(data, home / STUDY)


def declare(study: Study, home: Path) -> Declaration:
    """Write `home`/study.json, or compare `study` with it.

    LabError if the settings of existing runs would change.
    """
    stored = stored_declaration(home)
    declared = _next_declaration(study, stored, home)
    return declared if declared is stored else _write_declaration(declared, home)


def _next_declaration(study: Study, stored: Declaration | None, home: Path) -> Declaration:
    """The declaration of this start; `stored` itself if it declares nothing new."""
    begun = begun_arms(home)
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    if stored is None or not begun:
        values = {field.name: getattr(study, field.name) for field in fields(Declaration)}
        changes = {"commands": (study.command,), "created": moment, "version": __version__}
        return Declaration(**values | changes)
    _refuse_changes(study, stored, begun, home)
    declared = _add_declared(study, stored, begun, moment)
    if declared == stored:
        return stored
    if stored.digest != stored.content_digest:  # a new digest would hide the edit
        raise LabError(
            f"{home / STUDY} was edited after it was locked, and cannot grow: restore it from a"
            " copy, start this study beside it with --name NEW, or start over with --fresh"
        )
    return declared


def announced_edits(study: Study, runs: Path) -> list[str]:
    """What this start would note in study.json, as lines. LabError where it would be refused."""
    home = runs / study.name
    stored = stored_declaration(home)
    if stored is None or not begun_arms(home):
        return []
    chosen = with_previous_choice(study, stored, home) if study.tune is not None else study
    declared = _next_declaration(chosen, stored, home)
    return [announcement(edit) for edit in declared.edits[len(stored.edits) :]]


def announcement(edit: Edit) -> str:
    """An edit as the terminal shows it."""
    note = f"noted in {STUDY}: {edit.what}"
    if edit.what.startswith(SEEDS_ADDED):
        note += "; seeds that are added after the first step do not count in the verdict"
    return note


def with_previous_choice(study: Study, stored: Declaration, home: Path) -> Study:
    """The study with the values that its arms chose in earlier trials.

    LabError where they chose by another [tune].
    """
    if stored.tune is None or study.tune is None or stored.tune.undecided != study.tune.undecided:
        raise LabError(
            f"{home} holds runs whose arms chose by another [tune]; start this one beside them"
            " with --name NEW, or start over with --fresh"
        )
    return tuned(study, stored.tune)


def clip_settings(band: Sequence[float]) -> dict[str, float]:
    """A range by its keys."""
    return dict(zip(CLIP_RANGE, band, strict=True))


def save_calibrated_range(home: Path, arm: str, band: Band) -> Declaration:
    """Write a calibrated range to study.json, also as a reference range of all arms.

    Returns the new declaration.
    """
    stored = Declaration.parse(read_json(home / STUDY), home / STUDY)
    entry = stored.arms[arm]
    objective = entry.settings.objective.model_copy(update=clip_settings(band))
    settings = entry.settings.model_copy(update={"objective": objective})
    arms = stored.arms | {arm: replace(entry, settings=settings)}
    # Keep the reference ranges that existing runs were measured with.
    bands = (
        stored.reference_bands
        if begun_arms(home)
        else reference_bands([arm.settings for arm in arms.values()])
    )
    return _write_declaration(replace(stored, arms=arms, reference_bands=bands), home)


def _write_declaration(declared: Declaration, home: Path) -> Declaration:
    """Write study.json.

    If runs began under an earlier declaration, keep that inside: their journals hold its digest.
    """
    stored = read_json(home / STUDY)
    if (
        stored is not None
        and begun_arms(home)
        and digest(declared.locked()) != stored.get("digest")
    ):
        declared = replace(declared, superseded=(*declared.superseded, locked_of(stored)))
    content = declared.to_json()
    if content != stored:
        write_json(home / STUDY, content)
    return replace(declared, digest=content["digest"], content_digest=content["digest"])


def archive(folder: Path, runs: Path, name: str) -> Path:
    """Move `folder` to runs/_archive/<name>-<n>, with the next free n."""
    matches = (
        re.fullmatch(re.escape(name) + r"-(\d+)", path.name)
        for path in (runs / ARCHIVE).glob(f"{name}-*")
    )
    number = max((int(match[1]) for match in matches if match), default=0) + 1
    target = runs / ARCHIVE / f"{name}-{number}"
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)
    return target


def _changes(old: object, new: object) -> dict[str, str]:
    """Dotted key -> "old -> new" for two settings, without a calibrated range, which the pilot
    sets.
    """
    a = flat(old)
    b = flat(new)
    calibrated = BAND if a.get("objective.clip") == b.get("objective.clip") == "calibrated" else ()
    return {
        key: f"{format_value(a.get(key))} -> {format_value(b.get(key))}"
        for key in differing(a, b)
        if key not in calibrated
    }


def _rule(declaration: Declaration) -> JsonObject:
    """What of a declaration may not change although no run's settings hold it."""
    sweep = declaration.sweep
    return {
        "verdict": declaration.verdict.model_dump(mode="json"),
        "sweep": None if sweep is None else sweep.key,
    }


def _refuse_changes(study: Study, stored: Declaration, begun: set[str], home: Path) -> None:
    if missing := sorted(begun - set(stored.arms)):
        raise LabError(
            f"{home / STUDY} does not declare {', '.join(missing)}, which has been run: restore it"
            " from a copy, or move away the folders of these arms"
        )
    changes: dict[str, list[str]] = {}
    for name, old in stored.arms.items():
        if name in begun and name in study.arms:
            for key, change in _changes(old.resolved, study.arms[name].resolved).items():
                changes.setdefault(f"{key}: {change}", []).append(name)
    rules = _changes(_rule(stored), _rule(study))
    changes |= {f"{key}: {change}": [] for key, change in rules.items()}
    if not changes:
        return
    shared = [name for name in study.arms if name in begun]
    details = [
        line if not arms or arms == shared else f"{line} (arm {', '.join(arms)})"
        for line, arms in changes.items()
    ]
    keys = list(dict.fromkeys(line.partition(":")[0] for line in changes))
    raise LabError(
        f"{home} holds runs made with other settings ({first_few(keys, SHOWN)}); start this"
        " one beside them with --name NEW, or start over with --fresh, which moves them to"
        f" {home.parent / ARCHIVE}",
        details=tuple(details),
    )


def _add_declared(study: Study, stored: Declaration, begun: set[str], moment: str) -> Declaration:
    """The stored declaration with what the study adds to it, each addition listed as an edit."""
    edits = []
    if seeds := tuple(seed for seed in study.seeds if seed not in stored.seeds):
        edits.append(f"{SEEDS_ADDED}{', '.join(map(str, seeds))}")
    if added := [name for name in study.arms if name not in stored.arms]:
        edits.append(f"arms added: {', '.join(added)}")
    arms: dict[str, Arm] = dict(stored.arms)
    for name, arm in study.arms.items():
        if name not in arms or (name not in begun and _changes(arms[name].resolved, arm.resolved)):
            arms[name] = arm
    edits += _edited_arms(study, stored, begun)
    sweep = stored.sweep
    if study.sweep is not None and sweep is not None:
        doses = tuple(sorted({*sweep.doses, *study.sweep.doses}))
        if doses_added := [f"{dose:g}" for dose in doses if dose not in sweep.doses]:
            edits.append(f"values of {sweep.key} added: {', '.join(doses_added)}")
        sweep = replace(sweep, doses=doses)
    edits += _edited_texts(study, stored)
    # The commands that let the study grow, in order; none if the first is unknown.
    commands = stored.commands
    if edits and commands and study.command not in commands:
        commands += (study.command,)
    return replace(
        stored,
        question=study.question,
        verdict=stored.verdict.model_copy(update={"names": study.verdict.names}),
        seeds=stored.seeds + seeds,
        added=stored.added + seeds,
        arms=arms,
        sweep=sweep,
        waived=stored.waived | study.waived,
        commands=commands,
        edits=(*stored.edits, *(Edit(moment, edit) for edit in edits)),
    )


def _edited_arms(study: Study, stored: Declaration, begun: set[str]) -> Iterator[str]:
    """The changed settings of arms that have not made their first step."""
    for name, arm in study.arms.items():
        if name in stored.arms and name not in begun:
            for key, change in _changes(stored.arms[name].resolved, arm.resolved).items():
                yield f"arm {name}, before its first step: {key}: {change}"


def _edited_texts(study: Study, stored: Declaration) -> Iterator[str]:
    """The changed waivers, claims, question and names; LabError where names would change."""
    for lint, reason in study.waived.items():
        if lint not in stored.waived:
            yield f"waived {lint}: {reason}"
        elif reason != stored.waived[lint]:
            yield f"waived {lint}: {reason}; was: {stored.waived[lint]}"
    if study.claims != stored.claims:
        names = ", ".join(claim.name for claim in study.claims) or "none"
        claims = digest([claim.model_dump(mode="json") for claim in study.claims])[:8]
        note = f"claims now {names} ({claims}); {CLAIMS_COUNT}"
        notes = [edit.what for edit in stored.edits if edit.what.endswith(CLAIMS_COUNT)]
        if notes[-1:] != [note]:
            yield note
    if study.question != stored.question:
        yield f"question, was: {stored.question}"
    if study.verdict.names != stored.verdict.names:
        former_names = format_value(stored.verdict.names)
        if stored.verdict.names is not None:
            raise LabError(
                f"verdict.names was {former_names} before the first step and stands in the answer,"
                " so it cannot change; give the study another name with --name NEW"
            )
        yield f"verdict.names, was: {former_names}"
