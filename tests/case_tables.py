"""Tables of cases that stand in a TOML file beside their test."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from gspo_lab.common.plain_data import JsonObject


@cache
def _tables(path: Path) -> JsonObject:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def cases(test_file: str, name: str) -> Any:
    """The table `name` of the TOML file beside a test file: a row per case."""
    return _tables(Path(test_file).with_suffix(".toml"))[name]
