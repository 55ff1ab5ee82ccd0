"""LiveCodeBench's rows: which problems a release and a window of dates hold, and where in its files they lie.

The files are 4.4 GB and hold all tests. They are read through once; what was found is kept in the cache as an index,
and a problem's tests are read from their place when an answer to it is graded, held to the sha256 of their line.
"""

import calendar
import contextlib
import functools
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from gspo_lab.errors import LabError
from gspo_lab.files import whole
from gspo_lab.layout import cache_folder
from gspo_lab.tasks.benchmarks.cases import Case, cases_digest, decode_cases
from gspo_lab.tasks.benchmarks.datasets import DataFile, Row, digest, lines

INDEX_VERSION = 1
COLUMNS = (
    *("question_title", "question_content", "platform", "question_id", "contest_id", "contest_date"),
    *("starter_code", "difficulty", "public_test_cases", "private_test_cases", "metadata"),
)
_WINDOW = re.compile(r"(\d\d)(0[1-9]|1[0-2])-(\d\d)(0[1-9]|1[0-2])")


@dataclass(frozen=True, slots=True)
class Entry:
    """One problem without its tests, and where its line is: file, offset, bytes, sha256."""

    id: str
    title: str
    statement: str
    platform: str
    date: str
    difficulty: str
    starter: str
    function: str | None
    tests: int
    tests_sha256: str
    file: str
    offset: int
    length: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Window:
    """Contest dates from the first day of a month to the last day of another, which is read as its midnight.

    That is the official slicing: of a contest on the last day, one that begins later than 00:00 falls out.
    """

    start: datetime
    end: datetime

    @classmethod
    def named(cls, name: str) -> "Window":
        """`2410-2502`: from 2024-10-01 to 2025-02-28."""
        found = _WINDOW.fullmatch(name)
        if not found:
            raise LabError(f"livecodebench: window = {name!r} must be YYMM-YYMM, like '2410-2502', or 'all'")
        first_year, first, last_year, last = (int(part) for part in found.groups())
        start = datetime(2000 + first_year, first, 1)
        end = datetime(2000 + last_year, last, calendar.monthrange(2000 + last_year, last)[1])
        if end < start:
            raise LabError(f"livecodebench: the window {name} ends before it begins")
        return cls(start, end)

    def holds(self, date: str) -> bool:
        """Whether a contest's date, ISO and without a zone, lies in the window."""
        return self.start <= datetime.fromisoformat(date) <= self.end


def read_entries(files: Sequence[DataFile], window: Window | None, count: int | None) -> list[Entry]:
    """The problems in the window, in the order of the files, from the index in the cache or by reading through.

    LabError where the files do not hold `count` different problems (None: any number), where a file is not the
    published one, and where tests in the window cannot be decoded.
    """
    stated = [[str(file.path), *_stamp(file.path), file.sha256] for file in files]
    wanted = [INDEX_VERSION, stated, [str(window), count]]
    path = cache_folder() / "benchmarks" / f"livecodebench-{digest(wanted)[:16]}.json"
    if path.is_file():
        return [Entry(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
    entries = list(_scan(files, window, count))
    _keep(path, [asdict(entry) for entry in entries])
    return entries


@functools.lru_cache(maxsize=4)
def read_cases(entry: Entry) -> list[Case]:
    """A problem's tests, public and private; LabError where its line is no longer what it was."""
    try:
        with Path(entry.file).open("rb") as file:
            file.seek(entry.offset)
            line = file.read(entry.length)
    except OSError as error:
        raise LabError(f"{entry.file}: cannot be read any more: {error}") from error
    if hashlib.sha256(line).hexdigest() != entry.sha256:
        raise LabError(f"{entry.file}: the line of {entry.id} has changed; start again")
    return _cases(f"{entry.file}, {entry.id}", json.loads(line))


def _scan(files: Sequence[DataFile], window: Window | None, count: int | None) -> Iterator[Entry]:
    seen: dict[str, str] = {}
    for file in files:
        whole = hashlib.sha256()
        for number, offset, line in lines(file.path, whole):
            where = f"{file.path}:{number}"
            row = _row(where, line)
            if row["question_id"] in seen:
                raise LabError(f"{where}: the problem {row['question_id']} is also at {seen[row['question_id']]}")
            seen[row["question_id"]] = where
            if window is None or window.holds(row["contest_date"]):
                yield _entry(where, row, file.path, offset, line)
        file.check(whole.hexdigest())
    if count is not None and len(seen) != count:
        raise LabError(f"livecodebench: {len(seen)} problems in {len(files)} files, not the {count} of the release")


def _row(where: str, line: bytes) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LabError(f"{where}: not JSON: {error}") from error
    missing = [name for name in COLUMNS if not isinstance(row, dict) or not isinstance(row.get(name), str)]
    if missing:
        raise LabError(f"{where}: no text in {', '.join(missing)}; is this a file of code_generation_lite?")
    try:
        datetime.fromisoformat(row["contest_date"]).replace(tzinfo=None)
    except ValueError as error:
        raise LabError(f"{where}: the contest_date {row['contest_date']!r} is no ISO date") from error
    checked: Row = row
    return checked


def _entry(where: str, row: Row, path: Path, offset: int, line: bytes) -> Entry:
    cases = _cases(where, row)
    return Entry(
        id=row["question_id"],
        title=row["question_title"],
        statement=row["question_content"],
        platform=row["platform"],
        date=row["contest_date"],
        difficulty=row["difficulty"],
        starter=row["starter_code"],
        function=_function(where, row),
        tests=len(cases),
        tests_sha256=cases_digest(cases),
        file=str(path),
        offset=offset,
        length=len(line),
        sha256=hashlib.sha256(line).hexdigest(),
    )


def _cases(where: str, row: Row) -> list[Case]:
    function = _function(where, row)
    return decode_cases(where, row["public_test_cases"], row["private_test_cases"], functional=function is not None)


def _function(where: str, row: Row) -> str | None:
    """The method that is called; None for a script that reads stdin."""
    try:
        name = json.loads(row["metadata"] or "{}").get("func_name")
    except (ValueError, AttributeError) as error:
        raise LabError(f"{where}: the metadata are no JSON object: {row['metadata'][:40]!r}") from error
    if name is not None and not (isinstance(name, str) and name.isidentifier()):
        raise LabError(f"{where}: func_name {name!r:.40} is no name of a function")
    return name


def _stamp(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError as error:
        raise LabError(f"{path}: cannot be read: {error}") from error
    return stat.st_size, stat.st_mtime_ns


def _keep(path: Path, data: object) -> None:
    """Write the index whole or not at all; a cache that cannot be written is no reason to stop."""
    with contextlib.suppress(OSError), whole(path, shared=True) as beside:
        beside.write_text(json.dumps(data), encoding="utf-8")
