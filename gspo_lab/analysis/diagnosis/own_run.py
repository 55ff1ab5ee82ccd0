"""A run's folder of gspo-lab as a log: its settings and its journal, without a database."""

from collections.abc import Iterator
from pathlib import Path

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.journal import JournalReader, from_dict, in_force
from gspo_lab.recording.records import ROLLOUT, AnswerRecord, Record, StepRecord, UpdateRecord
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.study.dotted_keys import flat

READ = {StepRecord.kind, UpdateRecord.kind, AnswerRecord.kind}
FIRST = "first/"
"""Prefix of a number of mini-batch 0, before any update of its rollout batch."""
LATER = "later/"
"""Prefix of the mean over the later mini-batches."""
LAST = "last/"
"""Prefix of a number of the last mini-batch."""
MINIBATCHES = {"": slice(None), FIRST: slice(1), LATER: slice(1, None), LAST: slice(-1, None)}
"""Prefix -> the mini-batches of a rollout batch whose mean it is."""


def read_own_run(path: Path) -> tuple[JsonObject, str | None, Iterator[Record]]:
    """The settings, the version and the records of a run, by its folder or its journal. LabError
    if it is no run of gspo-lab.
    """
    folder = RunFolder(path if path.is_dir() else path.parent)
    declared = folder.specification()
    if declared is None or not folder.journal.is_file():
        raise LabError(f"{folder.path}: no run.json with a journal, so it is no run of gspo-lab")
    lines = in_force(JournalReader(folder.journal))
    versions = [line["facts"].get("gspo_lab") for line in lines if line.get("facts")]
    records = (
        from_dict(line)
        for line in lines
        if line.get("kind") in READ and line.get("bench") != ROLLOUT
    )
    return flat(declared["settings"]), next(iter(versions), None), records
