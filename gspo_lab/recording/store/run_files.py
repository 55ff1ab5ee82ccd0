"""The files under `runs/` for `ingest`: their kinds, how far they were read, what has changed, what
is damaged.
"""

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from gspo_lab.common.atomic_files import BROKEN_SEAL, as_text, is_seal_broken
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import EVALUATION, EVALUATIONS, GRADES, JOURNAL, RUN, SUBJECT, SUBJECTS
from gspo_lab.common.plain_data import JsonObject, OptionalText, Strings
from gspo_lab.common.states import State

END_LOST = 2
"""In column `gap`: the journal was longer when it was read before."""
FOREIGN = 3
"""In column `gap`: the journal belongs to another run or subject.

Its first line or its declaration says so.
"""
PLACES = {
    0: ", line {}: damaged and left out",
    1: ": a line is missing or doubled before line {}",
    FOREIGN: ": recorded for another run and left out",
    END_LOST: ": its end is gone or damaged, from line {} on",
}
"""The messages by the value of column `gap`; they follow the journal's name."""

REMEDY = "Put the file back from a copy, or delete its folder and make it again"
NO_RUN = (
    "is missing, so that the run is missing from every number. Put the file back from a copy, or"
    " move its folder away"
)
"""The message for a run.json with a journal in the wrong place beside it."""

LINES = (
    "SELECT run_id, path, COALESCE(gap, 0), GROUP_CONCAT(line, ', ') FROM (SELECT path, line,"
    " run_id, gap FROM damaged ORDER BY path, line) WHERE run_id NOT IN (SELECT run_id FROM runs"
    f" WHERE state = '{State.MISSING}') GROUP BY 2, 3 ORDER BY 2, 3"
)
WHOLE = """
    SELECT COUNT(*) = json_array_length(content, '$.asked.problems') * json_extract(content, '$.asked.samples')
                      * MAX(1, (SELECT COUNT(*) FROM json_each(content, '$.subject.checkpoints')))
    FROM evaluations JOIN answers USING (run_id, evaluation) WHERE run_id = ? AND evaluation = ?"""  # noqa: E501
"""Whether an evaluation has every answer that it declares, of the two checkpoints of a run of
either.
"""


class FileRow(NamedTuple):
    """A row of the table `files`, without its path."""

    size: int
    modified_ns: int
    offset: int
    head: OptionalText
    tail: OptionalText = None


class RecordFile(NamedTuple):
    """The content of a file of a run or a subject.

    `part` is run, evaluation or grades of a journal, and the file's name of a JSON file.
    """

    run_id: str
    evaluation: str
    part: str


def sources(runs: Path, run_id: str, stored_names: Iterable[str]) -> dict[str, RecordFile]:
    """The files of a run or a subject by path, its specification first.

    Those of `stored_names` that were deleted since are among them.
    """
    specification = SUBJECT if is_subject(run_id) else RUN
    evaluations = [
        f"{EVALUATIONS}/{folder.name}/" for folder in folders(runs / run_id / EVALUATIONS)
    ]
    names = [specification]
    for place in ("", *evaluations):
        names += [f"{place}{JOURNAL}", f"{place}{GRADES}/{JOURNAL}"]
    names += [f"{place}{EVALUATION}" for place in evaluations]
    for path in stored_names:
        name = path.removeprefix(f"{run_id}/")
        if name != path and name.startswith((f"{EVALUATIONS}/", f"{GRADES}/")):
            names.append(name)
    return {f"{run_id}/{name}": _source(run_id, name.split("/")) for name in names}


def _source(run_id: str, place: list[str]) -> RecordFile:
    evaluation = place[1] if place[0] == EVALUATIONS else ""
    part = place[-1]
    if part == JOURNAL:
        part = "evaluation" if evaluation else "run"
        if place[-2:-1] == [GRADES]:
            part = "grades"
    return RecordFile(run_id, evaluation, part)


def is_subject(run_id: str) -> bool:
    """Whether it is a model or a server that was evaluated without a run."""
    return run_id.startswith(f"{SUBJECTS}/")


def folders(parent: Path) -> list[Path]:
    """The folders in `parent` by name, without those that begin with `_` or `.` (pilots,
    caches).
    """
    try:
        with os.scandir(parent) as entries:
            names = [
                entry.name for entry in entries if entry.name[0] not in "_." and entry.is_dir()
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [parent / name for name in sorted(names)]


def run_folders(study: Path) -> tuple[list[Path], list[Path]]:
    """The folders of a study's runs by arm and name: those with a run.json, and those that only
    have a journal.
    """
    specified = []
    unspecified = []
    for arm in folders(study):
        for folder in folders(arm):
            if (folder / RUN).is_file():
                specified.append(folder)
            elif (folder / JOURNAL).is_file():
                unspecified.append(folder)
    return specified, unspecified


def all_seen(connection: sqlite3.Connection) -> dict[str, FileRow]:
    """The table `files`."""
    query = "SELECT path, size, modified_ns, offset, head, tail FROM files"
    return {path: FileRow(*values) for path, *values in connection.execute(query)}


def by_folder(rows: Mapping[str, FileRow]) -> dict[str, dict[str, FileRow]]:
    """The files of each run and each subject, by its id, in one pass."""
    by_run: dict[str, dict[str, FileRow]] = {}
    for name, row in rows.items():
        folders_of_name = name.split("/")
        by_run.setdefault(
            "/".join(folders_of_name[: 2 if folders_of_name[0] == SUBJECTS else 3]), {}
        )[name] = row
    return by_run


def record_progress(connection: sqlite3.Connection, name: str, row: FileRow | None) -> None:
    """Store how far a file was read, or delete its row if it is gone (None)."""
    if row is None:
        connection.execute("DELETE FROM files WHERE path = ?", (name,))
    else:
        connection.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?)", (name, *row))


def stamp(path: Path) -> FileRow | None:
    """A file's present size and time of change; None for a missing file.

    The time is the inode's, which no program can set: it changes even if an edit keeps size and
    modification time.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FileRow(status.st_size, status.st_ctime_ns, status.st_size, None)


def unchanged(present: FileRow | None, former: FileRow | None) -> bool:
    """Whether a file has not changed since it was last read; None: missing."""
    if present is None or former is None:
        return present is former
    return present.size == former.size and present.modified_ns == former.modified_ns


def first_line(path: Path) -> OptionalText:
    """The digest of a journal's first line; None while that is not complete."""
    with path.open("rb") as file:
        line = file.readline()
    return hashlib.sha256(line).hexdigest() if line.endswith(b"\n") else None


def json_file(path: Path) -> JsonObject:
    """The JSON object in a file, or LabError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise LabError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise LabError(f"{path} must hold a JSON object")
    if is_seal_broken(path, content):
        raise LabError(
            f"{path} is damaged ({BROKEN_SEAL}): restore it from a copy, or move its folder away"
        )
    return content


def json_text(path: Path) -> tuple[str, JsonObject]:
    """A JSON object of a file, with its text as `write_json` writes it.

    So changed white space is no change.
    """
    content = json_file(path)
    try:
        return as_text(content), content
    except RecursionError as error:
        raise LabError(f"{path} cannot be read: {error}") from error


def _refuse_constant(name: str) -> None:
    """NaN and Infinity, which Python would read and SQLite's functions would not."""
    raise ValueError(f"{name} is no JSON")


def damage_messages(connection: sqlite3.Connection, runs: Path) -> Strings:
    """A line for each journal with missing records."""
    return tuple(
        f"{runs / path}{PLACES[gap].format(lines)}; what it recorded is missing from every number. "
        + (
            "The same gspo-lab eval asks it again"
            if path.split("/")[-3:-2] == [EVALUATIONS]
            else REMEDY
        )
        for run, path, gap, lines in connection.execute(LINES).fetchall()
        if not _is_answered_again(connection, run, path)
    )


def _is_answered_again(connection: sqlite3.Connection, run: str, path: str) -> bool:
    """Whether the damaged answers of an evaluation have been asked for anew since."""
    *_, where, evaluation, _ = path.split("/")
    return where == EVALUATIONS and connection.execute(WHOLE, (run, evaluation)).fetchone() == (1,)
