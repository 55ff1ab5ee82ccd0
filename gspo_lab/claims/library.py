"""The built-in claims: the entries of library.toml, which says how to add one, and the functions that they name."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gspo_lab.claims import functions
from gspo_lab.claims.claim import Claim, CounterEvidence
from gspo_lab.claims.claim_specs import Expectation, Identity, Read, all_of

CODE: Mapping[str, Any] = vars(functions)
"""Functions by the names that entries call them: of a whole claim, or in the place of a row."""


def read_library(text: str) -> dict[str, Claim]:
    """The claims of a text like library.toml, by name, in the order of the names."""
    entries = tomllib.loads(text)
    entries.pop("untested", None)
    counter = {name: CounterEvidence(**entry) for name, entry in entries.pop("counter").items()}
    return {name: _claim(name, counter, entries[name]) for name in sorted(entries)}


def _claim(name: str, counter: Mapping[str, CounterEvidence], entry: dict[str, Any]) -> Claim:
    code, notes = entry.pop("code", None), entry.pop("notes", ())
    rows, also = ([_row(row) for row in entry.pop(key, ())] for key in ("rows", "also"))
    listed: dict[str, Any] = {key: tuple(entry.pop(key, ())) for key in ("roles", "needs", "for_support")}
    against = tuple(counter[key] for key in entry.pop("counter", ()))
    evaluate = CODE[code] if code else all_of(rows, also, notes)
    return Claim(id=name, evaluate=evaluate, counter=against, **listed, **entry)


def _row(row: Any) -> Read:
    read: Read = CODE[row] if isinstance(row, str) else (Identity if "at_most" in row else Expectation)(**row)
    return read


TEXT = Path(__file__).with_name("library.toml").read_text(encoding="utf-8")
LIBRARY: Mapping[str, Claim] = read_library(TEXT)
UNTESTED: Mapping[str, str] = tomllib.loads(TEXT)["untested"]
"""Statements of the literature that gspo-lab cannot test, each with what a test lacks. Studies may name them."""
