"""LiveCodeBench (arXiv 2403.07974), code generation: programs in Python, judged by hidden tests.

The files are 4.4 GB and hold all tests. They are read through once; what was found is kept in the
cache as an index, and a problem's tests are read from their place when an answer to it is graded,
held to the sha256 of their line.
"""

import base64
import binascii
import calendar
import contextlib
import functools
import hashlib
import io
import json
import pickle
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from gspo_lab.common.atomic_files import atomic_file
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import cache_folder
from gspo_lab.common.plain_data import JsonMapping, OptionalInt
from gspo_lab.common.registry import unlisted
from gspo_lab.tasks.base import Grade, Problem, number_option
from gspo_lab.tasks.benchmarks.datasets import (
    LIVECODEBENCH,
    DataFile,
    DatasetRow,
    DatasetSource,
    digest,
    find_files,
    lines,
    parsed_json,
)
from gspo_lab.tasks.benchmarks.output_comparison import ComparisonRule
from gspo_lab.tasks.benchmarks.program_grading import (
    Case,
    ProgramBenchmark,
    cases_digest,
    grade_program,
    sandbox,
)
from gspo_lab.tasks.sandbox import Limits, Program

INDEX_VERSION = 1
KEPT = {
    "id": "question_id",
    "title": "question_title",
    "statement": "question_content",
    "platform": "platform",
    "date": "contest_date",
    "difficulty": "difficulty",
    "starter": "starter_code",
}
"""What the index keeps of a row: its own names and the columns."""
COLUMNS = (*KEPT.values(), "contest_id", "public_test_cases", "private_test_cases", "metadata")
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
class ReleaseWindow:
    """Contest dates from the first day of a month to the last day of another, which is read as its
    midnight.

    That is the official slicing: of a contest on the last day, one that begins later than 00:00
    falls out.
    """

    start: datetime
    end: datetime

    @classmethod
    def parse(cls, name: str) -> "ReleaseWindow":
        """`2410-2502`: from 2024-10-01 to 2025-02-28."""
        match = _WINDOW.fullmatch(name)
        if not match:
            raise LabError(
                f"livecodebench: window = {name!r} must be YYMM-YYMM, like '2410-2502', or 'all'"
            )
        start_year, start_month, end_year, end_month = map(int, match.groups())
        start = datetime(2000 + start_year, start_month, 1)
        end_day = calendar.monthrange(2000 + end_year, end_month)[1]
        end = datetime(2000 + end_year, end_month, end_day)
        if end < start:
            raise LabError(f"livecodebench: the window {name} ends before it begins")
        return cls(start, end)

    def holds(self, date: str) -> bool:
        """Whether a contest's date, ISO and without a zone, lies in the window."""
        return self.start <= datetime.fromisoformat(date) <= self.end


def read_entries(
    files: Sequence[DataFile], window: ReleaseWindow | None, count: OptionalInt
) -> list[Entry]:
    """The problems in the window, in the order of the files, from the index in the cache or by
    reading through.

    LabError where the files do not hold `count` different problems (None: any number) or cannot be
    read.
    """
    try:
        stats = [file.path.stat() for file in files]
    except OSError as error:
        raise LabError(f"{error.filename}: cannot be read: {error}") from error
    versions = [
        [str(f.path), stat.st_size, stat.st_mtime_ns, f.sha256]
        for f, stat in zip(files, stats, strict=True)
    ]
    key = [INDEX_VERSION, versions, [str(window), count]]
    path = cache_folder() / "benchmarks" / f"livecodebench-{digest(key)[:16]}.json"
    if path.is_file():
        return [Entry(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
    entries = list(_scan(files, window, count))
    # Whole or not at all; a cache that cannot be written stops nothing.
    with contextlib.suppress(OSError), atomic_file(path, shared=True) as temporary:
        temporary.write_text(json.dumps([asdict(entry) for entry in entries]), encoding="utf-8")
    return entries


@functools.lru_cache(maxsize=4)
def read_cases(entry: Entry) -> list[Case]:
    """A problem's tests, public and private; LabError where its line has changed."""
    try:
        with Path(entry.file).open("rb") as file:
            file.seek(entry.offset)
            line = file.read(entry.length)
    except OSError as error:
        raise LabError(f"{entry.file}: cannot be read any more: {error}") from error
    if hashlib.sha256(line).hexdigest() != entry.sha256:
        raise LabError(f"{entry.file}: the line of {entry.id} has changed; start again")
    return decode_cases(
        f"{entry.file}, {entry.id}", json.loads(line), functional=entry.function is not None
    )


def _scan(
    files: Sequence[DataFile], window: ReleaseWindow | None, count: OptionalInt
) -> Iterator[Entry]:
    places: dict[str, str] = {}
    for file in files:
        file_hash = hashlib.sha256()
        for number, offset, line in lines(file.path, file_hash):
            where = f"{file.path}:{number}"
            row = _row(where, line)
            if row["question_id"] in places:
                raise LabError(
                    f"{where}: the problem {row['question_id']} is also at"
                    f" {places[row['question_id']]}"
                )
            places[row["question_id"]] = where
            if window is None or window.holds(row["contest_date"]):
                yield _entry(where, row, file.path, offset, line)
        file.check(file_hash.hexdigest())
    if count is not None and len(places) != count:
        raise LabError(
            f"livecodebench: {len(places)} problems in {len(files)} files, not the {count} of the"
            " release"
        )


def _row(where: str, line: bytes) -> DatasetRow:
    row = parsed_json(where, line)
    missing = [
        name for name in COLUMNS if not isinstance(row, dict) or not isinstance(row.get(name), str)
    ]
    if missing:
        raise LabError(
            f"{where}: no text in {', '.join(missing)}; is this a file of code_generation_lite?"
        )
    try:
        datetime.fromisoformat(row["contest_date"]).replace(tzinfo=None)
    except ValueError as error:
        raise LabError(
            f"{where}: the contest_date {row['contest_date']!r} is not an ISO date"
        ) from error
    return dict(row)


def _entry(where: str, row: DatasetRow, path: Path, offset: int, line: bytes) -> Entry:
    function = _function(where, row)
    cases = decode_cases(where, row, functional=function is not None)
    return Entry(
        **{name: row[column] for name, column in KEPT.items()},
        function=function,
        tests=len(cases),
        tests_sha256=cases_digest(cases),
        file=str(path),
        offset=offset,
        length=len(line),
        sha256=hashlib.sha256(line).hexdigest(),
    )


def _function(where: str, row: DatasetRow) -> str | None:
    """The method that is called; None for a script that reads stdin."""
    try:
        name = json.loads(row["metadata"] or "{}").get("func_name")
    except (ValueError, AttributeError) as error:
        raise LabError(
            f"{where}: the metadata are no JSON object: {row['metadata'][:40]!r}"
        ) from error
    if name is not None and not (isinstance(name, str) and name.isidentifier()):
        raise LabError(f"{where}: func_name {name!r:.40} is not the name of a function")
    return name


LARGEST = 2 << 30
"""Bytes that a payload may grow to when it is unpacked; the largest of release_v6 is a tenth of
that.
"""


class _OnlyText(pickle.Unpickler):
    """Refuses every global, and with them all that a pickle could do beside being data."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"the global {module}.{name} is refused")

    def persistent_load(self, pid: Any, /) -> NoReturn:
        raise pickle.UnpicklingError("persistent ids are refused")


def decode_cases(where: str, row: JsonMapping, *, functional: bool) -> list[Case]:
    """Public, then private tests of a row; LabError where they cannot be decoded, are of another
    kind, or are none.

    `functional` tests hold JSON values: one per line as input, one as output.
    """
    public = _json(row["public_test_cases"])
    private = _json(row["private_test_cases"])
    if private is None:
        try:
            private = _json(_unpack(row["private_test_cases"]))
        # A pickle may fail in many ways; none of them may pass for an empty list of tests.
        except Exception as error:
            raise LabError(
                f"{where}: private_test_cases cannot be decoded: {type(error).__name__}: {error}"
            ) from error
    for column, tests in (("public_test_cases", public), ("private_test_cases", private)):
        if not isinstance(tests, list):
            raise LabError(f"{where}: {column} is not a JSON list of tests")
    if not public + private:
        raise LabError(f"{where}: no tests; without any, every program would pass")
    kind = "functional" if functional else "stdin"
    return [_case(where, kind, entry) for entry in public + private]


def _unpack(text: str) -> str:
    unzip = zlib.decompressobj()
    try:
        packed = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"neither JSON nor base64: {error}") from error
    raw = unzip.decompress(packed, LARGEST)
    if not unzip.eof:
        raise ValueError("cut off, or larger than any known")
    text_inside = _OnlyText(io.BytesIO(raw)).load()
    if not isinstance(text_inside, str):
        raise TypeError(f"the pickle holds {type(text_inside).__name__}, not text")
    return text_inside


def _json(text: str) -> Any:
    """The value of a JSON text, None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _case(where: str, kind: str, entry: Any) -> Case:
    texts = (
        [entry.get(key) for key in ("input", "output", "testtype")]
        if isinstance(entry, dict)
        else [None]
    )
    if not all(isinstance(text, str) for text in texts):
        raise LabError(
            f"{where}: a test is not an object with the texts input, output and testtype"
        )
    input_text, expected, test_kind = map(str, texts)
    if test_kind != kind:
        raise LabError(
            f"{where}: a test is of type {test_kind!r} where the problem's metadata say {kind!r}"
        )
    if kind == "functional":
        try:
            json.loads(expected, parse_int=str)  # whole numbers may be longer than Python reads
        except ValueError as error:
            raise LabError(
                f"{where}: a functional test expects {expected[:40]!r}, which is not JSON"
            ) from error
    return Case(input_text.encode(), expected.encode())


ERRATA: dict[
    str, str
] = {  # by id or title, from the issues of LiveCodeBench (several right outputs: #106)
    **dict.fromkeys(
        (
            "abc311_c",
            "abc326_d",
            "abc327_b",
            "abc333_e",
            "abc343_a",
            "abc343_e",
            "abc362_c",
            "arc185_c",
            "find-words-containing-character",
            "find-the-peaks",
            "generate-binary-strings-without-adjacent-zeros",
        ),
        "several right outputs",
    ),
    **dict.fromkeys(("abc337_e", "abc355_e"), "interactive"),
    **dict.fromkeys(
        ("abc350_c", "apply-operations-to-make-string-empty", "most-frequent-ids", "arc189_a"),
        "bad tests",
    ),
}


GIB = 1 << 30
OWN = "file"
_NAME = re.compile(r"livecodebench(?:-(?P<release>v\d|file))?(?:-(?P<window>\d{4}-\d{4}|all))?")


class LiveCodeBench(ProgramBenchmark):
    """The problems of a release whose contests lie in a window; the GSPO paper's is v5, 2024-10 to
    2025-02: 166.

    `release` is LiveCodeBench's release_vN, files 1 to N, also written vN; `"file"`: the rows of
    `data`, however many. `window` is YYMM-YYMM or "all". Tests may take `seconds` of CPU time each.
    """

    prompt_version = "lcb/1"
    usual_name = "livecodebench-v5-2410-2502"
    """The release and window of the GSPO paper."""

    def __init__(
        self,
        release: str = "v5",
        window: str = "",
        data: str | None = None,
        compare: ComparisonRule = "lcb",
        seconds: float = 6.0,
        unsafe: bool = False,
    ) -> None:
        self.release = release.removeprefix("release_")
        if self.release != OWN and f"release_{self.release}" not in LIVECODEBENCH:
            releases = [name.removeprefix("release_") for name in LIVECODEBENCH] + [OWN]
            raise LabError(f"livecodebench: no release {unlisted(release, releases, 'there are')}")
        if self.release == OWN and data is None:
            raise LabError(
                "livecodebench: release = 'file' takes the rows of your own file; name it with data"
                " = 'FILE'"
            )
        seconds = number_option("livecodebench", "seconds", seconds, 600)
        window = window or ("all" if self.release == OWN else "2410-2502")
        self.window = None if window == "all" else ReleaseWindow.parse(window)
        self.name = f"livecodebench-{self.release}" + ("" if window == "all" else f"-{window}")
        self.grader = f"livecodebench-{compare}-{seconds:g}s/1"
        super().__init__(data, compare, unsafe)
        self.limits = Limits(seconds=seconds, memory_bytes=4 * GIB)

    def read(self) -> tuple[Problem, ...]:
        """The problems of the file within the window of dates."""
        return tuple(_problem(entry) for entry in self._entries.values())

    @classmethod
    def options_in(cls, name: str) -> Mapping[str, str]:
        """Release "v5" and window "2408-2502" of `livecodebench-v5-2408-2502`.

        LabError for another name.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise LabError(
                f"unknown task '{name}'; a livecodebench is called like livecodebench-v5-2410-2502"
            )
        return {key: value for key, value in match.groupdict().items() if value}

    def grade_stated(self, problem: Problem, extracted: str) -> Grade:
        """Right is a program that passes all tests, the public ones first; see `grade_program`."""
        entry = self._entries[problem.id]
        program = Program(extracted, entry.function)
        return grade_program(
            sandbox(self.unsafe), program, read_cases(entry), self.limits, self.rule
        )

    @functools.cached_property
    def _entries(self) -> Mapping[str, Entry]:
        source = LIVECODEBENCH.get(f"release_{self.release}")
        files = _of_release(find_files(self.name, ["livecodebench"], source, self.data), source)
        entries = read_entries(files, self.window, None if source is None else source.rows)
        if not entries:
            raise LabError(f"{self.name}: no problem of the release lies in the window")
        return {entry.id: entry for entry in entries}


def _of_release(files: list[DataFile], source: DatasetSource | None) -> list[DataFile]:
    """The files of the release in a folder of published files; other files as they are."""
    if source is None:
        return files
    if not all(file.path.name in LIVECODEBENCH["release_v6"].files for file in files):
        return files
    by_name = {file.path.name: file for file in files}
    missing = [name for name in source.files if name not in by_name]
    if missing:
        raise LabError(f"{files[0].path.parent}: the release needs {', '.join(missing)} too")
    return [by_name[name] for name in source.files]


def _problem(entry: Entry) -> Problem:
    flags = ERRATA.get(entry.id, ERRATA.get(entry.title))
    reference = {
        "tests": entry.tests,
        "sha256": entry.tests_sha256[:16],
        "platform": entry.platform,
        "difficulty": entry.difficulty,
        "date": entry.date,
        **({} if flags is None else {"errata": flags}),
    }
    return Problem(entry.id, _prompt(entry), json.dumps(reference))


def _prompt(entry: Entry) -> str:
    """The official headings and fences, with the instruction at the head of the user's message (see
    docs).
    """
    if entry.starter.strip():
        form = (
            "Complete the starter code below and give the whole program in one block, fenced as"
            " it is."
        )
        code = entry.starter
    else:
        form = (
            "Read the input from standard input and write the answer to standard output, without"
            " trying it on the examples. Give the whole program in one block, fenced as below."
        )
        code = "# YOUR CODE HERE"
    return (
        "You are an expert Python programmer. Write a correct Python program for the problem"
        " below, one that meets its specification and passes all tests.\n\n###"
        f" Question:\n{entry.statement}\n\n### Format:\n{form}\n```python\n{code}\n```\n\n###"
        " Answer:\n"
    )
