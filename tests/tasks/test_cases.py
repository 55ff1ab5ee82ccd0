"""Payloads of hidden tests: the real encoding, damaged ones, and ones that would run code."""

import base64
import json
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from gspo_lab.errors import LabError
from gspo_lab.tasks.benchmarks.livecodebench import decode_cases
from gspo_lab.tasks.benchmarks.programs import Case, cases_digest

STDIN = [{"input": "1\n", "output": "2\n", "testtype": "stdin"}]
FUNCTIONAL = [{"input": '[1, 2]\n"x"', "output": "3", "testtype": "functional"}]


def packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


class Bomb:
    """Would write a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.write_text, (self.path, "boom")


def test_the_genuine_row(shared: Callable[[str], Path]) -> None:
    row = json.loads(shared("lcb_one_row.jsonl").read_text())
    cases = decode_cases("row", row["public_test_cases"], row["private_test_cases"], functional=False)
    assert len(cases) == 5
    assert cases[0] == Case(b"6\nabc\nacb\nbac\nbca\ncab\ncba\n", b"YES\nYES\nYES\nNO\nNO\nYES\n")
    assert all(case.input.endswith(b"\n") for case in cases)


@pytest.mark.parametrize("private", [json.dumps(STDIN), packed(json.dumps(STDIN)), "[]", packed("[]")])
def test_both_encodings(private: str) -> None:
    cases = decode_cases("row", json.dumps(STDIN), private, functional=False)
    assert cases[0] == Case(b"1\n", b"2\n")
    assert len(cases) == (1 if private in ("[]", packed("[]")) else 2)


def test_functional_tests() -> None:
    assert decode_cases("row", json.dumps(FUNCTIONAL), "[]", functional=True) == [Case(b'[1, 2]\n"x"', b"3")]


@pytest.mark.parametrize(
    ("public", "private", "message"),
    [
        ("[]", "[]", "row: no tests; without any, every program would pass"),
        ("[]", packed("[]"), "no tests"),
        ("", "[]", "public_test_cases is no JSON list"),
        ("{}", "[]", "public_test_cases is no JSON list"),
        ("[]", '"x"', "private_test_cases is no JSON list"),
        ("[]", "no base64!", "cannot be decoded: ValueError: neither JSON nor base64"),
        ("[]", base64.b64encode(b"no zlib").decode(), "cannot be decoded: error"),
        ("[]", packed(json.dumps(STDIN))[:-8], "cannot be decoded"),
        ("[]", packed([1]), "cannot be decoded: TypeError: the pickle holds list, not text"),
        ("[]", packed("[1, 2"), "private_test_cases is no JSON list"),
        ("[]", packed(packed), "refused"),
        ('[{"input": "1"}]', "[]", "a test is no object with the texts"),
        ("[1]", "[]", "a test is no object with the texts"),
        ('[{"input": 1, "output": "2", "testtype": "stdin"}]', "[]", "a test is no object with the texts"),
        (json.dumps(FUNCTIONAL), "[]", "of type 'functional' where the problem's metadata say 'stdin'"),
    ],
)
def test_what_cannot_be_decoded_is_an_error_and_never_an_empty_list(public: str, private: str, message: str) -> None:
    with pytest.raises(LabError, match=message):
        decode_cases("row", public, private, functional=False)


def test_a_functional_test_must_expect_json() -> None:
    broken = json.dumps([FUNCTIONAL[0] | {"output": "[1, 2"}])
    with pytest.raises(LabError, match=r"expects '\[1, 2', which is no JSON"):
        decode_cases("row", broken, "[]", functional=True)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_would_run_code_runs_none(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "written"
    hostile = base64.b64encode(zlib.compress(pickle.dumps(Bomb(target), protocol))).decode()
    with pytest.raises(LabError, match=r"the global .* is refused"):
        decode_cases("row", json.dumps(STDIN), hostile, functional=False)
    assert not target.exists()


def test_the_digest_tells_tests_apart() -> None:
    digests = {cases_digest(cases) for cases in ([Case(b"1", b"2")], [Case(b"12", b"")], [Case(b"2", b"1")], [])}
    assert len(digests) == 4
