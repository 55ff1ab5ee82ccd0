"""Tests of LiveCodeBench as its rows hold them: JSON, or base64 of zlib of a pickle of one string of JSON."""

import base64
import binascii
import hashlib
import io
import json
import pickle
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from gspo_lab.errors import LabError

LARGEST = 2 << 30
"""Bytes that a payload may grow to when it is unpacked; the largest of release_v6 is a tenth of that."""


@dataclass(frozen=True, slots=True)
class Case:
    """One test: what the program is given, what is expected of it."""

    input: bytes
    output: bytes


class _OnlyText(pickle.Unpickler):
    """Refuses every global, and with them all that a pickle could do beside being data."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"the global {module}.{name} is refused")

    def persistent_load(self, pid: Any, /) -> NoReturn:
        raise pickle.UnpicklingError("persistent ids are refused")


def decode_cases(where: str, public: str, private: str, *, functional: bool) -> list[Case]:
    """Public, then private tests; LabError where they cannot be decoded, are of another kind, or are none.

    `functional` tests hold JSON values: one per line as input, one as output.
    """
    listed = [*_listed(where, "public_test_cases", _json(public)), *_private(where, private)]
    if not listed:
        raise LabError(f"{where}: no tests; without any, every program would pass")
    kind = "functional" if functional else "stdin"
    return [_case(where, kind, entry) for entry in listed]


def cases_digest(cases: Sequence[Case]) -> str:
    """sha256 of the tests, in order."""
    digest = hashlib.sha256()
    for case in cases:
        for part in (case.input, case.output):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _private(where: str, text: str) -> list[Any]:
    found = _json(text)
    if found is None:
        try:
            found = _json(_unpacked(text))
        # A pickle may fail in many ways; none of them may pass for an empty list of tests.
        except Exception as error:
            raise LabError(f"{where}: private_test_cases cannot be decoded: {type(error).__name__}: {error}") from error
    return _listed(where, "private_test_cases", found)


def _unpacked(text: str) -> str:
    unzip = zlib.decompressobj()
    try:
        packed = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"neither JSON nor base64: {error}") from error
    raw = unzip.decompress(packed, LARGEST)
    if not unzip.eof:
        raise ValueError("cut off, or larger than any known")
    found = _OnlyText(io.BytesIO(raw)).load()
    if not isinstance(found, str):
        raise TypeError(f"the pickle holds {type(found).__name__}, not text")
    return found


def _json(text: str) -> Any:
    """The value of a JSON text, None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _listed(where: str, column: str, found: Any) -> list[Any]:
    if not isinstance(found, list):
        raise LabError(f"{where}: {column} is no JSON list of tests")
    return found


def _case(where: str, kind: str, entry: Any) -> Case:
    texts = [entry.get(key) for key in ("input", "output", "testtype")] if isinstance(entry, dict) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise LabError(f"{where}: a test is no object with the texts input, output and testtype")
    given, expected, stated = (str(text) for text in texts)
    if stated != kind:
        raise LabError(f"{where}: a test is of type {stated!r} where the problem's metadata say {kind!r}")
    if kind == "functional":
        try:
            json.loads(expected, parse_int=str)  # whole numbers may be longer than Python reads
        except ValueError as error:
            raise LabError(f"{where}: a functional test expects {expected[:40]!r}, which is no JSON") from error
    return Case(given.encode(), expected.encode())
