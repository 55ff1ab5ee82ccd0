"""Assertions that say all that is wrong at once."""

from collections.abc import Mapping
from typing import Any


def assert_fields(record: Any, /, **expected: Any) -> None:
    """Every named field of a record, or value of a mapping, is as expected."""
    if isinstance(record, Mapping):
        actual = {name: record[name] for name in expected}
    else:
        actual = {name: getattr(record, name) for name in expected}
    assert actual == expected
