"""Names of the plain data that files, records and views hold."""

from collections.abc import Mapping
from typing import Any

JsonObject = dict[str, Any]
"""An object of JSON, or a table of TOML."""

JsonMapping = Mapping[str, Any]
"""The same where it is only read."""

OptionalFloat = float | None
"""A number; None: it was not measured, or there is none. It is never 0 in that place."""
