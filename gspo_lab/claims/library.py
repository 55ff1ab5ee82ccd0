"""The built-in claims: the entries of library.toml, which says how to add one, and the functions that they name."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gspo_lab.claims import clipping, learning
from gspo_lab.claims.claim import Claim, Counter
from gspo_lab.claims.grammar import Expectation, Identity, Read, all_of
from gspo_lab.claims.needs import NEEDS

CODE: Mapping[str, Any] = {**vars(clipping), **vars(learning)}
"""Functions by the names that entries call them: of a whole claim, or in the place of a row."""


def read_library(text: str) -> dict[str, Claim]:
    """The claims of a text like library.toml, by name, in the order of the names."""
    entries = tomllib.loads(text)
    counter = {name: Counter(**one) for name, one in entries.pop("counter").items()}
    return {name: _claim(name, counter, entries[name]) for name in sorted(entries)}


def _claim(name: str, counter: Mapping[str, Counter], entry: dict[str, Any]) -> Claim:
    code, notes = entry.pop("code", None), entry.pop("notes", ())
    rows, also = ([_row(one) for one in entry.pop(key, ())] for key in ("rows", "also"))
    listed: dict[str, Any] = {
        "roles": tuple(entry.pop("roles", ())),
        "needs": tuple(NEEDS[one] for one in entry.pop("needs", ())),
        "for_support": tuple(NEEDS[one] for one in entry.pop("for_support", ())),
        "counter": tuple(counter[one] for one in entry.pop("counter", ())),
    }
    evaluate = CODE[code] if code else all_of(rows, also, notes) if rows else None
    return Claim(id=name, evaluate=evaluate, **listed, **entry)


def _row(one: Any) -> Read:
    """A table, or the name of a function."""
    read: Read = CODE[one] if isinstance(one, str) else (Identity if "at_most" in one else Expectation)(**one)
    return read


LIBRARY: Mapping[str, Claim] = read_library(Path(__file__).with_name("library.toml").read_text(encoding="utf-8"))
