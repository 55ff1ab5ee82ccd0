"""Names of the plain data that files, records and views hold, and tables of the package's own."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

JsonObject = dict[str, Any]
"""An object of JSON, or a table of TOML."""

JsonMapping = Mapping[str, Any]
"""A JSON object that is only read."""

Interval = tuple[float, float]
"""Its lower and its upper end."""

Integers = tuple[int, ...]
"""Whole numbers in order."""

Strings = tuple[str, ...]
"""Names, words or lines, in order."""

OptionalFloat = float | None
"""A number; None: it was not measured, or there is none. It is never 0 in that place."""

OptionalInt = int | None
"""A whole number; None as above."""

OptionalText = str | None
"""A text; None: there is none, or it is not known."""


@cache
def table_beside(module: str, name: str) -> JsonObject:
    """The TOML file `name` in the folder of a module, which is given by its `__file__`."""
    return tomllib.loads(Path(module).with_name(name).read_text(encoding="utf-8"))
