"""A run's folder of gspo-lab as a log: its settings and its journal, without a database."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gspo_lab.common.atomic_files import read_json
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import JOURNAL, RUN
from gspo_lab.exchange.importers.base import Log, LoggedRow
from gspo_lab.exchange.importers.metric_names import OF_STEPS, OF_UPDATES, WHOLE
from gspo_lab.recording.journal import JournalReader, in_force
from gspo_lab.recording.records import ROLLOUT
from gspo_lab.study.dotted_keys import flat

FIRST = "first/"
"""Prefix of a number of mini-batch 0, before any update of its rollout batch."""
LATER = "later/"
"""Prefix of the mean over the later mini-batches."""
LAST = "last/"
"""Prefix of a number of the last mini-batch."""
COUNTS = WHOLE - {"nonfinite"}


def read_own_run(path: Path) -> Log:
    """The run of a folder, or of its journal. LabError if it is no run of gspo-lab."""
    folder = path if path.is_dir() else path.parent
    declared = read_json(folder / RUN)
    if declared is None:
        raise LabError(f"{folder}: no {RUN} in it, so it is no run of gspo-lab")
    settings = flat(declared.get("settings", {}))
    known = {key: value for key, value in settings.items() if value is not None}
    log = Log("gspo-lab", (), [folder / JOURNAL], settings=known)
    log.rows = _rows(folder / JOURNAL, log)
    return log


def _rows(journal: Path, log: Log) -> Iterator[LoggedRow]:
    """A row per step: its own numbers, those of its mini-batches, and the scores after it."""
    updates: dict[int, list[dict[str, Any]]] = {}
    steps: dict[int, dict[str, Any]] = {}
    scores: dict[int, dict[str, list[int]]] = {}
    for line in in_force(JournalReader(journal)):
        if "state" in line:
            _note_facts(line, log)
        elif line["kind"] == "update":
            updates.setdefault(line["step"], []).append(line)
        elif line["kind"] == "step":
            steps[line["step"]] = line
        elif line["kind"] == "answer" and line["bench"] != ROLLOUT:
            answers = scores.setdefault(line["step"], {})
            answers.setdefault(line["bench"], []).append(int(line.get("correct") or 0))
    for step in sorted({*updates, *steps, *scores}):
        numbers = _numbers(steps.get(step, {}), OF_STEPS - COUNTS)
        numbers |= _update_numbers(updates.get(step, []))
        for bench, correct in scores.get(step, {}).items():
            numbers[f"score/{bench}"] = sum(correct) / len(correct)
            numbers[f"answers/{bench}"] = len(correct)
        yield step, numbers


def _note_facts(line: dict[str, Any], log: Log) -> None:
    """The version of gspo-lab among the facts of a worker's start."""
    facts = line.get("facts") or {}
    version = facts.get("gspo_lab")
    log.version = version if isinstance(version, str) else log.version


def _numbers(line: dict[str, Any], names: frozenset[str]) -> dict[str, float]:
    return {name: line[name] for name in names if isinstance(line.get(name), int | float)}


def _update_numbers(updates: list[dict[str, Any]]) -> dict[str, float]:
    """The means over a step's mini-batches, and the numbers of the first, the later and the last.

    `nonfinite` is 1 if it is 1 in any update.
    """
    names = OF_UPDATES - COUNTS
    rows = [_numbers(line, names) for line in updates]
    numbers = {**_means(rows), **_prefixed(FIRST, _means(rows[:1]))}
    numbers |= _prefixed(LATER, _means(rows[1:]))
    numbers |= _prefixed(LAST, _means(rows[-1:]))
    if any(row.get("nonfinite") for row in rows):
        numbers["nonfinite"] = 1.0
    return numbers


def _prefixed(prefix: str, numbers: dict[str, float]) -> dict[str, float]:
    return {f"{prefix}{name}": value for name, value in numbers.items()}


def _means(rows: list[dict[str, float]]) -> dict[str, float]:
    names = {name for row in rows for name in row}
    return {
        name: float(np.mean([row[name] for row in rows if name in row])) for name in sorted(names)
    }
