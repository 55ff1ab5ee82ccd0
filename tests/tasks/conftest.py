"""Public data that is not part of the project lies in shared/data beside the checkout, or where an environment says."""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def shared() -> Callable[[str], Path]:
    """The path of a file under shared/data; the test is skipped where it is absent."""
    folder = Path(os.environ.get("GSPO_LAB_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data")

    def path(name: str) -> Path:
        if not (folder / name).is_file():
            pytest.skip(f"{name} is not in {folder}; GSPO_LAB_TEST_DATA names another folder")
        return folder / name

    return path


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
