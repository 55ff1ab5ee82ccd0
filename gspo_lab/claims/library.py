"""The claims that a study may name: those of library.toml, which says how to add one, and of installed packages."""

import tomllib
from collections.abc import Mapping
from typing import Any

from gspo_lab.claims import functions
from gspo_lab.claims.claim import Claim, CounterEvidence
from gspo_lab.claims.claim_specs import Expectation, Identity, Read, all_of
from gspo_lab.registry import look_up
from gspo_lab.study.claim_validation import library_files


def read_library(text: str) -> dict[str, Claim]:
    """The claims of a text like library.toml, by name, in the order of the names."""
    entries = tomllib.loads(text)
    entries.pop("untested", None)
    counter = {name: CounterEvidence(**entry) for name, entry in entries.pop("counter", {}).items()}
    return {name: _claim(name, counter, entries[name]) for name in sorted(entries)}


def _claim(name: str, counter: Mapping[str, CounterEvidence], entry: dict[str, Any]) -> Claim:
    code, notes = entry.pop("code", None), entry.pop("notes", ())
    rows, also = ([_row(row) for row in entry.pop(key, ())] for key in ("rows", "also"))
    listed: dict[str, Any] = {key: tuple(entry.pop(key, ())) for key in ("roles", "needs", "for_support")}
    against = tuple(counter[key] for key in entry.pop("counter", ()))
    evaluate = _function(code) if code else all_of(rows, also, notes)
    return Claim(id=name, evaluate=evaluate, counter=against, **listed, **entry)


def _row(row: Any) -> Read:
    read: Read = _function(row) if isinstance(row, str) else (Identity if "at_most" in row else Expectation)(**row)
    return read


def _function(name: str) -> Any:
    """A function of functions.py, or "module:function" of another package: of a whole claim, or of one row."""
    return look_up("function of a claim", name, {}) if ":" in name else getattr(functions, name)


TEXTS = [path.read_text(encoding="utf-8") for path in library_files()]
_claims = {name: claim for text in reversed(TEXTS) for name, claim in read_library(text).items()}
LIBRARY: Mapping[str, Claim] = {name: _claims[name] for name in sorted(_claims)}
UNTESTED: Mapping[str, str] = tomllib.loads(TEXTS[0])["untested"]
"""Statements of the literature that gspo-lab cannot test, each with what a test lacks. Studies may name them."""
