"""The six records that a worker writes, its only output for the rest of gspo-lab.

An engine makes them, the journal carries them as JSON lines, and the store's `ingest` turns them
into rows. A field is a column of its table under the same name. Its unit and meaning, written once,
become docs/reference/metrics.md, the table `metrics` of the database and the captions of the
report. None means "not measured" and is NULL, never 0.
"""

import math
from dataclasses import fields
from typing import get_args

from gspo_lab.common.plain_data import JsonMapping, JsonObject
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
    "from_dict",
    "is_time",
    "to_dict",
    "voided",
]

Record = StepRecord | UpdateRecord | AnswerRecord | ScoreRecord | GradeRecord | RunStatus
RECORDS: dict[str, type[Record]] = {cls.kind: cls for cls in get_args(Record)}


def voided(record: JsonMapping, step: int) -> bool:
    """Whether `started` at `step` voids a record of an earlier worker, by the rule of `RunStatus`.

    An evaluation after `step` steps stays, because it came before; all other records of `step` are
    made again.
    """
    kind = record.get("kind")
    if kind == ScoreRecord.kind or (kind == AnswerRecord.kind and record["bench"] != ROLLOUT):
        return bool(record["step"] > step)
    return kind in (StepRecord.kind, UpdateRecord.kind, AnswerRecord.kind) and bool(
        record["step"] >= step
    )


def is_time(name: str) -> bool:
    """Whether a field is a time or depends on the machine's load: the only columns in which twin
    runs may differ.
    """
    return "seconds" in name or name in {"at", "peak_memory_bytes"}


def to_dict(record: Record) -> JsonObject:
    """A JSON-able dictionary with the record's kind; None fields are left out, non-finite floats
    are None too.
    """
    out: JsonObject = {"kind": record.kind}
    for name in _names(type(record)):
        value = getattr(record, name)
        if value is not None and not (isinstance(value, float) and not math.isfinite(value)):
            out[name] = value
    return out


def from_dict(data: JsonObject) -> Record:
    """The record of `to_dict`; unknown fields are ignored."""
    cls = RECORDS[data["kind"]]
    names = _names(cls)
    return cls(**{name: value for name, value in data.items() if name in names})


_NAMES: dict[type, tuple[str, ...]] = {}


def _names(cls: type) -> tuple[str, ...]:
    if cls not in _NAMES:
        _NAMES[cls] = tuple(f.name for f in fields(cls))
    return _NAMES[cls]
