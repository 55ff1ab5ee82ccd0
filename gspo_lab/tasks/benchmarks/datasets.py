"""Rows of published data sets: from a file that the user names, from GSPO_LAB_DATA, or from the
Hub, in this order.

Files from the Hub are of one commit, and are checked by their published sha256, if any. Commits and
digests are those of public repositories that pin the same files (docs/reference/benchmarks.md). A
user's files are used as they are; the task's `data_digest` is made of what was read.
"""

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_lab.common.atomic_files import sha256_of
from gspo_lab.common.errors import LabError, require_package

VARIABLE = "GSPO_LAB_DATA"
SUFFIXES = (".jsonl", ".json", ".parquet")

DatasetRow = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DatasetSource:
    """Files of one commit of a dataset on the Hub that hold `rows` problems together: path ->
    sha256 where known.
    """

    repository: str
    commit: str
    files: Mapping[str, str | None]
    rows: int


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a data set, and its published sha256; None where none is known, or where the file
    is the user's.
    """

    path: Path
    sha256: str | None = None
    published: bool = False
    """Whether it comes from the Hub."""

    def check(self, got: str | None = None) -> None:
        """LabError where the file's sha256 (`got`, where the caller has it) is not the published
        one.
        """
        if self.sha256 is None:
            return
        got = got or sha256_of(self.path)
        if got != self.sha256:
            raise LabError(
                f"{self.path} has the sha256 {got[:12]}..., not the published"
                f" {self.sha256[:12]}...; delete it and fetch it again"
            )


def find_files(
    name: str, stems: Sequence[str], source: DatasetSource | None, data: str | None
) -> list[DataFile]:
    """The files that hold the data set `name`, in order.

    `data` is the user's file, or a folder of which all data files are taken. Without it
    GSPO_LAB_DATA is looked at: a file, or a folder with `<stem>.jsonl` (.json, .parquet) or a
    sub-folder `<stem>` for one of `stems`. Then `source` is fetched. LabError, one line with the
    ways out, where nothing is found.
    """
    if data is not None:
        return [DataFile(path) for path in _data_files(Path(data).expanduser(), f"{name}: data")]
    place = os.environ.get(VARIABLE)
    if place:
        paths = _in_place(Path(place).expanduser(), stems)
        if paths:
            return [DataFile(path) for path in paths]
    if source is None:
        raise LabError(
            f"{name}: has no published source; name your file with data = 'FILE' or {VARIABLE}"
        )
    return [
        DataFile(fetch(name, source, path), sha256, published=True)
        for path, sha256 in source.files.items()
    ]


def fetch(name: str, source: DatasetSource, file: str) -> Path:
    """The local copy of one file of a data set on the Hub, downloaded if need be; LabError where it
    cannot be had.
    """
    require_package("huggingface_hub", "bench", f"{name}: fetching {source.repository}")
    from huggingface_hub import hf_hub_download
    from huggingface_hub.constants import ENDPOINT
    from huggingface_hub.errors import LocalEntryNotFoundError

    ask = functools.partial(
        hf_hub_download, source.repository, file, repo_type="dataset", revision=source.commit
    )
    try:
        with contextlib.suppress(LocalEntryNotFoundError):
            return Path(ask(local_files_only=True))
        if silence := _silence(ENDPOINT):
            raise silence
        return Path(ask())
    # the client lets through what its HTTP library raises, which differs between versions
    except Exception as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())[:160]
        raise LabError(
            f"{name}: {file} of {source.repository} is not in the cache and cannot be fetched"
            f" ({message}); connect to the network once, or name a copy of your own with data ="
            f" 'FILE' (--data FILE) or {VARIABLE}"
        ) from error


@functools.cache
def _silence(endpoint: str) -> Exception | None:
    """Why the Hub does not answer, asked once; None where it does.

    The client itself tries for half a minute a file.
    """
    from huggingface_hub import get_session

    try:
        get_session().head(endpoint, timeout=10)
    except Exception as error:
        return error
    return None


def rows(path: Path) -> Iterator[DatasetRow]:
    """The rows of a .jsonl, .json (a list) or .parquet file as dictionaries; LabError with its
    place for any other.
    """
    if path.suffix == ".parquet":
        yield from _parquet_rows(path)
        return
    if path.suffix == ".json":
        listed = parsed_json(str(path), path.read_bytes())
        if not isinstance(listed, list):
            raise LabError(f"{path}: must hold a list of objects, not {type(listed).__name__}")
        for place, row in enumerate(listed):
            yield _row(f"{path}, item {place + 1}", row)
        return
    for number, _, line in lines(path):
        yield _row(f"{path}:{number}", parsed_json(f"{path}:{number}", line))


def lines(path: Path, file_hash: "hashlib._Hash | None" = None) -> Iterator[tuple[int, int, bytes]]:
    """`(line number from 1, offset in bytes, line)` of each line that is not empty; `whole` is fed
    with all of them.
    """
    offset = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if file_hash is not None:
                    file_hash.update(line)
                if line.strip():
                    yield number, offset, line
                offset += len(line)
    except OSError as error:
        raise LabError(f"{path}: cannot be read: {error}") from error


def digest(items: Any) -> str:
    """sha256 of JSON-able data in its one canonical form."""
    return hashlib.sha256(
        json.dumps(items, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def _data_files(path: Path, origin: str) -> list[Path]:
    """The file, or the folder's data files, shorter names first: test.jsonl, test2.jsonl, ...,
    test10.jsonl.
    """
    if path.is_file():
        if path.suffix not in SUFFIXES:
            raise LabError(f"{origin}: {path} must end in {', '.join(SUFFIXES)}")
        return [path]
    if not path.is_dir():
        raise LabError(f"{origin}: no file {path}")
    files = [file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file()]
    if not files:
        raise LabError(
            f"{origin}: the folder {path} has no file that ends in {', '.join(SUFFIXES)}"
        )
    return sorted(files, key=lambda file: (len(file.name), file.name))


def _in_place(place: Path, stems: Sequence[str]) -> list[Path]:
    if place.is_file():
        return _data_files(place, VARIABLE)
    if not place.is_dir():
        raise LabError(f"{VARIABLE}: no file or folder {place}")
    for stem in stems:
        for name in (*(f"{stem}{suffix}" for suffix in SUFFIXES), stem):
            if (place / name).exists():
                return _data_files(place / name, VARIABLE)
    return []


def _parquet_rows(path: Path) -> Iterator[DatasetRow]:
    require_package("pyarrow", "bench", f"reading {path}")
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=64):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise LabError(f"{path}: not a whole parquet file: {error}") from error


def parsed_json(where: str, text: bytes) -> Any:
    """The value of a JSON text, or LabError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LabError(f"{where}: not JSON: {error}") from error


def _row(where: str, value: Any) -> DatasetRow:
    if not isinstance(value, dict):
        raise LabError(f"{where}: must be an object, not {type(value).__name__}")
    return value


AIME24 = DatasetSource(
    "HuggingFaceH4/aime_2024",
    "2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
    {
        "data/train-00000-of-00001.parquet": (
            "26139847601a5037c237d5928b195e7260ca8074cf4f264b794af42847f79ccf"
        )
    },
    rows=30,
)
AIME25 = DatasetSource(
    "math-ai/aime25",
    "563bb8404243c5f09de6ec262f2db674fe5bce9b",
    {"test.jsonl": "b4e273c02d3e7fe1b74b59eae768fc8230bfb0f79539890cb56f4361caac0331"},
    rows=30,
)
MATH500 = DatasetSource(
    "HuggingFaceH4/MATH-500",
    "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
    {"test.jsonl": "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132"},
    rows=500,
)
_GSM8K = ("openai/gsm8k", "740312add88f781978c0658806c59bc2815b9866")
GSM8K: Mapping[str, DatasetSource] = {
    "train": DatasetSource(
        *_GSM8K,
        {
            "main/train-00000-of-00001.parquet": (
                "ea82612ea9582142387730c793eb67d3b12849002bc0b7fa6f8efafa7351419d"
            )
        },
        rows=7_473,
    ),
    "held-out": DatasetSource(
        *_GSM8K,
        {
            "main/test-00000-of-00001.parquet": (
                "ee7b8da9e381df27b9e3f7758a159ab2bdaa4dbaa910546cbbc47e0cb44e4f59"
            )
        },
        rows=1_319,
    ),
}
_LCB_FILES = {
    "test.jsonl": "2bd02b38beb48e8c46b5b9987095d999ff38cd8efc255ea5d58974317c48f63f",
    "test2.jsonl": "095df7c5daf15f882c51a9deb84085cff1e073495a5dbcf95015a564d485f3a3",
    "test3.jsonl": "28ed26cc83363ce3f1fe2d5fad9f8393077beb1907b167a31bd3b32f80801b79",
    "test4.jsonl": "d711138ddaebfcf5f8ec6a4283ee677298c0f5c5d374a235af92aaf0584510da",
    "test5.jsonl": "7f77571c2a6df0c2a72a3277650309f67e01e0008e18117e624633df53f81214",
    "test6.jsonl": "bb4c364f71921c4495a6ad15abe1a927350b720009f4933e2e71f8af0f6fd1f5",
}
LIVECODEBENCH: Mapping[str, DatasetSource] = {
    f"release_v{count}": DatasetSource(
        "livecodebench/code_generation_lite",
        "0fe84c3912ea0c4d4a78037083943e8f0c4dd505",
        dict(list(_LCB_FILES.items())[:count]),
        rows,
    )
    for count, rows in enumerate((400, 511, 612, 713, 880, 1_055), start=1)
}
"""The files of each release, which holds the files of those before it.

release_v5 is files 1 to 5, together 880 problems.
"""
CODEFORCES = DatasetSource(
    "open-r1/codeforces",
    "fbe3f6e903ee854eec2e69e9d96d0306cde59baf",
    {"verifiable/test-00000-of-00001.parquet": None},
    rows=422,
)
