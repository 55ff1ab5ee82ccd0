"""A run's folder of gspo-lab as a log: its settings and its journal, without a database."""

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from gspo_lab.common.errors import LabError
from gspo_lab.exchange.importers.base import Log, LoggedRow
from gspo_lab.exchange.importers.metric_names import OF_STEPS, OF_UPDATES, WHOLE
from gspo_lab.recording.journal import JournalReader, in_force
from gspo_lab.recording.records import ROLLOUT, AnswerRecord, from_dict
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.study.dotted_keys import flat

FIRST = "first/"
"""Prefix of a number of mini-batch 0, before any update of its rollout batch."""
LATER = "later/"
"""Prefix of the mean over the later mini-batches."""
LAST = "last/"
"""Prefix of a number of the last mini-batch."""
FLAG = "nonfinite"


def read_own_run(path: Path) -> Log:
    """The run of a folder, or of its journal. LabError if it is no run of gspo-lab."""
    folder = RunFolder(path if path.is_dir() else path.parent)
    declared = folder.specification()
    if declared is None or not folder.journal.is_file():
        raise LabError(f"{folder.path}: no run.json with a journal, so it is no run of gspo-lab")
    lines = in_force(JournalReader(folder.journal))
    facts = [line["facts"] for line in lines if line.get("facts")]
    settings = flat(declared["settings"]).items()
    return Log(
        "gspo-lab",
        _rows(lines),
        [folder.journal],
        version=facts[0].get("gspo_lab") if facts else None,
        settings={key: value for key, value in settings if value is not None},
        answers=_answers(lines),
    )


def _answers(lines: list[dict[str, Any]]) -> Iterator[AnswerRecord]:
    for line in lines:
        if line.get("kind") == AnswerRecord.kind and line["bench"] != ROLLOUT:
            record = from_dict(line)
            assert isinstance(record, AnswerRecord)
            yield record


def _rows(lines: list[dict[str, Any]]) -> Iterator[LoggedRow]:
    """A row per step: its own numbers, and those of its mini-batches."""
    updates: dict[int, list[dict[str, Any]]] = {}
    for line in lines:
        if line.get("kind") == "update":
            updates.setdefault(line["step"], []).append(line)
        elif line.get("kind") == "step":
            numbers = {name: line.get(name) for name in OF_STEPS - WHOLE}
            yield line["step"], numbers | _update_numbers(updates.get(line["step"], []))


def _update_numbers(updates: list[dict[str, Any]]) -> dict[str, float]:
    """The means over a step's mini-batches: all, the first, the later ones and the last."""
    numbers: dict[str, float] = {}
    minibatches = {"": updates, FIRST: updates[:1], LATER: updates[1:], LAST: updates[-1:]}
    for prefix, rows in minibatches.items():
        for name in OF_UPDATES - WHOLE:
            values = [row[name] for row in rows if row.get(name) is not None]
            if values:
                numbers[prefix + name] = fmean(values)
    flags = [row[FLAG] for row in updates if row.get(FLAG) is not None]
    if flags:
        numbers[FLAG] = max(flags)
    return numbers
