"""The six records that a worker writes, its only output for the rest of gspo-lab.

An engine makes them, the journal carries them as JSON lines, and the store's `ingest` turns them
into rows. A field is a column of its table under the same name. Its unit and meaning, written once,
become docs/reference/metrics.md, the table `metrics` of the database and the captions of the
report. None means "not measured" and is NULL, never 0.
"""

from typing import get_args

from gspo_lab.recording.records.answer import (
    ROLLOUT,
    AnswerRecord,
    GradeRecord,
    ScoreRecord,
    StoredAnswer,
)
from gspo_lab.recording.records.step import RunStatus, StepRecord
from gspo_lab.recording.records.update import BAND_SCALES, REDUCTIONS, RULES, UpdateRecord

__all__ = [
    "BAND_SCALES",
    "REDUCTIONS",
    "ROLLOUT",
    "RULES",
    "AnswerRecord",
    "GradeRecord",
    "Record",
    "RunStatus",
    "ScoreRecord",
    "StepRecord",
    "StoredAnswer",
    "UpdateRecord",
    "is_time",
]

Record = StepRecord | UpdateRecord | AnswerRecord | ScoreRecord | GradeRecord | RunStatus
RECORDS: dict[str, type[Record]] = {cls.kind: cls for cls in get_args(Record)}


def is_time(name: str) -> bool:
    """Whether a field is a time or depends on the machine's load: the only columns in which twin
    runs may differ.
    """
    return "seconds" in name or name in {"at", "peak_memory_bytes"}
