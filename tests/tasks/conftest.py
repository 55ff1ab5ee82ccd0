"""Rows in files, and a cache of the test's own."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[[str, Iterable[Any]], Path]:
    """Writes rows as JSON lines to a file of the test's folder and gives its path."""

    def write(name: str, rows: Iterable[Any]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads the user's data or writes to the user's cache."""
    monkeypatch.setenv("GSPO_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GSPO_LAB_DATA", raising=False)
