"""study.json: what a study is, written before its first step and held against every later start of it.

A study that has begun may grow by seeds, arms, doses of its sweep and waivers, each noted under "edits"; nothing that
its existing runs were made with may change, and neither may the rule of its verdict.
"""

import re
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path

from gspo_lab import __version__
from gspo_lab.errors import LabError
from gspo_lab.files import read_json, write_json
from gspo_lab.layout import ARCHIVE, STUDY
from gspo_lab.matching.settings import shown
from gspo_lab.runfolder import begun_arms
from gspo_lab.study import Arm, Declaration, Edit, Study, digest, flat
from gspo_lab.study.declaration import ARMS_ADDED, SEEDS_ADDED, Band, locked_of, reference_bands
from gspo_lab.study.dotted import BAND, differing

SHOWN = 4
CLAIMS_COUNT = "those declared before the first step are the ones that count"


def declare(study: Study, home: Path) -> Declaration:
    """Write `home`/study.json, or hold `study` against what it says. Raises LabError where runs would change."""
    data = read_json(home / STUDY)
    before = None if data is None else Declaration.parse(data, home / STUDY)
    begun = begun_arms(home)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    if before is None or not begun:
        own = {one.name: getattr(study, one.name) for one in fields(Declaration)}
        declared = Declaration(**own | {"commands": (study.command,), "created": now, "version": __version__})
    else:
        _refuse_changes(study, before, begun, home)
        declared = _grown(study, before, begun, now)
        if declared == before:
            return before  # byte for byte what it was, whichever version wrote it
        if before.digest != before.content_digest:  # a new digest would hide that
            raise LabError(
                f"{home / STUDY} was edited after it was locked, and cannot grow: restore it from a copy, start this "
                f"study beside it with --name NEW, or start over with --fresh"
            )
    return _kept(declared, home)


def set_band(home: Path, arm: str, band: Band) -> Declaration:
    """Put a calibrated range into study.json, and count everybody's counterfactuals with it; the new declaration."""
    before = Declaration.parse(read_json(home / STUDY), home / STUDY)
    one = before.arms[arm]
    objective = one.settings.objective.model_copy(update={"clip_low": band[0], "clip_high": band[1]})
    settings = one.settings.model_copy(update={"objective": objective})
    arms = before.arms | {arm: replace(one, settings=settings)}
    # With runs on the disk the yardstick stays the one they were measured with.
    bands = before.reference_bands if begun_arms(home) else reference_bands([arm.settings for arm in arms.values()])
    return _kept(replace(before, arms=arms, reference_bands=bands), home)


def _kept(declared: Declaration, home: Path) -> Declaration:
    """Write it; what was locked before is kept inside it if runs have begun by that: their journals have its digest."""
    there = read_json(home / STUDY)
    if there is not None and begun_arms(home) and digest(declared.locked()) != there.get("digest"):
        declared = replace(declared, superseded=(*declared.superseded, locked_of(there)))
    content = declared.to_json()
    if content != there:
        write_json(home / STUDY, content)
    return replace(declared, digest=content["digest"], content_digest=content["digest"])


def archive(folder: Path, runs: Path, name: str) -> Path:
    """Move `folder` to runs/_archive/<name>-<n>, n counting on from what is there."""
    taken = [
        int(found[1])
        for path in (runs / ARCHIVE).glob(f"{name}-*")
        if (found := re.fullmatch(re.escape(name) + r"-(\d+)", path.name))
    ]
    target = runs / ARCHIVE / f"{name}-{max(taken, default=0) + 1}"
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)
    return target


def _changes(old: object, new: object) -> dict[str, str]:
    """Dotted key -> "old -> new" for two settings; a calibrated range is the pilot's and does not count."""
    a, b = flat(old), flat(new)
    found = BAND if a.get("objective.clip") == b.get("objective.clip") == "calibrated" else ()
    return {key: f"{shown(a.get(key))} -> {shown(b.get(key))}" for key in differing(a, b) if key not in found}


def _refuse_changes(study: Study, before: Declaration, begun: set[str], home: Path) -> None:
    if lost := sorted(begun - set(before.arms)):
        raise LabError(
            f"{home / STUDY} does not declare {', '.join(lost)}, which has been run: restore it from a copy, or move "
            f"away the folders of what it lacks"
        )
    changes: dict[str, list[str]] = {}
    for name, old in before.arms.items():
        if name in begun and name in study.arms:
            for key, change in _changes(old.resolved, study.arms[name].resolved).items():
                changes.setdefault(f"{key}: {change}", []).append(name)
    verdict = _changes(before.verdict.model_dump(mode="json"), study.verdict.model_dump(mode="json"))
    changes |= {f"verdict.{key}: {change}": [] for key, change in verdict.items()}
    swept = _changes({"sweep": before.sweep and before.sweep.key}, {"sweep": study.sweep and study.sweep.key})
    changes |= {f"{key}: {change}": [] for key, change in swept.items()}
    if not changes:
        return
    shared = [name for name in study.arms if name in begun]
    details = [
        line if not arms or arms == shared else f"{line} (arm {', '.join(arms)})" for line, arms in changes.items()
    ]
    keys = list(dict.fromkeys(line.partition(":")[0] for line in changes))
    shown = ", ".join(keys[:SHOWN]) + (f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else "")
    raise LabError(
        f"{home} holds runs made with other settings ({shown}); start this one beside them with --name NEW, or start "
        f"over with --fresh, which moves them to {home.parent / ARCHIVE}",
        details=tuple(details),
    )


def _grown(study: Study, before: Declaration, begun: set[str], now: str) -> Declaration:
    edits = []
    if seeds := tuple(seed for seed in study.seeds if seed not in before.seeds):
        edits.append(f"{SEEDS_ADDED}{', '.join(map(str, seeds))}")
    if added := [name for name in study.arms if name not in before.arms]:
        edits.append(f"{ARMS_ADDED}{', '.join(added)}")
    arms: dict[str, Arm] = dict(before.arms)
    for name, arm in study.arms.items():
        if name in begun:
            continue
        changes = _changes(arms[name].resolved, arm.resolved) if name in arms else {}
        edits += [f"arm {name}, before its first step: {key}: {change}" for key, change in changes.items()]
        if changes or name not in arms:
            arms[name] = arm
    sweep = before.sweep
    if study.sweep is not None and sweep is not None:
        doses = tuple(sorted({*sweep.doses, *study.sweep.doses}))
        if more := [dose for dose in doses if dose not in sweep.doses]:
            edits.append(f"doses of {sweep.key} added: {', '.join(f'{dose:g}' for dose in more)}")
        sweep = replace(sweep, doses=doses)
    for lint, reason in study.waived.items():
        if reason != before.waived.get(lint):
            was = f"; was: {before.waived[lint]}" if lint in before.waived else ""
            edits.append(f"waived {lint}: {reason}{was}")
    edits += _other_claims(study, before)
    if study.question != before.question:
        edits.append(f"question, was: {before.question}")
    if (names := study.verdict.names) != before.verdict.names:
        edits.append(f"verdict.names, was: {shown(before.verdict.names)}")
    return replace(
        before,
        question=study.question,
        verdict=before.verdict.model_copy(update={"names": names}),
        seeds=before.seeds + seeds,
        added=before.added + seeds,
        arms=arms,
        sweep=sweep,
        waived=before.waived | study.waived,
        commands=_commands(study, before) if edits else before.commands,
        edits=(*before.edits, *(Edit(now, what) for what in edits)),
    )


def _other_claims(study: Study, before: Declaration) -> list[str]:
    """The note that the study now makes other claims, unless that was the last thing noted of them."""
    claims = [claim.model_dump(mode="json") for claim in study.claims]
    told = f"claims now {', '.join(one.name for one in study.claims) or 'none'} ({digest(claims)[:8]}); {CLAIMS_COUNT}"
    latest = [edit.what for edit in before.edits if edit.what.endswith(CLAIMS_COUNT)][-1:]
    return [told] if study.claims != before.claims and latest != [told] else []


def _commands(study: Study, before: Declaration) -> tuple[tuple[str, ...], ...]:
    """Those of the starts that this study came from, in their order; none where the first is not known."""
    known = before.commands
    return known if not known or study.command in known else (*known, study.command)
