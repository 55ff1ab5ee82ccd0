"""study.json: what a study is, written before its first step and held against every later start of it.

A study that has begun may grow by seeds, arms, doses of its sweep and waivers, each noted under "edits"; nothing that
its existing runs were made with may change, and neither may the rule of its verdict.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gspo_lab import __version__
from gspo_lab.errors import LabError
from gspo_lab.files import read_json, write_json
from gspo_lab.layout import ARCHIVE, JOURNAL, STUDY
from gspo_lab.matching.settings import shown
from gspo_lab.study import Settings, Study, digest, flat, lock_digest
from gspo_lab.study.dotted import BAND, differing
from gspo_lab.study.study import reference_bands

SHOWN = 4
CLAIMS_COUNT = "those declared before the first step are the ones that count"


def declare(study: Study, home: Path) -> dict[str, Any]:
    """Write `home`/study.json, or hold `study` against what it says. Raises LabError where runs would change."""
    before = read_json(home / STUDY)
    if before is not None and not (isinstance(before, dict) and before.keys() >= {"arms", "verdict", "seeds"}):
        raise LabError(f"{home / STUDY} is no study of this lab: restore it from a copy, or move {home} away")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    begun = begun_arms(home)
    if before is None or not begun:
        content = {
            **study.resolved(),
            "reference_bands": _bands(study),
            "comment": study.comment,
            "commands": [list(study.command)],
            "created": now,
            "version": __version__,
            "edits": [],
        }
    else:
        _refuse_changes(study, before, begun, home)
        content = _grown(study, before, begun, now)
    content["digest"] = lock_digest(content)
    if content != before:
        write_json(home / STUDY, content)
    return dict(content)


def set_band(home: Path, arm: str, band: tuple[float, float]) -> dict[str, Any]:
    """Put a calibrated range into study.json, and count everybody's counterfactuals with it; the new content."""
    content: dict[str, Any] = read_json(home / STUDY)
    objective = content["arms"][arm]["settings"]["objective"]
    objective["clip_low"], objective["clip_high"] = band
    if not begun_arms(home):  # with runs on the disk the yardstick stays the one they were measured with
        settings = [Settings.model_validate(entry["settings"]) for entry in content["arms"].values()]
        content["reference_bands"] = {rule: list(found) for rule, found in reference_bands(settings).items()}
    content["digest"] = lock_digest(content)
    write_json(home / STUDY, content)
    return content


def begun_arms(home: Path) -> set[str]:
    """The arms that have recorded anything."""
    return {
        path.parent.parent.name
        for path in home.glob(f"*/s*/{JOURNAL}")
        if not path.parent.parent.name.startswith("_") and _begun(path)
    }


def _begun(path: Path) -> bool:
    """Whether a journal holds more than the news that its run could not begin."""
    with path.open("rb") as file:
        return any(b'"started"' in line or b'"kind":"step"' in line for line in file)


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


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """Dotted key -> "old -> new" for two settings; a calibrated range is the pilot's and does not count."""
    a, b = flat(old), flat(new)
    found = BAND if a.get("objective.clip") == b.get("objective.clip") == "calibrated" else ()
    return {key: f"{shown(a.get(key))} -> {shown(b.get(key))}" for key in differing(a, b) if key not in found}


def _refuse_changes(study: Study, before: Mapping[str, Any], begun: set[str], home: Path) -> None:
    changes: dict[str, list[str]] = {}
    for name in before["arms"]:
        if name in begun and name in study.arms:
            old = _validated(before["arms"][name]["settings"], home)
            new = study.arms[name].settings.model_dump(mode="json")
            for key, change in _changes(old, new).items():
                changes.setdefault(f"{key}: {change}", []).append(name)
    verdict = _changes(before["verdict"], study.verdict.model_dump(mode="json"))
    changes |= {f"verdict.{key}: {change}": [] for key, change in verdict.items()}
    swept = _changes({"sweep": _swept(before.get("sweep"))}, {"sweep": _swept(study.sweep)})
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


def _grown(study: Study, before: Mapping[str, Any], begun: set[str], now: str) -> dict[str, Any]:
    new = study.resolved()
    edits = []
    if seeds := [seed for seed in study.seeds if seed not in before["seeds"]]:
        edits.append(f"seeds added: {', '.join(map(str, seeds))}")
    if arms := [name for name in study.arms if name not in before["arms"]]:
        edits.append(f"arms added: {', '.join(arms)}")
    arms_now = dict(before["arms"])
    for name, arm in new["arms"].items():
        if name in begun:
            continue
        changes = _changes(before["arms"][name]["settings"], arm["settings"]) if name in before["arms"] else {}
        edits += [f"arm {name}, before its first step: {key}: {change}" for key, change in changes.items()]
        if changes or name not in before["arms"]:
            arms_now[name] = arm
    grown: dict[str, Any] = {}
    if study.sweep is not None:
        doses = sorted({*before["sweep"]["doses"], *study.sweep["doses"]})
        if added := [dose for dose in doses if dose not in before["sweep"]["doses"]]:
            edits.append(f"doses of {study.sweep['key']} added: {', '.join(f'{dose:g}' for dose in added)}")
        grown["sweep"] = {**before["sweep"], "doses": doses}
    waived = before.get("waive", {})
    for lint, reason in study.waived.items():
        if reason != waived.get(lint):
            edits.append(f"waived {lint}: {reason}" + (f"; was: {waived[lint]}" if lint in waived else ""))
    if waived or study.waived:
        grown["waive"] = {**waived, **study.waived}
    claims = new.get("claims", [])
    told = f"claims now {', '.join(claim['name'] for claim in claims) or 'none'} ({digest(claims)[:8]}); {CLAIMS_COUNT}"
    latest = [edit["what"] for edit in before["edits"] if edit["what"].endswith(CLAIMS_COUNT)][-1:]
    if claims != before.get("claims", []) and latest != [told]:
        edits.append(told)
    if new["question"] != before["question"]:
        edits.append(f"question, was: {before['question']}")
    return {
        **before,
        **grown,
        "commands": _commands(study, before) if edits else before.get("commands", []),
        "question": new["question"],
        "seeds": [*before["seeds"], *seeds],
        "arms": arms_now,
        "edits": [*before["edits"], *({"at": now, "what": what} for what in edits)],
    }


def _commands(study: Study, before: Mapping[str, Any]) -> list[list[str]]:
    """Those of the starts that this study came from, in their order; none where the first is not known."""
    commands, latest = before.get("commands", []), list(study.command)
    return commands if not commands or latest in commands else [*commands, latest]


def _swept(sweep: Mapping[str, Any] | None) -> str | None:
    return None if sweep is None else sweep["key"]


def _validated(settings: Mapping[str, Any], home: Path) -> dict[str, Any]:
    """Settings of an earlier day with today's keys: those they did not know have their defaults."""
    try:
        return Settings.model_validate(settings).model_dump(mode="json")
    except ValidationError as error:
        raise LabError(
            f"{home / STUDY} was written by another version of gspo-lab ({error.error_count()} keys do not fit); "
            "use --name NEW or --fresh"
        ) from error


def _bands(study: Study) -> dict[str, list[float]]:
    found = reference_bands([arm.settings for arm in study.arms.values()])
    return {rule: list(band) for rule, band in found.items()}
