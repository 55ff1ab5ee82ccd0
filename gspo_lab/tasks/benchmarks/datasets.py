"""Rows of published data sets: from a file that the user names, from GSPO_LAB_DATA, or from the Hub, in this order.

What comes from the Hub is one commit of it, and each file is held to its published sha256. Files of the user's are
taken as they are; what is read of them is what `data_digest` of the task is made from.
"""

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError, MissingExtra
from gspo_lab.tasks.benchmarks.sources import Source

VARIABLE = "GSPO_LAB_DATA"
SUFFIXES = (".jsonl", ".json", ".parquet")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a data set, and its published sha256; None where none is known, or where the file is the user's."""

    path: Path
    sha256: str | None = None
    published: bool = False
    """Whether it comes from the Hub."""

    def check(self, got: str | None = None) -> None:
        """LabError where the file's sha256 (`got`, where the caller has it) is not the published one."""
        if self.sha256 is None:
            return
        got = got or file_digest(self.path)
        if got != self.sha256:
            raise LabError(
                f"{self.path} has the sha256 {got[:12]}..., not the published {self.sha256[:12]}...; delete it and "
                "fetch it again"
            )


def find(name: str, stems: Sequence[str], source: Source | None, data: str | None) -> list[DataFile]:
    """The files that hold the data set `name`, in order.

    `data` is the user's file, or a folder of which all data files are taken. Without it GSPO_LAB_DATA is looked at: a
    file, or a folder with `<stem>.jsonl` (.json, .parquet) or a sub-folder `<stem>` for one of `stems`. Then `source`
    is fetched. LabError, one line with the ways out, where nothing is found.
    """
    if data is not None:
        return [DataFile(path) for path in _named(Path(data).expanduser(), f"{name}: data")]
    place = os.environ.get(VARIABLE)
    if place:
        paths = _in_place(Path(place).expanduser(), stems)
        if paths:
            return [DataFile(path) for path in paths]
    if source is None:
        raise LabError(f"{name}: has no published source; name your file with data = 'FILE' or {VARIABLE}")
    return [DataFile(fetch(name, source, file.path), file.sha256, published=True) for file in source.files]


def fetch(name: str, source: Source, file: str) -> Path:
    """The local copy of one file of a data set on the Hub, downloaded if need be; LabError where it cannot be had."""
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.constants import ENDPOINT
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ModuleNotFoundError as error:
        raise MissingExtra("huggingface_hub", "bench", f"{name}: fetching {source.repository}") from error
    try:
        with contextlib.suppress(LocalEntryNotFoundError):
            return Path(
                hf_hub_download(
                    source.repository, file, repo_type="dataset", revision=source.commit, local_files_only=True
                )
            )
        if silence := _silence(ENDPOINT):
            raise silence
        return Path(hf_hub_download(source.repository, file, repo_type="dataset", revision=source.commit))
    except Exception as error:  # the client lets through what its HTTP library raises, which differs between versions
        stated = " ".join(f"{type(error).__name__}: {error}".split())[:160]
        raise LabError(
            f"{name}: {file} of {source.repository} is not in the cache and cannot be fetched ({stated}); connect "
            f"to the network once, or name a copy of your own with data = 'FILE' (--data FILE) or {VARIABLE}"
        ) from error


@functools.cache
def _silence(endpoint: str) -> Exception | None:
    """Why the Hub does not answer, asked once; None where it does. The client itself tries for half a minute a file."""
    from huggingface_hub import get_session

    try:
        get_session().head(endpoint, timeout=10)
    except Exception as error:
        return error
    return None


def rows(path: Path) -> Iterator[Row]:
    """The rows of a .jsonl, .json (a list) or .parquet file as dictionaries; LabError with its place for any other."""
    if path.suffix == ".parquet":
        yield from _parquet_rows(path)
        return
    if path.suffix == ".json":
        listed = _parsed(str(path), path.read_bytes())
        if not isinstance(listed, list):
            raise LabError(f"{path}: must hold a list of objects, not {type(listed).__name__}")
        for place, row in enumerate(listed):
            yield _row(f"{path}, item {place + 1}", row)
        return
    for number, _, line in lines(path):
        yield _row(f"{path}:{number}", _parsed(f"{path}:{number}", line))


def lines(path: Path, whole: "hashlib._Hash | None" = None) -> Iterator[tuple[int, int, bytes]]:
    """`(line number from 1, offset in bytes, line)` of each line that is not empty; `whole` is fed with all of them."""
    offset = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if whole is not None:
                    whole.update(line)
                if line.strip():
                    yield number, offset, line
                offset += len(line)
    except OSError as error:
        raise LabError(f"{path}: cannot be read: {error}") from error


def file_digest(path: Path) -> str:
    """sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(items: Any) -> str:
    """sha256 of JSON-able data in its one canonical form."""
    return hashlib.sha256(json.dumps(items, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _named(path: Path, what: str) -> list[Path]:
    if path.is_file():
        if path.suffix not in SUFFIXES:
            raise LabError(f"{what}: {path} must end in {', '.join(SUFFIXES)}")
        return [path]
    if path.is_dir():
        files = _files(path)
        if not files:
            raise LabError(f"{what}: the folder {path} has no file that ends in {', '.join(SUFFIXES)}")
        return files
    raise LabError(f"{what}: no file {path}")


def _in_place(place: Path, stems: Sequence[str]) -> list[Path]:
    if place.is_file():
        return _named(place, VARIABLE)
    if not place.is_dir():
        raise LabError(f"{VARIABLE}: no file or folder {place}")
    for stem in stems:
        for suffix in SUFFIXES:
            if (place / f"{stem}{suffix}").is_file():
                return [place / f"{stem}{suffix}"]
        if (place / stem).is_dir():
            return _named(place / stem, VARIABLE)
    return []


def _files(folder: Path) -> list[Path]:
    """The folder's data files, shorter names first: test.jsonl, test2.jsonl, ..., test10.jsonl."""
    return sorted(
        (path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file()),
        key=lambda path: (len(path.name), path.name),
    )


def _parquet_rows(path: Path) -> Iterator[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingExtra("pyarrow", "bench", f"reading {path}") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=64):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise LabError(f"{path}: not a whole parquet file: {error}") from error


def _parsed(where: str, text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LabError(f"{where}: not JSON: {error}") from error


def _row(where: str, value: Any) -> Row:
    if not isinstance(value, dict):
        raise LabError(f"{where}: must be an object, not {type(value).__name__}")
    return value
